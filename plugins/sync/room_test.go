package sync_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/internal/disk/disktest"
	"github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// degradedForRoom finds the phase in which a block waits for room.
func degradedForRoom(e *pluginpb.Event) bool {
	p := e.GetPhase()
	return p.GetPhase() == string(sdk.Degraded) && strings.Contains(p.GetMessage(), "waits for room on the disk of")
}

// While the disk of the published weights is full an update waits, and inference continues with its weights: no request
// is held, and no part of the new weights is loaded. With room again the update continues, and no block has failed.
//
//docs:survival.md the disk is full (no room, or the user's quota)
func TestAnUpdateWaitsForRoom(t *testing.T) {
	t.Parallel()
	dir := disktest.Small(t, 256<<10)
	server := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 3})
	room := disktest.Fill(t, dir)
	b := plugintest.Harness(t, sync.Definition())
	b.Start(config(train, server), func(r *pluginpb.StartRequest) { r.Dir = dir })
	b.Wait("waiting for room", degradedForRoom)
	c := client(server)
	defer c.Close()
	s, err := c.Status(t.Context())
	if err != nil || s.Held || s.Version != 0 || !s.Replicas[0].Ready {
		t.Errorf("inference: %+v, %v; want it untouched at version 0", s, err)
	}
	room()
	train.WaitPhase(sdk.Completed)
	serves(t, server, 3)
	b.WaitPhase(sdk.Ready)
	if left, _ := filepath.Glob(filepath.Join(dir, "weights", "*", ".*")); len(left) > 0 {
		t.Errorf("half-written files were left: %v", left)
	}
	if _, err := os.Stat(filepath.Join(dir, "last.json")); err != nil {
		t.Error(err)
	}
	for _, e := range append(b.Events(), train.Events()...) {
		if p := e.GetPhase(); p.GetPhase() == string(sdk.Failed) {
			t.Errorf("a block has failed: %v", p)
		}
	}
}
