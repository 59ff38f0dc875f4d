package tiny

import "testing"

func TestNormalizeWithoutNormalizationIsTold(t *testing.T) {
	t.Parallel()
	good := TrainerConfig{LearningRate: 1e-3, ClipLow: 0.2, ClipHigh: 0.2, GradientClip: 1, Epochs: 1}
	for normalization, told := range map[string]bool{"none": true, "batch": false} {
		c := good
		c.Advantages = &AdvantagesConfig{Fallback: "grpo", Scope: "sequence", Layout: "token", Single: "zero",
			Normalization: normalization, Normalize: "all"}
		problems := (&training{}).Validate(c)
		if (len(problems) == 1 && problems[0].Warning && problems[0].Summary == "normalize has no effect") != told ||
			len(problems) > 0 != told {
			t.Errorf("normalization %s: %v", normalization, problems)
		}
	}
}

// A warm-up that is longer than the run keeps the learning rate below what the recipe sets. A short trial with the
// default is none that somebody wrote.
func TestAWarmupLongerThanTheRun(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		warmup, steps int64
		warned        bool
	}{{600, 60, true}, {60, 60, false}, {defaultWarmup, 10, false}, {30, 10, true}} {
		c := TrainerConfig{LearningRate: 1e-3, ClipLow: 0.2, ClipHigh: 0.2, GradientClip: 1, Epochs: 1,
			WarmupSteps: of.warmup, Steps: of.steps}
		problems := (&training{}).Validate(c)
		if len(problems) > 0 != of.warned || of.warned && !problems[0].Warning {
			t.Errorf("%d steps of %d: %v", of.warmup, of.steps, problems)
		}
	}
}
