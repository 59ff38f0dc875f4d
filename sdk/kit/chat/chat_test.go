package chat

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		want  Templates
		named bool
		wrong string
	}{
		"no folder":   {nil, Templates{}, false, ""},
		"no template": {map[string]string{"tokenizer_config.json": `{"eos_token":"x"}`}, Templates{}, false, ""},
		"null": {map[string]string{"tokenizer_config.json": `{"chat_template":null}`}, Templates{}, false,
			""},
		"text": {map[string]string{"tokenizer_config.json": `{"chat_template":"A"}`},
			Templates{"default": "A"}, false, ""},
		"list": {map[string]string{"tokenizer_config.json": `{"chat_template":[{"name":"default","template":"A"},{"name":"tool_use","template":"B"}]}`}, Templates{"default": "A", "tool_use": "B"}, true, ""},
		"object": {map[string]string{"tokenizer_config.json": `{"chat_template":{"default":"A","rag":"C"}}`},
			Templates{"default": "A", "rag": "C"}, true, ""},
		"object of one": {map[string]string{"tokenizer_config.json": `{"chat_template":{"default":"A"}}`},
			Templates{"default": "A"}, true, ""},
		"file": {map[string]string{"chat_template.jinja": "F"}, Templates{"default": "F"}, false, ""},
		"file over text": {map[string]string{"chat_template.jinja": "F",
			"tokenizer_config.json": `{"chat_template":"A"}`}, Templates{"default": "F"}, false, ""},
		"further files": {map[string]string{"chat_template.jinja": "F",
			"additional_chat_templates/tool_use.jinja": "T"}, Templates{"default": "F", "tool_use": "T"}, true, ""},
		"number": {map[string]string{"tokenizer_config.json": `{"chat_template":3}`}, nil, false,
			"must be a text, a list"},
		"no JSON": {map[string]string{"tokenizer_config.json": `{`}, nil, false, "tokenizer_config.json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "model[1]") // also a name with the form of a pattern
			for file, text := range c.files {
				path := filepath.Join(dir, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, named, err := Of(dir)
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Fatalf("got %v, want an error with %q", err, c.wrong)
				}
				return
			}
			if err != nil || !maps.Equal(got, c.want) || named != c.named {
				t.Errorf("got %v, named %v, %v, want %v, named %v", got, named, err, c.want, c.named)
			}
		})
	}
}

func TestDigests(t *testing.T) {
	t.Parallel()
	if Digest("A\n") != Digest("A") || Digest("A") == Digest("B") || len(Digest("A")) != 12 {
		t.Error("a digest names the text, without the blank space at its ends")
	}
	both := Templates{"default": "A", "tool_use": "B", "rag": "A"}.Digests()
	if n := len(strings.Fields(both)); n != 2 || !strings.Contains(both, Digest("B")) {
		t.Errorf("digests %q, want one a text", both)
	}
	if got := (Templates{}).Digests(); got != "" {
		t.Errorf("no template has the digest %q", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"chat_template":[{"name":"default","template":"A"}]}`))
	f.Add([]byte(`{"chat_template":{"a":1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if found, _, err := parse(data); err == nil && found == nil {
			t.Error("neither templates nor an error")
		}
	})
}
