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
