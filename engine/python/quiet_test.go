package python_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/python"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk"
)

// hostileUV installs packages that run code whenever Python starts with them.
const hostileUV = `#!/bin/sh
case "$*" in
venv*) for last; do :; done; exec "$PYTHON3" -I -m venv --without-pip "$last" ;;
*--compile-bytecode*) echo "uv compiles" >>"$RAN" ;;
esac
while [ "$1" != --python ]; do shift; done
cd "${2%/bin/python}"/lib/python*/site-packages
echo "import os; open('$RAN', 'a').write('pth ')" >hostile.pth
echo "open('$RAN', 'a').write('sitecustomize ')" >sitecustomize.py
mkdir one-1.dist-info
printf 'Metadata-Version: 2.1\nName: one\nVersion: 1\n' >one-1.dist-info/METADATA
`

// Wheels run code without being imported. Neither making an environment of packages that a recipe names nor asking
// about them does.
func TestPackagesRunWhenTheyAreImported(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	own, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	bin, ran := t.TempDir(), filepath.Join(t.TempDir(), "ran")
	if err := os.WriteFile(filepath.Join(bin, "uv"), []byte(hostileUV), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("PYTHON3", own)
	t.Setenv("RAN", ran)
	e := of(t, sdk.Packages{Requirements: []string{"one"}})
	if _, err := (python.Maker{Log: io.Discard, Dir: t.TempDir(), NoBuild: true}).Prepare(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	b := &schema.Block{Meta: decode.Meta{Runtime: &sdk.Runtime{Requirements: []string{"one"}}}}
	ask, folders, ok := python.Quiet(b, e.Executable())
	if !ok || len(folders) != 1 {
		t.Fatalf("it cannot be asked: %q %q", ask, folders)
	}
	lookup := "import sys; sys.path += sys.argv[1:]; import importlib.metadata as m; print(m.version('one'))"
	out, err := exec.Command(ask[0], slices.Concat(ask[1:], []string{"-c", lookup}, folders)...).Output()
	if err != nil || strings.TrimSpace(string(out)) != "1" {
		t.Errorf("asking for the version gives %q, %v", out, err)
	}
	if text, err := os.ReadFile(ran); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a package ran: %q, %v", text, err)
	}
	if compiled, _ := filepath.Glob(filepath.Join(folders[0], "__pycache__", "sitecustomize.*.pyc")); len(compiled) != 1 {
		t.Errorf("compiled files: %q", compiled)
	}
	if use, foreign := python.Foreign(b, e.Executable(), t.TempDir()); !foreign || use.Digest == "" {
		t.Errorf("a plan may start its interpreter: %v", use)
	}
	if err := exec.Command(e.Executable(), "-c", "pass").Run(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(ran); !strings.Contains(string(text), "pth ") ||
		!strings.Contains(string(text), "sitecustomize ") {
		t.Errorf("the trap of this test does not work: %q, %v", text, err)
	}
}
