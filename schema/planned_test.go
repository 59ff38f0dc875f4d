package schema_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/input"
)

const plannedRecipe = `
variable "steps" { type = number }
variable "any" { default = toset(["b", "a"]) }
variable "shape" {
  type    = object({ rank = optional(number, 8), name = optional(string) })
  default = {}
}
variable "none" {
  type    = string
  default = null
}
variable "full" {
  type    = string
  default = null
}
variable "text" {
  type    = string
  default = "$${x} %%{y}"
}
variable "token" {
  type      = string
  sensitive = true
}
variable "key" { default = env("KEY") }
variable "quiet" {
  default   = "unseen"
  sensitive = true
}
`

// A saved plan has every value that is not secret, and needs the given ones that are again.
func TestPlannedValues(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "vars.hcl")
	if err := os.WriteFile(file, []byte("token = \"hunter22\"\nfull = \"x\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	load := func(o schema.Options) (*schema.Recipe, string) {
		r, diags := schema.LoadSource("x.hcl", []byte(plannedRecipe), o)
		if diags.HasErrors() {
			return r, diags.Error()
		}
		return r, ""
	}
	environ := []string{"KEY=hunter23", "RECIPE_VAR_steps=3"}
	first, problem := load(schema.Options{Environ: environ, VarFiles: []string{file}})
	if problem != "" {
		t.Fatal(problem)
	}
	planned, err := first.Planned()
	if err != nil {
		t.Fatal(err)
	}
	stored, err := json.Marshal(planned)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"hunter", "unseen"} {
		if strings.Contains(string(stored), secret) {
			t.Errorf("the plan contains %s: %s", secret, stored)
		}
	}
	var read map[string]input.Planned
	if err := json.Unmarshal(stored, &read); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		options schema.Options
		digest  bool
		problem string
	}{
		"a secret is missing": {schema.Options{Planned: read, Environ: environ}, false, "RECIPE_VAR_token"},
		"the secret is given by --var": {schema.Options{Planned: read, Environ: environ[:1],
			Vars: map[string]input.Value{"token": {Raw: "hunter22"}}}, true, ""},
		"the environment says otherwise": {schema.Options{Planned: read, Environ: []string{"KEY=hunter23",
			"RECIPE_VAR_steps=4", "RECIPE_VAR_text=other", "RECIPE_VAR_none=other",
			"RECIPE_VAR_token=hunter22"}}, true, ""},
		"another secret": {schema.Options{Planned: read, Environ: environ,
			Vars: map[string]input.Value{"token": {Raw: "other"}}}, false, ""},
		"--var says otherwise": {schema.Options{Planned: read, Environ: environ, VarFiles: []string{file},
			Vars: map[string]input.Value{"steps": {Raw: "4"}}}, false, ""},
		"a damaged plan": {schema.Options{Planned: map[string]input.Planned{"steps": {Type: []byte(`"number"`),
			Value: []byte(`"x"`)}}, Environ: environ, VarFiles: []string{file}}, false, "make a new plan"},
	} {
		r, problem := load(c.options)
		if (problem == "") != (c.problem == "") || !strings.Contains(problem, c.problem) {
			t.Errorf("%s: got the error %q, want one with %q", name, problem, c.problem)
		}
		if problem == "" && (r.Digest == first.Digest) != c.digest {
			t.Errorf("%s: the digest is the same: %t", name, !c.digest)
		}
	}
}

// What continues a run gives each value as --var reads it.
func TestArgumentOfAVariable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ typ, value, want string }{
		{"string", `"a b"`, "a b"},
		{"number", "1.5", "1.5"},
		{"list(string)", `["$${x}"]`, `["$${x}"]`},
		{"map(number)", "{ a = 1 }", "{\n  a = 1\n}"},
	} {
		src := "variable \"x\" {\n type = " + c.typ + "\n default = " + c.value + "\n}\n"
		r, diags := schema.LoadSource("x.hcl", []byte(src), schema.Options{})
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		got := r.Variables[0].Argument()
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.typ, got, c.want)
		}
		again, diags := schema.LoadSource("x.hcl", []byte(src),
			schema.Options{Vars: map[string]input.Value{"x": {Raw: got}}})
		if diags.HasErrors() || again.Digest != r.Digest {
			t.Errorf("%s: %q is read as another value: %v", c.typ, got, diags)
		}
	}
}
