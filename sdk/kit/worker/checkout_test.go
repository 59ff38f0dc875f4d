package worker_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/recipe-rl/recipe/sdk/kit/worker"
)

// A plan asks a program about its settings, and runs no file of the folder that the command is given in.
func TestACheckImportsNothingOfACheckout(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 in PATH")
	}
	dir := t.TempDir()
	for _, name := range []string{"json.py", "strict.py"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("raise SystemExit('of the checkout')\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	source := fstest.MapFS{"strict.py": {Mode: 0o600, Data: []byte("import json, sys\njson.dump([], sys.stdout)\n")}}
	if problems, err := worker.Check(t.Context(), python, "strict", source, nil); err != nil || len(problems) != 0 {
		t.Errorf("got %v, %v, want no problem", problems, err)
	}
}
