package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

//docs:survival.md a chat template that is a list crashes
func TestChatTemplateThatIsAList(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "tokenizer_config.json", `{"chat_template":[{"name":"default","template":"A"},{"name":"tool_use","template":"B"}]}`)
	for name, want := range map[string]string{"": "A", "default": "A", "tool_use": "B"} {
		path, err := ChatTemplate{Name: name}.File(dir, dir, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); string(got) != want {
			t.Errorf("template %q is %q, want %q", name, got, want)
		}
	}
	if _, err := (ChatTemplate{Name: "rag"}).File(dir, dir, dir); err == nil || !strings.Contains(err.Error(), `"rag"`) {
		t.Errorf("got %v, want an error that names the template", err)
	}
	put(t, dir, "tokenizer_config.json", `{"chat_template":{"default":"C"}}`)
	if _, err := (ChatTemplate{Name: "rag"}).File("org/m", dir, dir); err == nil ||
		!strings.Contains(err.Error(), "cannot be looked up") {
		t.Errorf("a template by its name, of a model that is on the hub: %v", err)
	}
	path, err := ChatTemplate{}.File(dir, dir, t.TempDir())
	if got, _ := os.ReadFile(path); err != nil || string(got) != "C" {
		t.Errorf("a dict gave %q, %v; want C", got, err)
	}
	put(t, dir, "tokenizer_config.json", `{"chat_template":"one"}`)
	if path, err := (ChatTemplate{}).File(dir, dir, dir); err != nil || path != "" {
		t.Errorf("a single template gave %q, %v; want none to be passed", path, err)
	}
	literal := ChatTemplate{Text: "{{ messages }}"}
	if path, err := literal.File(dir, dir, dir); err != nil || filepath.Base(path) != "chat_template.jinja" {
		t.Errorf("a literal template gave %q, %v", path, err)
	}
}
