package schema_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// losses is one trainer plugin with a nested block that names a function of the user.
type losses struct{ config *spec.Schema }

func (l losses) Lookup(k kind.Kind, name string) (*schema.PluginSchema, error) {
	if k != kind.Trainer {
		return nil, nil //nolint:nilnil // as the interface requires
	}
	return &schema.PluginSchema{Kind: k, Name: name, Config: l.config, Outputs: &spec.Schema{}}, nil
}

func (l losses) Names(kind.Kind) []string { return []string{"mine"} }

func codeRecipe(t *testing.T, dir, reference string) (*schema.Recipe, string) {
	t.Helper()
	type loss struct {
		Import string `recipe:"import" code:"python" change:"resume"`
	}
	config, err := spec.Of(struct {
		Loss *loss `recipe:"loss,block"`
	}{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "r.hcl")
	source := "trainer \"mine\" \"policy\" {\n  loss { import = " + `"` + reference + `"` + " }\n}\n"
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	r, diags := schema.Load(file, schema.Options{Plugins: losses{config}})
	var text []string
	for _, d := range diags {
		text = append(text, d.Summary+": "+d.Detail)
	}
	return r, strings.Join(text, "\n")
}

func imported(t *testing.T, r *schema.Recipe) string {
	t.Helper()
	return r.Blocks[0].Value.GetAttr("loss").GetAttr("import").AsString()
}

func TestAChangedFileIsAChangedAttribute(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "mine.py"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("def mine(t, o):\n    return -t.adv * t.lp\n")
	before, problems := codeRecipe(t, dir, "mine.py:mine")
	if problems != "" {
		t.Fatal(problems)
	}
	code, err := spec.ParseCode(imported(t, before))
	if err != nil || code.File != "mine.py" || code.Function != "mine" || len(code.Digest) != 64 {
		t.Fatalf("%+v, %v", code, err)
	}
	same, _ := codeRecipe(t, dir, "mine.py:mine")
	if imported(t, same) != imported(t, before) || same.Digest != before.Digest {
		t.Error("nothing has changed, and the attribute or the recipe's digest differs")
	}
	write("def mine(t, o):\n    return -2 * t.adv * t.lp\n")
	after, _ := codeRecipe(t, dir, "mine.py:mine")
	if imported(t, after) == imported(t, before) || after.Digest == before.Digest {
		t.Error("the file has changed, and the attribute or the recipe's digest is the same")
	}
	if _, problems := codeRecipe(t, dir, imported(t, before)); !strings.Contains(problems, "File has changed") {
		t.Errorf("a digest in the recipe must hold: %q", problems)
	}
	absolute, problems := codeRecipe(t, dir, filepath.Join(dir, "mine.py")+":mine")
	if problems != "" || absolute.Blocks[0].Value.GetAttr("loss").GetAttr("import").Type() != cty.String {
		t.Errorf("an absolute path: %s", problems)
	}
}

func TestFunctionsThatAreNotThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source := "import functools\n\ndef clipped(t, o):\n    def inner(x):\n        return x\n    return inner(t.lp)\n\n" +
		"half: object = functools.partial(clipped)\n_own = 1\n"
	if err := os.WriteFile(filepath.Join(dir, "mine.py"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	for reference, want := range map[string]string{
		"mine.py:clipped":     "",
		"mine.py:half":        "",
		"mine.py:cliped":      `mine.py defines no cliped at its top level. It has clipped, half. Did you mean "clipped"?`,
		"mine.py:_own":        "Not a function: \"import\" in loss: _own of mine.py is 1, which cannot be called. Name",
		"mine.py:inner":       "defines no inner at its top level",
		"other.py:mine":       "there is no file other.py (paths are relative to the folder of the recipe, " + dir + ")",
		"othr.py:mine":        "There is mine.py.",
		"min.py:clipped":      `Did you mean "mine.py"?`,
		"/nowhere/mine.py:f":  "File not found",
		"../mine.py:clipped":  "is outside the folder of the recipe",
		"mine.py":             "Not a function in a file",
		"mine.txt:clipped":    `expects a function in a Python file like "my_loss.py:my_loss"; got "mine.txt:clipped"`,
		"mine.py:clipped(t)":  "Not a function in a file",
		"/dev/../mine.py:mod": "File not found",
	} {
		_, problems := codeRecipe(t, dir, reference)
		if (want == "") != (problems == "") || !strings.Contains(problems, want) {
			t.Errorf("%s: %q, want %q", reference, problems, want)
		}
	}
}
