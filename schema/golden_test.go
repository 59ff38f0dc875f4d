package schema_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/input"
)

var update = flag.Bool("update", false, "write the golden files anew")

// caseOptions reads `# var: name=value`, `# var-file: path` and `# environ: NAME=value` lines at the top of a test
// file.
func caseOptions(tb testing.TB, src []byte) schema.Options {
	tb.Helper()
	o := schema.Options{Plugins: fakePlugins(tb), Vars: map[string]input.Value{},
		Environ: []string{"HF_TOKEN=hf_secret", "HOME=/home/user"}}
	for line := range strings.Lines(string(src)) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# var: "); ok {
			name, value, _ := strings.Cut(rest, "=")
			o.Vars[name] = input.Value{Raw: value, Source: "--var"}
		}
		if rest, ok := strings.CutPrefix(line, "# var-file: "); ok {
			o.VarFiles = append(o.VarFiles, rest)
		}
		if rest, ok := strings.CutPrefix(line, "# environ: "); ok {
			o.Environ = append(o.Environ, rest)
		}
	}
	return o
}

// valid lists the recipes that load without an error.
func valid(tb testing.TB) []string {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "valid", "*.hcl"))
	if err != nil || len(files) == 0 {
		tb.Fatalf("no cases in testdata/valid: %v", err)
	}
	return files
}

func load(tb testing.TB, path string) (*schema.Recipe, hcl.Diagnostics) {
	tb.Helper()
	src, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return schema.Load(path, caseOptions(tb, src))
}

// golden compares got with the golden file, or writes it.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run the tests with -update to write it)", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s:\n--- got\n%s\n--- want\n%s", path, got, want)
	}
}
