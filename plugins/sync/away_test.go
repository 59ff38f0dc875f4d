package sync_test

import (
	"slices"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// change gives a block another configuration while it runs.
func change(t *testing.T, b *plugintest.Block, c plugintest.FakeConfig) {
	t.Helper()
	if _, err := b.Client.Update(t.Context(), &pluginpb.UpdateRequest{Config: b.Request(c).GetConfig()}); err != nil {
		t.Fatal(err)
	}
}

// TestAnUpdateDoesNotWaitForARestart: a server of vLLM takes a minute or more to start, and the
// trainer would wait as long for each update, although another block can serve the new weights.
//
//docs:survival.md all servers of one of several inference blocks are being started again
func TestAnUpdateDoesNotWaitForARestart(t *testing.T) {
	t.Parallel()
	up, down := startInference(t, plugintest.FakeConfig{}), startInference(t, plugintest.FakeConfig{},
		address("inference.fake.down"))
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 3})
	change(t, down, plugintest.FakeConfig{Down: true})
	b := plugintest.Harness(t, sync.Definition())
	c := config(train, up, down)
	c.Timeout = 10 * time.Minute // nothing waits for it
	b.Start(c)
	train.WaitPhase(sdk.Completed)
	serves(t, up, 3)

	control := client(down)
	defer control.Close()
	s, err := control.Status(t.Context())
	if err != nil || !s.Down || s.Held || s.Version != 3 || s.Replicas[0].Ready {
		t.Errorf("the block that is down: %+v %v; expected one that waits for version 3", s, err)
	}
	change(t, down, plugintest.FakeConfig{})
	want := plugintest.FakeLogprobs(3, []int{1, 2, 3})
	if got := serves(t, down, 3); got[0] != want[0] || got[1] != want[1] {
		t.Errorf("after its start it gives %v, want %v", got, want)
	}
	b.Wait("that it serves again", func(e *pluginpb.Event) bool {
		return e.GetWeights().GetInference() == down.Address && e.GetWeights().GetVersion() == 3
	})
	for _, e := range b.Events() {
		if p := e.GetPhase(); p.GetPhase() == string(sdk.Degraded) {
			t.Errorf("the sync block says that it is degraded: %s", p.GetMessage())
		}
	}
}

// TestAnUpdateWaitsForServersThatAreAllStartedAgain: somebody has to prove that the weights arrived.
func TestAnUpdateWaitsForServersThatAreAllStartedAgain(t *testing.T) {
	t.Parallel()
	servers := []*plugintest.Block{startInference(t, plugintest.FakeConfig{}), startInference(t, plugintest.FakeConfig{},
		address("inference.fake.other"))}
	for _, s := range servers {
		change(t, s, plugintest.FakeConfig{Down: true})
	}
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1})
	b := plugintest.Harness(t, sync.Definition())
	b.Start(config(train, servers...))
	for deadline := time.Now().Add(plugintest.Deadline); ; time.Sleep(5 * time.Millisecond) {
		doing := b.Status().GetActivities()
		if slices.ContainsFunc(doing, func(a *pluginpb.Activity) bool {
			return a.GetWhat() == "policy version 1 to be loaded and verified"
		}) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the update does not wait for its servers: %v", doing)
		}
	}
	for _, s := range servers {
		change(t, s, plugintest.FakeConfig{})
	}
	train.WaitPhase(sdk.Completed)
	for _, s := range servers {
		serves(t, s, 1)
	}
}
