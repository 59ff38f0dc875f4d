package schema_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
)

func TestMoved(t *testing.T) {
	t.Parallel()
	const block = "inference \"vllm\" \"%s\" {\n model = \"m\"\n}\n"
	declared := func(names ...string) string {
		var b strings.Builder
		for _, n := range names {
			b.WriteString(strings.Replace(block, "%s", n, 1))
		}
		return b.String()
	}
	moved := func(from, to string) string { return "moved {\n from = " + from + "\n to = " + to + "\n}\n" }
	for _, c := range []struct {
		name, src string
		at, now   string // a recorded address, and where it is; empty: where it was
		want      string // a diagnostic
	}{
		{name: "name", src: declared("b") + moved("inference.vllm.a", "inference.vllm.b"), at: "inference.vllm.a",
			now: "inference.vllm.b"},
		{name: "chain", src: declared("c") + moved("inference.vllm.b", "inference.vllm.c") +
			moved("inference.vllm.a", "inference.vllm.b"), at: "inference.vllm.a", now: "inference.vllm.c"},
		{name: "key", src: declared("b") + moved(`inference.vllm.a["x"]`, "inference.vllm.b"), at: `inference.vllm.a["x"]`,
			now: "inference.vllm.b"},
		{name: "in each instance of a module", at: `module.m["y"].inference.vllm.old`,
			now: `module.m["y"].inference.vllm.new`,
			src: "module \"m\" {\n source = \"./m\"\n for_each = toset([\"x\", \"y\"])\n}\n"},
		{name: "module", src: "module \"n\" {\n source = \"./m\"\n}\n" + moved("module.m", "module.n"),
			at: "module.m.inference.vllm.new", now: "module.n.inference.vllm.new"},
		{name: "still declared", src: declared("a", "b") + moved("inference.vllm.a", "inference.vllm.b"),
			want: "inference.vllm.a is declared at"},
		{name: "circle", src: moved("inference.vllm.a", "inference.vllm.b") + moved("inference.vllm.b", "inference.vllm.a"),
			want: "lead from inference.vllm.a back"},
		{name: "twice", src: declared("b", "c") + moved("inference.vllm.a", "inference.vllm.b") +
			moved("inference.vllm.a", "inference.vllm.c"), want: "inference.vllm.a is already moved at"},
		{name: "another plugin", src: moved("inference.vllm.a", "inference.tiny.a"), want: "Invalid move"},
		{name: "in quotes", src: moved(`"inference.vllm.a"`, "inference.vllm.b"), want: "without quotes"},
		{name: "an expression", src: moved("inference.vllm.a[var.x]", "inference.vllm.b"), want: "Invalid address"},
		{name: "no address", src: moved("inference.vllm", "inference.vllm.b"), want: "expected KIND.PLUGIN.NAME"},
		{name: "no end", src: "moved {\n from = inference.vllm.a\n}\n", want: "needs from and to"},
		{name: "another attribute", src: "moved {\n form = inference.vllm.a\n to = inference.vllm.b\n}\n",
			want: `"form"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, map[string]string{"m/m.hcl": declared("new") +
				moved("inference.vllm.old", "inference.vllm.new")})
			r, diags := schema.LoadSource(filepath.Join(dir, "x.hcl"), []byte(c.src), schema.Options{Plugins: fakePlugins(t)})
			if c.want == "" && diags.HasErrors() || !strings.Contains(details(diags), c.want) {
				t.Fatalf("got %q, want %q", details(diags), c.want)
			}
			if c.want != "" {
				return
			}
			at, err := addr.Parse(c.at)
			if err != nil {
				t.Fatal(err)
			}
			if to, ok := r.Move(at); !ok || to.String() != c.now {
				t.Errorf("%s is at %s (%v), want %s", at, to, ok, c.now)
			}
		})
	}
}
