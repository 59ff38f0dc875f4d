package loop_test

import (
	"os"
	"testing"

	"github.com/recipe-rl/recipe/plugins/arithmetic"
	"github.com/recipe-rl/recipe/plugins/tiny"
	"github.com/recipe-rl/recipe/plugins/tiny/lm"
	"github.com/recipe-rl/recipe/scripts/tinycheckpoint/loop"
)

// The checkpoint must leave GRPO room to improve on held-out problems.
func TestWarmCheckpointLeavesRoom(t *testing.T) {
	t.Parallel()
	c, err := tiny.Warm()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Stat("../../../plugins/tiny/warm.tiny")
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := lm.NewParams(loop.Shape(), 1)
	if err != nil {
		t.Fatal(err)
	}
	want := lm.Checkpoint{Params: fresh}
	want.Widen(c.Params.Config.Context)
	if file.Size() > 1<<20 || c.Adam != nil || c.Step != 0 || c.Params.Config != want.Params.Config {
		t.Errorf("want a plain checkpoint of at most 1 MiB: %d bytes, step %d, shape %+v", file.Size(), c.Step,
			c.Params.Config)
	}
	a, err := loop.Evaluate(c, arithmetic.Problems(arithmetic.HeldOut), 1)
	if err != nil {
		t.Fatal(err)
	}
	if a.Greedy < 0.5 || a.Greedy > 0.75 || a.Sampled < 0.25 || a.Sampled > 0.5 {
		t.Errorf("held-out accuracy is %.3f greedy and %.3f sampled; docs/benchmarks/quickstart.md says 0.607 and 0.358",
			a.Greedy, a.Sampled)
	}
}
