//go:build e2e

package e2e

import (
	"testing"
	"time"
)

// onTrainer is a run of addition.hcl with the trainer, "grpo", "trl", "verl" or "axolotl".
func onTrainer(t *testing.T, trainer string, vars map[string]string) *run {
	t.Helper()
	setTrainer(t, trainer, vars)
	return newRun(t, "addition.hcl", vars)
}

// setTrainer has addition.hcl use the trainer; recipe's own worker shares the Python environment of the engine.
func setTrainer(t *testing.T, trainer string, vars map[string]string) {
	t.Helper()
	vars["trainer"] = trainer
	if trainer != "grpo" {
		vars["trainer_python"] = environmentPython(t, trainer)
	}
}

// learnsThroughAKill is the whole loop with the trainer, whose program is killed once: it learns addition.
func learnsThroughAKill(t *testing.T, trainer string) {
	t.Helper()
	r := onTrainer(t, trainer, map[string]string{"steps": "12"})
	r.apply()
	r.await(30*time.Minute, "the evaluation before training", 0, has(environment, accuracy))
	fifth := r.await(30*time.Minute, "step 5 to be served", 0, served(5))
	kill(t, r, "-m recipe_"+trainer+" --config")
	r.await(20*time.Minute, "the trainer to be started again", fifth.Seq,
		func(e event) bool { return e.Type == "restart" && e.Address == r.trainer })
	if err := r.wait(60 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, r.story())
	}
	learned(t, r)
	checkWeights(t, r, "reload")
	checkSteps(t, r, 12)
	checkCheckpoint(t, r)
}

// trains runs to the end and checks that every step's weights were served and verified.
func trains(t *testing.T, r *run, transport string) {
	t.Helper()
	r.apply()
	if err := r.wait(40 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, r.story())
	}
	checkWeights(t, r, transport)
}

// TestTRL trains with TRL's GRPOTrainer.
func TestTRL(t *testing.T) {
	t.Parallel()
	learnsThroughAKill(t, "trl")
}

// TestLearns is the whole loop of SGLang with each trainer that is not recipe's: they learn addition.
func TestLearns(t *testing.T) {
	for _, trainer := range []string{"trl", "verl", "axolotl"} {
		t.Run(trainer, func(t *testing.T) {
			t.Parallel()
			vars := map[string]string{"steps": "12"}
			setTrainer(t, trainer, vars)
			r := onSGLang(t, vars)
			trains(t, r, "reload")
			learned(t, r)
			checkSteps(t, r, 12)
		})
	}
}

// TestTRLShort is the shortest run: a step is trained on what vLLM sampled, and its weights are served and verified.
func TestTRLShort(t *testing.T) {
	t.Parallel()
	r := onTrainer(t, "trl", map[string]string{"steps": "1", "evaluate": "false"})
	trains(t, r, "reload")
	checkSteps(t, r, 1)
}

// TestVerl trains with verl's engine.
func TestVerl(t *testing.T) {
	t.Parallel()
	learnsThroughAKill(t, "verl")
}

// TestAxolotl trains with Axolotl's trainer.
func TestAxolotl(t *testing.T) {
	t.Parallel()
	learnsThroughAKill(t, "axolotl")
}
