package loop_test

import (
	"testing"

	"github.com/recipe-rl/recipe/plugins/arithmetic"
	"github.com/recipe-rl/recipe/plugins/tiny"
	"github.com/recipe-rl/recipe/plugins/tiny/grpo"
	"github.com/recipe-rl/recipe/plugins/tiny/lm"
	"github.com/recipe-rl/recipe/scripts/tinycheckpoint/loop"
)

// learn runs some steps with a fixed seed and returns held-out accuracy.
func learn(t *testing.T, rate float64, steps int) loop.Accuracy {
	t.Helper()
	from, err := tiny.Warm()
	if err != nil {
		t.Fatal(err)
	}
	l := loop.DefaultLearn(1)
	l.Trainer.LearningRate = rate
	var last *lm.Checkpoint
	if err := l.Run(from, func(m grpo.Metrics, c *lm.Checkpoint) bool {
		last = c
		return m.Step < steps
	}); err != nil {
		t.Fatal(err)
	}
	a, err := loop.Evaluate(last, arithmetic.Problems(arithmetic.HeldOut), 1)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// The whole loop learns, on held-out problems, and only because of training.
func TestLoopLearns(t *testing.T) {
	if testing.Short() {
		t.Skip("trains for some seconds")
	}
	t.Parallel()
	const steps = 50
	trained, idle := learn(t, 3e-4, steps), learn(t, 1e-12, 10)
	if trained.Sampled < idle.Sampled+0.03 {
		t.Errorf("after %d steps held-out sampled accuracy is %.3f, with a learning rate of nothing %.3f; want a clear rise",
			steps, trained.Sampled, idle.Sampled)
	}
	t.Logf("trained %+v, idle %+v", trained, idle)
}
