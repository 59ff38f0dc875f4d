package schema_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/parse"
)

// The name of a recipe's file becomes that of the run's folder, unless the recipe has a name.
func TestAFileWithALongNameNeedsAnotherForItsRun(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		file, src string
		long      bool
	}{
		{strings.Repeat("a", 200) + ".hcl", "", false},
		{strings.Repeat("a", 201) + ".hcl", "", true},
		{strings.Repeat("é", 34) + ".hcl", "", true},
		{strings.Repeat("é", 34) + ".hcl", `recipe { name = "short" }`, false},
	} {
		_, diags := schema.LoadSource(test.file, []byte(test.src), schema.Options{})
		if got := strings.Contains(diags.Error(), "Name of the file too long"); got != test.long {
			t.Errorf("%s with %q: got %v", test.file, test.src, diags)
		}
	}
}

// Blocks are told their folders as UTF-8: found out when they start, it would be their failure.
func TestAPathThatIsNoUTF8IsRefused(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "darwin" {
		t.Skip("its file systems make no such names")
	}
	dir := filepath.Join(t.TempDir(), "caf\xe9")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.hcl"), []byte("recipe {\n  name = \"a\"\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, filepath.Join(dir, "a.hcl")} {
		_, diags := schema.Load(path, schema.Options{Plugins: fakePlugins(t)})
		if !diags.HasErrors() || !strings.Contains(diags[0].Detail, `caf\xe9/a.hcl" is not UTF-8`) {
			t.Errorf("got %v; want its path", diags)
		}
	}
}

// Where such a name is printed, it would make lines of its own.
func TestAPathWithALineBreakIsRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a\nforged")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("this file system makes no such names: %v", err)
	}
	for name, text := range map[string]string{"a.hcl": "", "a.test.hcl": "", "b\nforged.hcl": ""} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := parse.ReadFile(path); err == nil || strings.Contains(err.Error(), "\n") ||
			!strings.Contains(err.Error(), "rename the file or folder") {
			t.Errorf("%q: got %v; expected to be asked for another name", path, err)
		}
	}
}
