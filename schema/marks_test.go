package schema_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// Whatever an expression makes of a sensitive value is sensitive: an output of it must say so.
func TestMarksSurviveOperations(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{
		`var.s`, `"x${var.s}"`, `"%{if var.s == "k"}a%{endif}"`, `"%{for x in [var.s]}${x}%{endfor}"`,
		`[var.s]`, `[var.s][0]`, `{ a = var.s }.a`, `{ (var.s) = 1 }`, `{ "x${var.s}" = 1 }`,
		`{ k = 1 }[var.s]`, `{ k = { j = 1 } }[var.s].j`, `{ k = { k = 1 } }[var.s][var.s]`, `local.o[var.s]`,
		`tomap({ k = 1 })[var.s]`, `[1, 2][var.n]`, `tolist([1, 2])[var.n]`, `local.o[{ k = "k" }[var.s]]`,
		`jsondecode("{\"k\": 1}")[var.s]`, `[{ k = 1 }][*][var.s]`, `[{ k = 1 }].*.k[var.n]`,
		`[for x in [var.s] : { k = 1 }[x]]`, `[for x in ["k"] : { k = 1 }[var.s]]`, `{ for x in ["a"] : var.s => x }`,
		`[for x in ["a"] : x if var.s == "k"]`, `(var.s)`, `(local.o)[var.s]`,
		`var.s == "k"`, `var.s != "k"`, `!(var.s == "k")`, `var.s == "k" ? 1 : 2`, `true ? var.s : "x"`,
		`var.n + 1`, `1 - var.n`, `var.n * 2`, `2 / (var.n + 1)`, `var.n % 2`, `-var.n`, `var.n < 1`, `var.n >= 1`,
		`var.n == 0 && true`, `var.n == 1 || false`, `[var.s]...`[:7], `max([var.n, 2]...)`,
		`lookup({ k = 1 }, var.s, 0)`, `try({ k = 1 }[var.s], 0)`, `can({ k = 1 }[var.s])`, `keys({ (var.s) = 1 })`,
		`can({ j = 1 }[var.s])`, `try({ j = 1 }[var.s], 0)`, `try({ j = 1 }[var.s], { k = 2 }[var.s], 0)`,
	} {
		source := "variable \"s\" {\n type = string\n sensitive = true\n}\n" +
			"variable \"n\" {\n type = number\n default = 0\n sensitive = true\n}\n" +
			"locals {\n o = { k = 1 }\n}\noutput \"x\" {\n value = " + expression + "\n}\n"
		_, diags := schema.LoadSource("x.hcl", []byte(source), schema.Options{Environ: []string{"RECIPE_VAR_s=k"}})
		if text := diags.Error(); !strings.Contains(text, "Sensitive output") {
			t.Errorf("%s: %v, want that the output is sensitive", expression, diags)
		}
	}
}

// A value is not sensitive because another one, which was not used, is.
func TestMarksOfUnusedValues(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{`{ k = 1 }["k"]`, `try(1, var.s)`, `can(1)`, `{ k = 1, s = var.s }["k"]`,
		`{ k = 1, s = var.s }[local.k]`, `nonsensitive({ k = 1 }[var.s])`} {
		source := "variable \"s\" {\n type = string\n sensitive = true\n}\nlocals {\n k = \"k\"\n}\n" +
			"output \"x\" {\n value = " + expression + "\n}\n"
		if _, diags := schema.LoadSource("x.hcl", []byte(source),
			schema.Options{Environ: []string{"RECIPE_VAR_s=k"}}); diags.HasErrors() {
			t.Errorf("%s: %v", expression, diags)
		}
	}
}

// What is written as the value of a sensitive variable is in no quoted line, wherever it is written.
func TestSensitiveTextIsNotQuoted(t *testing.T) {
	t.Parallel()
	const secret = "topsecretvalue"
	declared := "variable \"s\" {\n type = string\n sensitive = true\n}\n" +
		"variable \"e\" {\n type = string\n default = \"a\"\n sensitive = true\n validation {\n" +
		"  condition = contains([\"a\"], var.e)\n  error_message = \"must be a\"\n }\n}\n"
	for _, c := range []struct{ name, recipe, file, text string }{
		{name: "variable file, type", recipe: declared, file: "x.vars.hcl", text: "s = [\"" + secret + "\"]"},
		{name: "variable file, validation", recipe: declared, file: "x.vars.hcl",
			text: "s = \"x\"\ne = \"" + secret + "\""},
		{name: "variable file, several lines", recipe: declared, file: "x.vars.hcl",
			text: "s = [\n  \"" + secret + "\",\n]"},
		{name: "JSON", recipe: declared, file: "x.json", text: `{"s": ["` + secret + `"]}`},
		{name: "argument of a module", recipe: "module \"m\" {\n source = \"./m\"\n k = \"" + secret + "\"\n}\n"},
		{name: "default", recipe: "variable \"d\" {\n type = number\n sensitive = true\n default = \"" + secret + "\"\n}\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write := func(name, text string) string {
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				return path
			}
			write("m/m.hcl", "variable \"k\" {\n type = number\n sensitive = true\n}\n")
			var files []string
			if c.file != "" {
				files = []string{write(c.file, c.text)}
			}
			r, diags := schema.Load(write("r.hcl", c.recipe), schema.Options{VarFiles: files})
			if !diags.HasErrors() {
				t.Fatal("there is no error")
			}
			var text strings.Builder
			if err := diagnostic.Print(&text, diags, r.Files, diagnostic.Options{Width: 100}); err != nil {
				t.Fatal(err)
			}
			if err := diagnostic.WriteJSON(&text, diags, r.Files); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(text.String(), secret) || !strings.Contains(text.String(), "***") {
				t.Errorf("printed:\n%s", text.String())
			}
		})
	}
}

// An error that names a single character of a secret is not shown.
func TestVerbOfASecretIsNotPrinted(t *testing.T) {
	t.Parallel()
	for _, call := range []string{`format("%${var.cred}", 1)`, `format(var.cred, 1)`, `formatlist("%${var.cred}", [1])`} {
		source := "variable \"cred\" {\n type = string\n sensitive = true\n}\nlocals {\n x = " + call + "\n}\n"
		_, diags := schema.LoadSource("x.hcl", []byte(source), schema.Options{Environ: []string{"RECIPE_VAR_cred=zq%y"}})
		if text := diags.Error(); !strings.Contains(text, "Its error is not shown") {
			t.Errorf("%s: %s", call, text)
		}
	}
}
