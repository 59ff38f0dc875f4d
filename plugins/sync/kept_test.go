package sync_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// An update waits while an evaluation needs one policy version, and no longer than its own limit.
func TestAnUpdateWaitsForAnEvaluation(t *testing.T) {
	t.Parallel()
	for name, release := range map[string]bool{"released": true, "never released": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startInference(t, plugintest.FakeConfig{})
			c := client(server)
			defer c.Close()
			if _, err := c.Keep(t.Context(), "evaluation", time.Minute, nil); err != nil {
				t.Fatal(err)
			}
			train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1})
			b := plugintest.Harness(t, sync.Definition())
			settings := config(train, server)
			if settings.Timeout = 10 * time.Minute; !release {
				settings.Timeout = 10 * time.Second // it waits for half of it
			}
			b.Start(settings)
			for deadline := time.Now().Add(plugintest.Deadline); ; time.Sleep(5 * time.Millisecond) {
				doing := b.Status().GetActivities()
				if slices.ContainsFunc(doing, func(a *pluginpb.Activity) bool {
					return strings.HasPrefix(a.GetWhat(), "an evaluation before policy version 1")
				}) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("the update does not wait: %v", doing)
				}
			}
			if release {
				if _, err := c.Keep(t.Context(), "evaluation", 0, nil); err != nil {
					t.Fatal(err)
				}
			}
			train.WaitPhase(sdk.Completed)
			serves(t, server, 1)
		})
	}
}

// The weights of a step that an evaluation has asked for are loaded and stay, however long that takes; those before
// them do not wait.
func TestTheWeightsOfAStepStay(t *testing.T) {
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{})
	c := client(server)
	defer c.Close()
	step := int64(2)
	if _, err := c.Keep(t.Context(), "evaluation", time.Minute, &step); err != nil {
		t.Fatal(err)
	}
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 3})
	b := plugintest.Harness(t, sync.Definition())
	settings := config(train, server)
	settings.Timeout = 2 * time.Second // which bounds an update, not this wait
	b.Start(settings)
	waits := func() bool {
		return slices.ContainsFunc(b.Status().GetActivities(), func(a *pluginpb.Activity) bool {
			return strings.HasPrefix(a.GetWhat(), "the evaluation of the weights of step 2")
		})
	}
	for deadline := time.Now().Add(plugintest.Deadline); !waits(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the update does not wait: %v", b.Status().GetActivities())
		}
	}
	for until := time.Now().Add(3 * time.Second); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		kept, err := c.Keep(t.Context(), "evaluation", time.Minute, &step)
		if err != nil || kept.Step == nil || *kept.Step != 2 {
			t.Fatalf("inference serves %+v (%v); want the weights of step 2", kept, err)
		}
	}
	if _, err := c.Keep(t.Context(), "evaluation", 0, nil); err != nil {
		t.Fatal(err)
	}
	train.WaitPhase(sdk.Completed)
	serves(t, server, 3)
}
