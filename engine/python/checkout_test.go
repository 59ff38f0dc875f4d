package python

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/interpreter"
)

// uv is installed by a Python that is started in the recipe's folder, where "venv" may be a stranger's code.
func TestUvIsInstalledWithoutTheFoldersModules(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	said := filepath.Join(bin, "said")
	script := "#!/bin/sh\necho \"$@\" >" + said + "\nexit 1\n"
	if err := os.WriteFile(filepath.Join(bin, "python3"), []byte(script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	_, err := Maker{Log: t.Output(), Dir: dir}.uv(t.Context())
	text, _ := os.ReadFile(said)
	if err == nil || !strings.HasPrefix(string(text), "-I -m venv") {
		t.Errorf("got %q, %v, want python3 -I -m venv, which fails", text, err)
	}
}

// uv takes a name for a folder with an interpreter where there is one, and runs that.
func TestANameOfAnInterpreterIsNoFolder(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	ran := filepath.Join(bin, "ran")
	if err := os.WriteFile(filepath.Join(bin, "uv"), []byte("#!/bin/sh\n: >"+ran+"\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	if err := os.Mkdir(filepath.Join(dir, "3.12"), 0o700); err != nil {
		t.Fatal(err)
	}
	e := interpreter.Environment{Dir: filepath.Join(t.TempDir(), "made"), Python: "3.12"}
	_, err := Maker{Log: t.Output(), Dir: dir}.Prepare(t.Context(), e)
	if _, missing := os.Stat(ran); err == nil || !strings.Contains(err.Error(), "beside the recipe") || missing == nil {
		t.Errorf("got %v, want a refusal before uv is run", err)
	}
}
