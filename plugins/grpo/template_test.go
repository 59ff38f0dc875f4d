package grpo

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/chat"
	"github.com/recipe-rl/recipe/sdk/kit/worker"
)

// Checkpoints hold every template of the model's tokenizer, so the plan gets all of them.
func TestPlanTellsTheChatTemplates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "tokenizer_config.json")
	if err := os.WriteFile(path, []byte(`{"chat_template":[{"name":"default","template":"A"},{"name":"tool_use","template":"B"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	e, problems := (&Trainer{}).Plan(Config{Common: worker.Common{Model: dir}}, sdk.Placement{})
	want := chat.Templates{"default": "A", "tool_use": "B"}.Digests()
	if e.Facts["chat_template"] != want || e.Facts["chat_template_from"] != dir || len(problems) > 0 {
		t.Errorf("facts %v, problems %v, want the templates %s", e.Facts, problems, want)
	}
	remote := Config{Common: worker.Common{Model: "org/m"}}
	if e, _ := (&Trainer{}).Plan(remote, sdk.Placement{}); e.Facts["chat_template"] != "" {
		t.Errorf("facts %v of a model that is not on this machine", e.Facts)
	}
	if err := os.WriteFile(path, []byte(`{`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, problems := (&Trainer{}).Plan(Config{Common: worker.Common{Model: dir}}, sdk.Placement{}); len(problems) != 1 {
		t.Errorf("problems %v of a tokenizer whose settings are no JSON", problems)
	}
}

func TestPlanTellsWhatItTakesAndPublishes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config Config
		want   [3]string
	}{
		"nothing set": {Config{Common: worker.Common{Model: "org/m"}}, [3]string{"processed", "float32", "float32"}},
		"16 bits": {Config{Common: worker.Common{Model: "org/m"}, Compute: &Compute{Dtype: "bfloat16"}},
			[3]string{"processed", "bfloat16", "bfloat16"}},
		"rounded": {Config{Common: worker.Common{Model: "org/m", PublishDtype: "bfloat16"}},
			[3]string{"processed", "float32", "bfloat16"}},
		"raw": {Config{Common: worker.Common{Model: "org/m"}, Correction: &Correction{LogprobsMode: "raw"}},
			[3]string{"raw", "float32", "float32"}},
	} {
		e, _ := (&Trainer{}).Plan(c.config, sdk.Placement{})
		if got := [3]string{e.Facts["logprobs_mode"], e.Facts["dtype"], e.Facts["publish_dtype"]}; got != c.want {
			t.Errorf("%s: facts %v, want %v", name, got, c.want)
		}
	}
}
