package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/kit/chat"
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

func TestFormatsOfTheTemplateInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "tokenizer_config.json", `{"chat_template":"{% if tools %}[TOOL_CALLS]"}`)
	file := filepath.Join(dir, "other.jinja")
	put(t, dir, "other.jinja", "{% if tools %}<|im_start|><tool_call><think>")
	tests := []struct {
		name            string
		template        ChatTemplate
		file, tokenizer string
		want            Formats
		fact            string
	}{
		{"the tokenizer's own", ChatTemplate{}, "", dir, Formats{Tools: chat.Mistral}, "mistral"},
		{"a file", ChatTemplate{Text: file}, file, dir, Formats{chat.Hermes, chat.Qwen3}, "hermes"},
		{"inline", ChatTemplate{Text: "{% if tools %}<|python_tag|>"}, "", dir, Formats{Tools: chat.Llama3}, "llama3"},
		{"on the hub", ChatTemplate{}, "", "Qwen/Qwen3-8B", Formats{chat.Hermes, chat.Qwen3}, "hermes"},
		{"on the hub, unknown", ChatTemplate{}, "", "org/m", Formats{}, ""},
		{"a format of its own", ChatTemplate{Text: "{% if tools %}@@"}, "", dir, Formats{}, "unknown"},
		{"no tools", ChatTemplate{Text: "{{ messages }}"}, "", dir, Formats{}, "none"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.template.formats(tc.file, tc.tokenizer); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			facts, err := tc.template.Facts(tc.tokenizer)
			if err != nil || facts["tool_calls"] != tc.fact {
				t.Errorf("the plan knows %q, %v; want %q", facts["tool_calls"], err, tc.fact)
			}
		})
	}
}

func TestParserOfABlock(t *testing.T) {
	t.Parallel()
	names := map[chat.Format]string{chat.Llama3: "llama3_json"}
	tests := []struct {
		name, setting string
		format        chat.Format
		want          string
	}{
		{"auto", Auto, chat.Llama3, "llama3_json"},
		{"auto, a format that the engine cannot read", Auto, chat.Hermes, ""},
		{"auto, unknown", Auto, "", ""},
		{"none", None, chat.Llama3, ""},
		{"named", "mine", chat.Llama3, "mine"},
		{"not set", "", chat.Llama3, ""},
	}
	for _, tc := range tests {
		if got := Parser(tc.setting, tc.format, names); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestPlanNamesToolCallsThatNobodyReads(t *testing.T) {
	t.Parallel()
	names := map[chat.Format]string{chat.Llama3: "llama3_json"}
	tests := []struct {
		name, setting string
		format        chat.Format
		note          bool
	}{
		{"read", Auto, chat.Llama3, false},
		{"no tools", Auto, "none", false},
		{"the template is not here", Auto, "", false},
		{"a format that nobody knows", Auto, "unknown", true},
		{"a format that this engine does not know", Auto, chat.Hermes, true},
		{"named", "mine", "unknown", false},
		{"refused on purpose", None, chat.Hermes, false},
	}
	for _, tc := range tests {
		s := Spec{Title: "engine", ToolCallParser: tc.setting, ToolParsers: names}
		if got := s.toolNote(tc.format); (got != "") != tc.note {
			t.Errorf("%s: got %q", tc.name, got)
		}
	}
}
