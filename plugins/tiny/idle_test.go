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
