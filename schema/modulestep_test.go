package schema_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema"
)

// One output of a module behind a computed key or a splat is that output alone: the others are no dependency.
func TestOneOutputBehindAKey(t *testing.T) {
	t.Parallel()
	const used = "inference \"vllm\" \"a\" {\n model = join(\",\", local.ids)\n}\n"
	for _, c := range []struct{ name, repeat, ids, want string }{
		{"for over for_each", `for_each = toset(["r", "b"])`, `[for k in ["r", "b"] : module.m[k].alpha]`, ""},
		{"for over count", `count = 2`, `[for k in [0, 1] : module.m[k].alpha]`, ""},
		{"splat of count", `count = 2`, `module.m[*].alpha`, ""},
		{"attribute splat of count", `count = 2`, `module.m.*.alpha`, ""},
		{"splat of one", ``, `module.m[*].alpha`, ""},
		{"the other output", `for_each = toset(["r", "b"])`, `[for k in ["r", "b"] : module.m[k].charlie]`, "Cycle"},
		{"all outputs", `for_each = toset(["r", "b"])`, `[for k in ["r", "b"] : tostring(module.m[k])]`, "Cycle"},
		{"no such output", `count = 2`, `[for k in [0, 1] : module.m[k].alpa]`, `has no output "alpa"`},
		{"a key of one", ``, `[for k in ["alpha"] : module.m[k].length]`, "Cycle"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, map[string]string{"m/m.hcl": "variable \"up\" {}\noutput \"alpha\" { value = \"a\" }\n" +
				"output \"charlie\" { value = var.up }\n"})
			src := "module \"m\" {\n source = \"./m\"\n " + c.repeat + "\n up = inference.vllm.a.base_url\n}\n" +
				"locals { ids = " + c.ids + " }\n" + used
			_, diags := schema.LoadSource(filepath.Join(dir, "x.hcl"), []byte(src), schema.Options{Plugins: fakePlugins(t)})
			if c.want == "" && diags.HasErrors() || !strings.Contains(details(diags), c.want) {
				t.Errorf("got %q, want %q", details(diags), c.want)
			}
		})
	}
}
