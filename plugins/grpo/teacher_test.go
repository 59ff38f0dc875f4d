package grpo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/kit/worker"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// model writes the config.json of a model with a vocabulary of this size.
func model(t *testing.T, vocabulary string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"num_hidden_layers": 2, "hidden_size": 64,
		"num_attention_heads": 4, "intermediate_size": 128, "vocab_size": `+vocabulary+`}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// taught is a trainer with a reference that is served.
func taught(policy, teacher string) Config {
	values := cty.ObjectVal(map[string]cty.Value{"model": cty.StringVal(teacher),
		"base_url": cty.StringVal("http://127.0.0.1:1/v1"), "api_key": cty.StringVal("secret")})
	return Config{Common: worker.Common{Model: policy, MaxLength: 64, Steps: 1}, Reference: &Reference{
		Inference: &spec.Ref{Address: "inference.vllm.teacher", Kind: kind.Inference, Values: values}}}
}

//docs:distillation.md the plan counts no second copy
func TestAServedReferenceTakesNoMemory(t *testing.T) {
	t.Parallel()
	policy := model(t, "100")
	parts := func(c Config) (names []string) {
		e, problems := (&Trainer{}).Plan(c, sdk.Placement{})
		if len(problems) > 0 {
			t.Error(problems)
		}
		for _, a := range e.Amounts {
			names = append(names, a.Part)
		}
		return append(names, e.Notes...)
	}
	loaded := taught(policy, policy)
	loaded.Reference = nil
	copied, served := strings.Join(parts(loaded), " "), strings.Join(parts(taught(policy, policy)), " ")
	if !strings.Contains(copied, " reference ") || strings.Contains(served, " reference ") {
		t.Errorf("a copy: %s\nserved: %s", copied, served)
	}
	if !strings.Contains(served, "log-probabilities from inference.vllm.teacher") {
		t.Errorf("the plan does not name the teacher: %s", served)
	}
}

// The plan checks the block that is the teacher, not each inference block that the trainer refers to.
func TestThePlanKnowsTheTeacher(t *testing.T) {
	t.Parallel()
	policy := model(t, "100")
	loaded := taught(policy, policy)
	loaded.Reference = nil
	for _, c := range []struct {
		config Config
		want   string
	}{{taught(policy, policy), "inference.vllm.teacher"}, {loaded, ""}} {
		if e, _ := (&Trainer{}).Plan(c.config, sdk.Placement{}); e.Facts["teacher"] != c.want {
			t.Errorf("teacher is %q, want %q", e.Facts["teacher"], c.want)
		}
	}
}

func TestATeacherOfOtherWords(t *testing.T) {
	t.Parallel()
	few, many := model(t, "100"), model(t, "128")
	if _, problems := (&Trainer{}).Plan(taught(few, many), sdk.Placement{}); len(problems) > 0 {
		t.Errorf("a padded vocabulary: %v", problems)
	}
	_, problems := (&Trainer{}).Plan(taught(many, few), sdk.Placement{})
	if len(problems) != 1 || problems[0].Warning || spec.PathString(problems[0].Path) != "reference.inference" ||
		!strings.Contains(problems[0].Detail, "100 tokens") {
		t.Errorf("a smaller vocabulary: %v", problems)
	}
}

// A loss that reads no score learns from groups of equal ones, and of one.
func TestATeacherNeedsNoScores(t *testing.T) {
	t.Parallel()
	c := taught("m", "m")
	for name, want := range map[string]string{"distill": "false", "ref_kl": "false", "ppo": ""} {
		c.Loss = &Loss{Name: name}
		e, _ := (&Trainer{}).Plan(c, sdk.Placement{})
		if e.Facts["reads_scores"] != want || (e.Facts["least_group"] == "2") == (want == "false") {
			t.Errorf("%s: %v", name, e.Facts)
		}
	}
}

// The worker gets the address of the teacher when it starts, and its name before.
func TestTheWorkerGetsItsTeacher(t *testing.T) {
	t.Parallel()
	c := taught("m", "m")
	own, _ := worker.Settings(c)["reference"].(map[string]any)
	if own["inference"] != "inference.vllm.teacher" {
		t.Errorf("settings: %v", own)
	}
	known, err := c.teacher()
	if err != nil {
		t.Fatal(err)
	}
	got, _ := known["reference"].(map[string]any)
	if got["url"] != "http://127.0.0.1:1/v1" || got["token"] != "secret" || got["served_model"] != "m" {
		t.Errorf("known at the start: %v", got)
	}
	c.Reference.Inference.Values = cty.EmptyObjectVal
	if _, err := c.teacher(); err == nil || !strings.Contains(err.Error(), "base_url of inference.vllm.teacher") {
		t.Errorf("no address: %v", err)
	}
}
