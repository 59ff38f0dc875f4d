package schema_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/parse"
)

func TestWriteGraph(t *testing.T) {
	t.Parallel()
	r, diags := load(t, "testdata/valid/depends_on.hcl")
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	for _, format := range schema.GraphFormats() {
		var out bytes.Buffer
		if err := r.WriteGraph(&out, format); err != nil {
			t.Fatal(err)
		}
		golden(t, filepath.Join("testdata", "graph."+format), out.Bytes())
	}
	if err := r.WriteGraph(&bytes.Buffer{}, "svg"); err == nil || !strings.Contains(err.Error(), "dot, mermaid, json") {
		t.Errorf("an unknown format must be refused with the known ones, got %v", err)
	}
	if err := r.WriteGraph(brokenWriter{}, "dot"); err == nil {
		t.Error("a failing writer must be reported")
	}
	var g schema.Graph
	var out bytes.Buffer
	if err := r.WriteGraph(&out, "json"); err != nil || json.Unmarshal(out.Bytes(), &g) != nil ||
		len(g.Blocks) != len(r.Blocks) {
		t.Errorf("%v %s", err, out.Bytes())
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestGraphQuotesKeys(t *testing.T) {
	t.Parallel()
	r := mustLoad(t, "inference \"vllm\" \"p\" {\n  for_each = [\"a\\\"b\"]\n  model = \"m\"\n}\n")
	for format, want := range map[string]string{"dot": `"inference.vllm.p[\"a\\\"b\"]"`,
		"mermaid": `#quot;a\#quot;b#quot;`} {
		var out bytes.Buffer
		if err := r.WriteGraph(&out, format); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v\n%s", format, err, out.String())
		}
	}
}

func TestFormat(t *testing.T) {
	t.Parallel()
	const messy = "# a comment\ninference   \"vllm\"  \"p\" {\nmodel=\"m\"   # why\n    max_model_len   =  3\n\n\n  " +
		"placement {   gpus=1 }\n}\n"
	const neat = "# a comment\ninference \"vllm\" \"p\" {\n  model         = \"m\" # why\n  max_model_len = 3\n\n\n  " +
		"placement { gpus = 1 }\n}\n"
	if got := string(parse.Format([]byte(messy))); got != neat {
		t.Errorf("got\n%s\nwant\n%s", got, neat)
	}
	for _, paths := range [][]string{valid(t), invalid(t)} {
		for _, path := range paths {
			src, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			once := parse.Format(src)
			if !bytes.Equal(once, parse.Format(once)) {
				t.Errorf("%s: formatting is not idempotent", path)
			}
		}
	}
}

func TestLoadFindsTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, src string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fails := func(path, want string) {
		t.Helper()
		r, diags := schema.Load(path, schema.Options{})
		if !diags.HasErrors() || !strings.Contains(diags.Error(), want) || r == nil || r.Files == nil {
			t.Errorf("%s: got %v, want %q", path, diags, want)
		}
		if r.Lookup(address(t, "trainer.a.b")) != nil {
			t.Error("a recipe that could not be read has no blocks")
		}
	}
	fails(filepath.Join(dir, "nowhere.hcl"), "no recipe at")
	fails(dir, "contains no recipe")
	write("recipe.lock.hcl", "x = 1\n")
	write("prod.vars.hcl", "x = 1\n")
	write("a.test.hcl", "x = 1\n")
	write(".hidden.hcl", "x = 1\n")
	fails(dir, "contains no recipe")
	write("train.hcl", "output \"x\" { value = 1 }\n")
	r, diags := schema.Load(dir, schema.Options{})
	if diags.HasErrors() || r.Name != "train" || r.Dir != dir || r.File != filepath.Join(dir, "train.hcl") {
		t.Errorf("%v %+v", diags, r)
	}
	write("other.hcl", "")
	fails(dir, "several recipes (other.hcl, train.hcl)")
}

func TestLimits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// Each module calls the next one twice: the tree would have 2^16 modules.
	for i := range 17 {
		folder := filepath.Join(dir, "m"+string(rune('a'+i)))
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		next := "../m" + string(rune('b'+i))
		src := "module \"x\" { source = \"" + next + "\" }\nmodule \"y\" { source = \"" + next + "\" }\n"
		if i == 16 {
			src = "output \"o\" { value = 1 }\n"
		}
		if err := os.WriteFile(filepath.Join(folder, "main.hcl"), []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct{ src, want string }{
		"modules":   {"module \"x\" { source = \"./ma\" }\n", "Too many modules"},
		"file":      {strings.Repeat("#\n", 9<<20), "File too large"},
		"operators": {"locals { x = " + strings.Repeat("!", 5000) + "true }\n", "Nested too deep"},
		"nested for": {"locals {\n r = range(500)\n x = [for a in local.r: [for b in local.r: [for c in local.r: " +
			"1]]]\n}\n", "Too many iterations"},
		"setproduct": {"locals {\n r = toset(range(1000))\n x = setproduct(local.r, local.r, local.r)\n}\n",
			"too large"},
		"indent": {"locals { x = indent(999999999, \"a\\nb\") }\n", "too large"},
		"join": {"locals {\n r = [for i in range(1000): \"x\"]\n x = join(format(\"%9999s\", \"\"), local.r)\n}\n",
			"too large"},
		"replace": {"locals {\n a = format(\"%9999s\", \"\")\n x = replace(local.a, \" \", local.a)\n}\n",
			"larger than"},
		"instances": {manyInstances(), "Too many blocks"},
		"dynamic blocks": {"trainer \"grpo\" \"t\" {\n dynamic \"reward\" {\n for_each = 3\n content {}\n }\n}\n",
			"Invalid for_each"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, diags := schema.LoadSource(filepath.Join(dir, "x.hcl"), []byte(c.src),
				schema.Options{Plugins: fakePlugins(t)})
			if !diags.HasErrors() || !strings.Contains(diags.Error()+details(diags), c.want) {
				t.Errorf("got %.300v, want %q", diags, c.want)
			}
		})
	}
}

func manyInstances() string {
	var b strings.Builder
	for i := range 3 {
		b.WriteString("executor \"slurm\" \"e" + string(rune('a'+i)) + "\" { count = 10000 }\n")
	}
	return b.String()
}

// A chain of 20,000 locals: no function may recurse over the length of the recipe.
func TestLongChains(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("locals {\n  l0 = 1\n")
	for i := 1; i <= 20000; i++ {
		b.WriteString("  l" + strconv.Itoa(i) + " = local.l" + strconv.Itoa(i-1) + "\n")
	}
	r, diags := schema.LoadSource("x.hcl", []byte(b.String()+"}\noutput \"o\" { value = local.l20000 }\n"),
		schema.Options{})
	if diags.HasErrors() || text(r.Outputs[0].Value) != "1" {
		t.Fatal(diags)
	}
	_, diags = schema.LoadSource("x.hcl", []byte(strings.Replace(b.String(), "l0 = 1", "l0 = local.l20000", 1)+"}\n"),
		schema.Options{})
	if len(diags) != 1 || diags[0].Summary != "Cycle" {
		t.Fatalf("%d diagnostics", len(diags))
	}
}

func details(diags hcl.Diagnostics) string {
	var b strings.Builder
	for _, d := range diags {
		b.WriteString(d.Summary + ": " + d.Detail + "\n")
	}
	return b.String()
}
