package atropos

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/chat"
)

func TestPlanTellsTheChatTemplate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte("A"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		config         Config
		template, from string
		renders        string
	}{
		"its own tokenizer":   {Config{Tokenizer: dir, ServerType: "vllm"}, chat.Digest("A"), dir, "true"},
		"that of inference":   {Config{ServerType: "vllm"}, "", "", "true"},
		"not on this machine": {Config{Tokenizer: "org/m", ServerType: "sglang"}, "", "", "true"},
		"the server renders":  {Config{ServerType: "openai"}, "", "", "false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, problems := (&Environment{}).Plan(c.config, sdk.Placement{})
			if f := e.Facts; f["chat_template"] != c.template || f["chat_template_from"] != c.from ||
				f["renders_chat"] != c.renders || len(problems) > 0 {
				t.Errorf("facts %v, problems %v, want template %q from %q, renders_chat %s", f, problems, c.template, c.from,
					c.renders)
			}
		})
	}
}
