package schema_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"golang.org/x/tools/txtar"

	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// Recipes that are refused are in archives, one for each topic: testdata/invalid/TOPIC.txtar holds NAME.hcl,
// NAME.golden with the diagnostics, and the modules that they use.

// home is the folder of the archives' recipes in golden texts.
var home = filepath.Join("testdata", "invalid")

// notText are the cases that an archive of lines cannot hold: no line break at the end, NUL bytes.
func notText() map[string]string {
	return map[string]string{
		"call_cut_off.hcl": "locals {\n  x = element([\"a\"],",
		"garbage.hcl":      "\x13\x13 \xff\xfe = \x00\n}}}\n\"\"\"\n",
		"utf16.hcl":        "\xff\xfe" + strings.Join(strings.Split("locals {\n  a = 1\n}\n", ""), "\x00") + "\x00",
	}
}

// archives lists the archives of recipes that are refused.
func archives(tb testing.TB) []string {
	tb.Helper()
	found, err := filepath.Glob(filepath.Join(home, "*.txtar"))
	if err != nil || len(found) == 0 {
		tb.Fatalf("no archives in %s: %v", home, err)
	}
	return found
}

// topic is an unpacked archive.
type topic struct {
	path, dir string
	archive   *txtar.Archive
	recipes   []string          // names of its cases, without .hcl
	golden    map[string][]byte // by name of the case
}

func unpack(tb testing.TB, path string) *topic {
	tb.Helper()
	a, err := txtar.ParseFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	t := &topic{path: path, dir: tb.TempDir(), archive: a, golden: map[string][]byte{}}
	files := map[string][]byte{}
	if filepath.Base(path) == "not_text.txtar" {
		for name, src := range notText() {
			files[name] = []byte(src)
		}
	}
	for _, f := range a.Files {
		if name, ok := strings.CutSuffix(f.Name, ".golden"); ok {
			t.golden[name] = f.Data
		} else {
			files[f.Name] = f.Data
		}
	}
	for name, src := range files {
		if err := os.MkdirAll(filepath.Join(t.dir, filepath.Dir(name)), 0o700); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(t.dir, name), src, 0o600); err != nil {
			tb.Fatal(err)
		}
		if !strings.Contains(name, "/") {
			t.recipes = append(t.recipes, strings.TrimSuffix(name, ".hcl"))
		}
	}
	slices.Sort(t.recipes)
	return t
}

// write puts new golden texts into the archive.
func (t *topic) write(tb testing.TB, golden map[string][]byte) {
	tb.Helper()
	var files []txtar.File
	for _, f := range t.archive.Files {
		if strings.HasSuffix(f.Name, ".golden") {
			continue
		}
		files = append(files, f)
		if name := strings.TrimSuffix(f.Name, ".hcl"); golden[name] != nil {
			files = append(files, txtar.File{Name: name + ".golden", Data: golden[name]})
			delete(golden, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(golden)) { // of notText
		files = append(files, txtar.File{Name: name + ".golden", Data: golden[name]})
	}
	t.archive.Files = files
	if err := os.WriteFile(t.path, txtar.Format(t.archive), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// relocate replaces the folder of the recipes in diagnostics by home.
func relocate(diags hcl.Diagnostics, files map[string]*hcl.File, from string) {
	replace := func(s string) string { return strings.ReplaceAll(s, from, home) }
	for _, name := range slices.Collect(maps.Keys(files)) {
		files[replace(name)] = files[name]
	}
	for _, d := range diags {
		d.Summary, d.Detail = replace(d.Summary), replace(d.Detail)
		for _, at := range []**hcl.Range{&d.Subject, &d.Context} {
			if *at != nil {
				moved := **at
				moved.Filename = replace(moved.Filename)
				*at = &moved
			}
		}
	}
}

// TestInvalidRecipes compares the diagnostics of each case of each archive with the golden text.
//
//docs:survival.md "server is not up yet"; misspelled settings are ignored
func TestInvalidRecipes(t *testing.T) {
	t.Parallel()
	for _, path := range archives(t) {
		name := strings.TrimSuffix(filepath.Base(path), ".txtar")
		a := unpack(t, path)
		var mu sync.Mutex
		golden := maps.Clone(a.golden) // cases that -run leaves out keep theirs
		maps.DeleteFunc(golden, func(c string, _ []byte) bool { return !slices.Contains(a.recipes, c) })
		t.Run(name, func(t *testing.T) {
			for _, c := range a.recipes {
				t.Run(c, func(t *testing.T) {
					t.Parallel()
					got := refusal(t, a, c)
					mu.Lock()
					defer mu.Unlock()
					golden[c] = got
					if want := a.golden[c]; !*update && !bytes.Equal(got, want) {
						t.Errorf("%s: %s.golden (run the tests with -update to write it):\n--- got\n%s\n--- want\n%s", path, c, got, want)
					}
				})
			}
		})
		if *update {
			a.write(t, golden)
		}
	}
}

// refusal is the printed diagnostics of a case.
func refusal(t *testing.T, a *topic, name string) []byte {
	t.Helper()
	r, diags := load(t, filepath.Join(a.dir, name+".hcl"))
	if !diags.HasErrors() {
		t.Error("expected errors, got none")
	}
	relocate(diags, r.Files, a.dir)
	var out bytes.Buffer
	if err := diagnostic.Print(&out, diags, r.Files, diagnostic.Options{Width: 100}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "hunter2") && name != "sensitive_value_hidden" {
		t.Error("a secret is shown")
	}
	return out.Bytes()
}

// invalid unpacks the recipes of all archives and returns their paths.
func invalid(tb testing.TB) (paths []string) {
	tb.Helper()
	for _, path := range archives(tb) {
		a := unpack(tb, path)
		for _, name := range a.recipes {
			paths = append(paths, filepath.Join(a.dir, name+".hcl"))
		}
	}
	return paths
}
