package interpreter_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// Not parallel: it changes the process's environment.
func TestBytecode(t *testing.T) {
	python, packages, want := plugintest.Uncompiled(t)
	torch := filepath.Join(packages, "torch")
	forbidden := []string{"PYTHONDONTWRITEBYTECODE=1"}

	if got := interpreter.Bytecode(python, nil); got != nil {
		t.Errorf("Python writes beside the sources by itself, and is given %v", got)
	}
	got := interpreter.Bytecode(python, forbidden)
	if !maps.Equal(got, map[string]string{"PYTHONPYCACHEPREFIX": want, "PYTHONDONTWRITEBYTECODE": ""}) {
		t.Fatalf("where Python may not write beside the sources it is given %v", got)
	}
	if info, err := os.Stat(want); err != nil || !info.IsDir() {
		t.Errorf("%s is no folder: %v", want, err)
	}
	path := []string{"PYTHONPATH=" + packages, "PYTHONDONTWRITEBYTECODE=1"}
	if got := interpreter.Bytecode("/usr/no/such/python", path); got == nil {
		t.Error("packages of PYTHONPATH are not looked at")
	}
	if got := interpreter.Bytecode(python, append(forbidden, "PYTHONPYCACHEPREFIX=/mine")); got != nil {
		t.Errorf("the user's own folder is replaced: %v", got)
	}
	if got := interpreter.Bytecode(filepath.Join(t.TempDir(), "bin", "python"), forbidden); got != nil {
		t.Errorf("an interpreter without large packages is given %v", got)
	}
	small, others, _ := plugintest.Uncompiled(t)
	if err := os.Rename(filepath.Join(others, "torch"), filepath.Join(others, "sympy")); err != nil {
		t.Fatal(err)
	}
	if got := interpreter.Bytecode(small, forbidden); got == nil {
		t.Error("an interpreter whose largest package is sympy compiles it in each process")
	}

	compiled := filepath.Join(torch, "__pycache__", "__init__.cpython-312.pyc")
	if err := os.MkdirAll(filepath.Dir(compiled), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(compiled, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := interpreter.Bytecode(python, forbidden); got != nil {
		t.Errorf("packages that are compiled are compiled again: %v", got)
	}

	other, _, _ := plugintest.Uncompiled(t)
	home := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", home)
	t.Setenv("HOME", home)
	if err := os.MkdirAll(filepath.Dir(interpreter.CacheDir()), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(interpreter.CacheDir(), nil, 0o600); err != nil { // a folder for it is there, and no use
		t.Fatal(err)
	}
	if got := interpreter.Bytecode(other, forbidden); got != nil {
		t.Errorf("without a cache to write to Python is given %v", got)
	}
}

// A read-only image, and real Python: the second process finds what the first has compiled; the folder of a block can
// be forgotten.
func TestBytecodeOfAReadOnlyImage(t *testing.T) {
	real, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	python, packages, cache := plugintest.Uncompiled(t)
	torch := filepath.Join(packages, "torch")
	forbidden := "PYTHONDONTWRITEBYTECODE=1" // a test may run as root, who can write everywhere
	if os.Getuid() != 0 {
		forbidden = "PYTHONDONTWRITEBYTECODE="
		if err := os.Chmod(torch, 0o555); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(torch, 0o755) })
	}
	env := interpreter.Bytecode(python, []string{forbidden})
	if env == nil {
		t.Fatal("nothing is given for packages that cannot be compiled where they are")
	}
	cmd := exec.CommandContext(t.Context(), real, "-c", "import torch; print(torch.__cached__)")
	cmd.Env = []string{"PYTHONPATH=" + packages}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	kept, _ := filepath.Glob(filepath.Join(cache, torch, "__init__.*.pyc"))
	if len(kept) != 1 {
		t.Fatalf("compiled files in the cache: %q; want one of torch", kept)
	}
	interpreter.ForgetBytecode(packages)
	if _, err := os.Stat(kept[0]); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", kept[0], err)
	}
}
