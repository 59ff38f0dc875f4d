package schema_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/schema/testfile"
)

// seeds adds every recipe of testdata, and some incomplete ones.
func seeds(f *testing.F) {
	f.Helper()
	for _, paths := range [][]string{valid(f), invalid(f)} {
		for _, path := range paths {
			switch filepath.Base(path) {
			case "iterations.hcl", "laughs.hcl", "long_text.hcl":
				continue // reach the limits, slowly
			}
			src, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(src)
		}
	}
	f.Add([]byte("inference \"vllm\" \"a\" {\n  model = <<EOT\n${"))
	f.Add([]byte("\xff\xfe\x00"))
	f.Add([]byte("x = [for"))
}

// FuzzLoad: no input makes the language panic, hang or lose a diagnostic before it is printed.
func FuzzLoad(f *testing.F) {
	seeds(f)
	plugins := fakePlugins(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		if len(src) > 1<<16 {
			return
		}
		o := schema.Options{Plugins: plugins, Environ: []string{"HF_TOKEN=hf_secret"}}
		r, diags := schema.LoadSource(filepath.Join("testdata", "valid", "fuzz.hcl"), src, o)
		var out bytes.Buffer
		if err := diagnostic.Print(&out, diags, r.Files, diagnostic.Options{Color: true, Width: 40}); err != nil {
			t.Fatal(err)
		}
		if err := diagnostic.WriteJSON(&out, diags, r.Files); err != nil {
			t.Fatal(err)
		}
		for _, d := range diags {
			if d.Summary == "" || d.Detail == "" {
				t.Fatalf("a diagnostic says nothing: %+v", d)
			}
			if d.Severity == hcl.DiagError && d.Subject != nil && d.Subject.Filename == "" {
				t.Fatalf("a diagnostic has no file: %+v", d)
			}
			if d.Subject == nil {
				continue
			}
			if r := diagnostic.RangeOf(*d.Subject); r.Start.Line < 1 || r.Start.Column < 1 || r.End.Line < r.Start.Line ||
				r.End.Line == r.Start.Line && r.End.Column < r.Start.Column || r.End.Byte < r.Start.Byte {
				t.Fatalf("a diagnostic has a range that ends before it starts: %+v", r)
			}
		}
		for _, format := range schema.GraphFormats() {
			if err := r.WriteGraph(&out, format); err != nil {
				t.Fatal(err)
			}
		}
		if diags.HasErrors() {
			return
		}
		for i, b := range r.Blocks {
			if i > 20 {
				break
			}
			if r.Lookup(b.Addr) != b {
				t.Fatalf("%s is not found by its address", b.Addr)
			}
			if _, _, diags := r.Evaluate(b.Addr, nil); diags.HasErrors() {
				t.Fatalf("%s loads but does not evaluate: %v", b.Addr, diags)
			}
		}
		if _, diags := r.EvaluateOutputs(nil); diags.HasErrors() {
			t.Fatal(diags)
		}
	})
}

// FuzzExpression: the console answers anything with a value or a diagnostic.
func FuzzExpression(f *testing.F) {
	for _, src := range []string{"1 + 2", "[for x in range(100) : [for y in range(100) : x * y]]",
		"inference.vllm.policy", "merge({}, {a = 1})", "try(local.x, 3)",
		"format(\"%5.2f%%\", 1/3)", "replace(\"a\", \"/(.)/\", \"$1$1\")", "pow(10, 1e9)", "jsondecode(\"[1,\")",
		"env(\"HF_TOKEN\")", "substr(\"é\", -1, 1)", "\"${upper(\"x\")}%{if true}y%{endif}\""} {
		f.Add(src)
	}
	r, diags := schema.LoadSource("fuzz.hcl", []byte(loop),
		schema.Options{Plugins: fakePlugins(f), Environ: []string{"HF_TOKEN=hf_secret"}})
	if diags.HasErrors() {
		f.Fatal(diags)
	}
	f.Fuzz(func(t *testing.T, src string) {
		if len(src) > 1<<12 {
			return
		}
		v, diags := r.EvaluateExpression(src, nil)
		if !diags.HasErrors() {
			_ = text(v)
		}
	})
}

// FuzzFormat: formatting is idempotent and never changes the meaning of a recipe.
func FuzzFormat(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		if len(src) > 1<<14 {
			return
		}
		once := parse.Format(src)
		if _, diags := schema.LoadSource("x.hcl", src, schema.Options{}); hasSyntaxErrors(diags) {
			return
		}
		if twice := parse.Format(once); !bytes.Equal(once, twice) {
			t.Fatalf("not idempotent:\n%q\n%q\n%q", src, once, twice)
		}
	})
}

func hasSyntaxErrors(diags hcl.Diagnostics) bool { return diags.HasErrors() }

// FuzzLoadTest reads arbitrary test files: no panic, and every error says where it is.
func FuzzLoadTest(f *testing.F) {
	for _, seed := range []string{
		"run \"a\" {\n  command = plan\n  assert {\n    condition = 1 < var.x\n    error_message = \"no\"\n  }\n}\n",
		"variables { x = file(\"a\") }\nmock \"trainer\" \"tiny\" \"t\" { step = 1 }\n",
		"replace \"trainer\" \"grpo\" { with = 3 }\nrun \"a\" {}\n",
		"run \"a\" { continues = \"b\" }\nrun \"a\" { timeout = \"-1s\" }\nrun { expect_error = \"(\" }\n", "run", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, src string) {
		file, diags := testfile.LoadSource("a.test.hcl", []byte(src), nil)
		for _, d := range diags {
			if d.Severity == hcl.DiagError && d.Subject == nil {
				t.Errorf("an error without a place: %v", d)
			}
		}
		if !diags.HasErrors() && len(file.Runs) == 0 {
			t.Error("a test file without a run is an error")
		}
	})
}
