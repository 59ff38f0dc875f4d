package sync_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/spec"
)

func TestAnInferenceBlockIsAddedLive(t *testing.T) {
	t.Parallel()
	first := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1000, Delay: 20 * time.Millisecond})
	b := plugintest.Harness(t, sync.Definition())
	c := config(train, first)
	b.Start(c)
	b.Wait("first version", func(e *pluginpb.Event) bool { return e.GetWeights() != nil })

	second := startInference(t, plugintest.FakeConfig{}, address("inference.fake.second"))
	c.Inference = append(c.Inference, second.Reference())
	c.Every = 2
	ctx, cancel := context.WithTimeout(t.Context(), plugintest.Deadline)
	defer cancel()
	if _, err := b.Client.Update(ctx, &pluginpb.UpdateRequest{Config: b.Request(c).GetConfig()}); err != nil {
		t.Fatal(err)
	}
	b.Wait("update of the second block", func(e *pluginpb.Event) bool {
		return e.GetWeights().GetInference() == "inference.fake.second"
	})
	// From here on every other step is published.
	var steps []int64
	b.Wait("three publications of the new period", func(e *pluginpb.Event) bool {
		if m := e.GetMetrics(); m != nil && m.GetStep()%2 == 0 {
			steps = append(steps, m.GetStep())
		}
		n := len(steps)
		return n >= 3 && steps[n-1] == steps[n-2]+2 && steps[n-2] == steps[n-3]+2
	})

	c.Transport = "lora"
	if _, err := b.Client.Update(ctx, &pluginpb.UpdateRequest{Config: b.Request(c).GetConfig()}); err == nil {
		t.Error("a transport that nobody offers was taken over")
	}
	if s := b.Status(); s.GetPhase() == string(sdk.Failed) {
		t.Errorf("after an update that was refused the block is %s: %s", s.GetPhase(), s.GetError())
	}
}

// A block that cannot work with the others is added live: the update is refused, and the run continues as it was.
func TestALiveChangeThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	server, awake := sleeper(t, nil), startInference(t, plugintest.FakeConfig{}, address("inference.fake.second"))
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1000, Delay: 20 * time.Millisecond})
	b := plugintest.Harness(t, sync.Definition())
	c := config(train, server)
	c.Colocated = "sleep"
	b.Start(c)
	b.Wait("first version", func(e *pluginpb.Event) bool { return e.GetWeights() != nil })
	ctx, cancel := context.WithTimeout(t.Context(), plugintest.Deadline)
	defer cancel()
	for name, added := range map[string]spec.Ref{
		"cannot sleep": awake.Reference(),
		"control":      plugintest.Ref("inference.fake.third", kind.Inference, plugintest.FakeOutputs{Sleeps: true}),
	} {
		bad := c
		bad.Inference = append(slices.Clone(c.Inference), added)
		if _, err := b.Client.Update(ctx, &pluginpb.UpdateRequest{Config: b.Request(bad).GetConfig()}); err == nil ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("the update: %v; want a refusal with %q", err, name)
		}
	}
	seen := len(b.Events())
	b.Wait("another version", func(e *pluginpb.Event) bool { seen--; return seen < 0 && e.GetWeights() != nil })
	if s := b.Status(); s.GetPhase() == string(sdk.Failed) {
		t.Errorf("after updates that were refused the block is %s: %s", s.GetPhase(), s.GetError())
	}
}

// Both the sync block and the inference block come back, and the trainer has nothing new: the files of the last version
// are loaded.
func TestANewLifeRepairsFromTheFilesOfTheLast(t *testing.T) {
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 2, Delay: 5 * time.Millisecond})
	b := plugintest.Harness(t, sync.Definition())
	b.Start(config(train, server))
	train.WaitPhase(sdk.Completed)
	serves(t, server, 2)
	listen := server.Status().GetListen()
	for _, block := range []*plugintest.Block{b, server} {
		if err := block.Stop(5 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
	again := startInference(t, plugintest.FakeConfig{}, func(r *pluginpb.StartRequest) {
		r.Listen, r.Policy = listen, &pluginpb.Policy{Version: 2}
	})
	// The trainer starts as if no sync block were declared, so that it is past its first Sync, in which it would publish
	// its weights.
	idle := plugintest.Harness(t, plugintest.FakeTrainer())
	idle.Start(plugintest.FakeTrainerConfig{Steps: 1, Delay: time.Hour})
	idle.Ready()
	next := plugintest.Harness(t, sync.Definition())
	next.Start(config(idle, again), func(r *pluginpb.StartRequest) { r.Dir = b.Dir })
	next.Ready()
	if got, want := serves(t, again, 2), plugintest.FakeLogprobs(2, []int{1, 2, 3}); got[0] != want[0] {
		t.Errorf("it gives %v, want %v", got, want)
	}
}

func TestADamagedRecordIsReportedWithTheWayOut(t *testing.T) {
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1, Delay: time.Hour})
	b := plugintest.Harness(t, sync.Definition())
	if err := os.WriteFile(b.Dir+"/last.json", []byte(`{"weights":`), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Start(config(train, server))
	e := b.Wait("failure", func(e *pluginpb.Event) bool {
		return e.GetPhase().GetPhase() == string(
			sdk.Failed)
	}).GetPhase()
	if e.GetMessage() == "" || e.GetRemedy() == "" {
		t.Errorf("failed with %v", e)
	}
}

// A run directory from somebody else could name any folder as the weights to serve.
//
//docs:survival.md a record names weights outside the run directory
func TestARecordThatNamesWeightsElsewhereIsRefused(t *testing.T) {
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1, Delay: time.Hour})
	b := plugintest.Harness(t, sync.Definition())
	elsewhere, link := t.TempDir(), filepath.Join(b.Dir, "weights-3")
	data, err := json.Marshal(map[string]any{"weights": sdk.Weights{Version: 3, Path: link,
		Format: "fake", Transport: "reload"}})
	if err = errors.Join(err, os.Symlink(elsewhere, link), os.WriteFile(filepath.Join(b.Dir, "last.json"),
		data, 0o600)); err != nil {
		t.Fatal(err)
	}
	b.Start(config(train, server))
	e := b.Wait("failure", func(e *pluginpb.Event) bool {
		return e.GetPhase().GetPhase() == string(
			sdk.Failed)
	}).GetPhase()
	if !strings.Contains(e.GetMessage(), "outside the run directory") ||
		!strings.Contains(e.GetRemedy(), "remove the file") {
		t.Errorf("failed with %v", e)
	}
}
