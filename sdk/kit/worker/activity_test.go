package worker

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

func TestWhatTheWorkerDoes(t *testing.T) {
	t.Parallel()
	trainer := &Trainer[Config]{}
	trainer.program.Trajectories = &spec.Ref{Address: "trajectories.builtin.default"}
	trainer.req.Placement.GPUs = 2
	trainer.req.SyncedBy = []string{"sync.weights.policy"}
	for phase, want := range map[string]sdk.Activity{
		"waiting":    {On: "trajectories.builtin.default", What: "batch 7"},
		"connecting": {On: "trajectories.builtin.default", What: "it to register this trainer"},
		"training": {What: "training step 7", Detail: "on 2 ranks, which wait for each other",
			Patience: patienceForFirst},
		"checkpointing": {What: "checkpointing at step 6", Patience: patienceForFirst / 3},
		"done":          {What: "the end of its program", Patience: patienceForFirst / 3},
		"paused":        {What: "the run is paused", Patience: patienceForPeople, Remedy: "recipe resume", Rest: true},
		"settling":      {On: "sync.weights.policy", What: "its weights of step 6 to be served"},
		"sync":          {}, // reported by TrainerHost.Sync
		"turn":          {}, // reported by TrainerHost.Turn
		"loading":       {}, // not ready yet
		"prepared":      {}, // the engine says what it waits for
	} {
		got, ok := trainer.activity(&doing{}, event{Phase: phase, Step: 6})
		if got != want || ok != (want.What != "") {
			t.Errorf("%s: %+v, %v; want %+v", phase, got, ok, want)
		}
	}
	d := &doing{longest: 10 * patienceForFirst}
	if a, _ := trainer.activity(d, event{Phase: "training", Step: 6}); a.Patience != 30*patienceForFirst ||
		!strings.Contains(a.What, "7") {
		t.Errorf("after long steps: %+v", a)
	}
}
