package schema_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema"
)

// Of a set of attributes and blocks a body has exactly one.
func TestExactlyOneOfASet(t *testing.T) {
	t.Parallel()
	config := readingConfig(t)
	config.OneOf = [][]string{{"call", "calls"}}
	config.Attribute("call").Required = false
	const call, calls = "call = \"f.py:f\"\n", "calls {\n function = \"f.py:f\"\n}\n"
	for body, want := range map[string]string{
		call:          "",
		calls:         "",
		calls + calls: "",
		"":            `environment.mine.e expects exactly one of "call" and "calls"; got none of them.`,
		call + calls:  `expects exactly one of "call" and "calls"; got "call" and "calls".`,
		"variable":    "",
	} {
		source := "environment \"mine\" \"e\" {\n" + body + "data = \"a.jsonl\"\n}\n"
		if body == "variable" {
			source = "variable \"f\" { type = string }\n" + strings.Replace(source, body, "call = var.f\n", 1)
		}
		dir := t.TempDir()
		write(t, dir, map[string]string{"f.py": "def f(completions, **kwargs): pass\n", "r.hcl": source,
			"a.jsonl": strings.Repeat("{\"prompt\": \"1\"}\n", 2)})
		file := filepath.Join(dir, "r.hcl")
		_, diags := schema.Load(file, schema.Options{Plugins: readers{config}})
		got := ""
		for _, d := range diags {
			if strings.Contains(d.Summary, "exactly one") {
				got += d.Detail
			}
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", body, got, want)
		}
	}
}
