package grpo

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/worker"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// learningCase is a line of testdata/learning.json, which the worker's tests read as well: the plan describes what the
// worker does.
type learningCase struct {
	Settings struct {
		Loss struct {
			Name, Aggregation string
			LengthNorm        *float64 `json:"length_norm"`
		}
		Correction *struct {
			OldPolicy  string `json:"old_policy"`
			Importance string
		}
		Data struct {
			MaxLength         int64 `json:"max_length"`
			MaxPromptLength   int64 `json:"max_prompt_length"`
			MaxResponseLength int64 `json:"max_response_length"`
		}
		Advantages *struct{ Estimator, Single string }
	}
	Refused, Loss, Aggregation, Importance string
	LengthNorm                             float64 `json:"length_norm"`
}

func (c learningCase) config() Config {
	s := c.Settings
	out := Config{Common: worker.Common{Model: "m", BatchSize: 64, MaxLength: 2048,
		MaxPromptLength: s.Data.MaxPromptLength, MaxResponseLength: s.Data.MaxResponseLength}}
	if s.Data.MaxLength > 0 {
		out.MaxLength = s.Data.MaxLength
	}
	if s.Loss.Name != "" {
		out.Loss = &Loss{Name: s.Loss.Name, Aggregation: s.Loss.Aggregation, LengthNorm: s.Loss.LengthNorm,
			DualClip: 3, TopEntropy: 1, SapoTauPositive: 1, SapoTauNegative: 1}
	}
	if s.Correction != nil {
		out.Correction = &Correction{OldPolicy: "trainer", Importance: "auto", ImportanceHigh: 2, ImportanceMode: "truncate"}
		if s.Correction.OldPolicy != "" {
			out.Correction.OldPolicy = s.Correction.OldPolicy
		}
		if s.Correction.Importance != "" {
			out.Correction.Importance = s.Correction.Importance
		}
	}
	if s.Advantages != nil {
		out.Advantages = &Advantages{Estimator: s.Advantages.Estimator, Single: s.Advantages.Single, Epsilon: 1e-6,
			UseAdvantages: true}
	}
	return out
}

func TestThePlanSaysWhatTheWorkerDoes(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("testdata", "learning.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []learningCase
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 300 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		config := c.config()
		var refused []string
		for _, p := range (&Trainer{}).Validate(config) {
			if !p.Warning {
				refused = append(refused, strings.TrimPrefix(spec.PathString(p.Path), "."))
			}
		}
		if c.Refused != "" {
			if !slices.Contains(refused, c.Refused) {
				t.Errorf("%+v: problems at %q, want one at %s", c.Settings, refused, c.Refused)
			}
			continue
		}
		l := learningOf(config)
		if len(refused) > 0 || l.loss != c.Loss || l.aggregation != c.Aggregation || l.norm != c.LengthNorm ||
			l.correction != c.Importance {
			t.Errorf("%+v: %+v (problems at %q), want %s, %s, %g, %s", c.Settings, l, refused, c.Loss, c.Aggregation,
				c.LengthNorm, c.Importance)
		}
	}
}

func TestThePlanSaysHowLargeAGroupMustBe(t *testing.T) {
	t.Parallel()
	for want, configs := range map[string][]*Advantages{
		"2": {nil, {}, {Estimator: "rloo"}, {Estimator: "grpo_passk"}, {Estimator: "grpo", Single: "zero"}},
		"":  {{Single: "score"}, {Estimator: "gae"}, {Estimator: "rf++"}, {Import: "mine.py:f"}},
	} {
		for _, a := range configs {
			e, _ := (&Trainer{}).Plan(Config{Advantages: a}, sdk.Placement{})
			if got := e.Facts["least_group"]; got != want {
				t.Errorf("%+v: %q, want %q", a, got, want)
			}
		}
	}
}

// By default answers continue with new weights only if the trainer reports that it corrects for them.
func TestTheTrainerSaysWhetherItCorrectsForOlderTokens(t *testing.T) {
	t.Parallel()
	none, some := int64(0), int64(1)
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"default":          {Config{}, "truncated importance sampling"},
		"a version old":    {Config{Common: worker.Common{MaxStaleness: &some}}, "truncated importance sampling"},
		"none that is old": {Config{Common: worker.Common{MaxStaleness: &none}}, ""},
		"weights off":      {Config{Correction: &Correction{Importance: "none"}}, ""},
		"bypass": {Config{Correction: &Correction{OldPolicy: "rollout", Importance: "auto"}},
			"against the sampler"},
		"supervised":             {Config{Loss: &Loss{Name: "sft"}}, ""},
		"a function of a user's": {Config{Loss: &Loss{Import: "loss.py:f"}}, ""},
	} {
		got := c.config.corrects()
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		e, _ := (&Trainer{}).Plan(c.config, sdk.Placement{})
		if e.Facts["corrects"] != got {
			t.Errorf("%s: the plan says %q, want %q", name, e.Facts["corrects"], got)
		}
	}
}

//docs:troubleshooting.md Stale samples that nothing corrects
func TestThePlanSaysWhichCorrectionActs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config Config
		want   []string
	}{
		"default": {Config{}, []string{
			"loss ppo, tokens averaged by token-mean", "stale samples: truncated importance sampling, trainer / sampler " +
				"of each token, at most 2",
		}},
		"off": {Config{Correction: &Correction{Importance: "none"}}, []string{
			"loss ppo, tokens averaged by token-mean", `stale samples: nothing corrects them (correction.importance = "none")`,
		}},
		"dr_grpo": {Config{Common: worker.Common{MaxLength: 512, MaxPromptLength: 128},
			Loss: &Loss{Name: "dr_grpo"}}, []string{
			"loss ppo, tokens averaged by batch-sum-norm with the constant 384 (max_length less max_prompt_length)",
			"stale samples: truncated importance sampling, trainer / sampler of each token, at most 2",
		}},
		"bypass": {Config{Correction: &Correction{OldPolicy: "rollout", Importance: "auto"}}, []string{
			"loss ppo, tokens averaged by token-mean", "stale samples: the ratio of ppo is against the " +
				"sampler's log-probabilities",
		}},
		"masked": {Config{Loss: &Loss{Name: "decoupled_ppo"}, Correction: &Correction{Importance: "auto",
			ImportanceMode: "mask", ImportanceHigh: 5}}, []string{
			"loss decoupled_ppo, tokens averaged by token-mean", "stale samples: truncated importance sampling, trainer / " +
				"sampler of each token, at most 5, else 0",
		}},
		"gspo": {Config{Loss: &Loss{Name: "gspo"}}, []string{
			"loss gspo, tokens averaged by seq-mean-token-mean", "stale samples: truncated importance sampling, trainer / " +
				"sampler of each token, at most 2",
		}},
		"supervised": {Config{Loss: &Loss{Name: "ce"}}, []string{
			"loss sft, tokens averaged by token-mean", "stale samples: sft is supervised, nothing is corrected",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.config.Model = "Qwen/Qwen2.5-1.5B-Instruct"
			e, _ := (&Trainer{}).Plan(c.config, sdk.Placement{GPUs: 1})
			learned := slices.DeleteFunc(e.Notes, func(note string) bool { return strings.HasPrefix(note, "a step is sized") })
			if !slices.Equal(learned, c.want) {
				t.Errorf("notes\n%s\nwant\n%s", strings.Join(learned, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}
