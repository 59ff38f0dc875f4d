package doctor

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A question to a trusted interpreter runs no file of the folder that the command is given in.
func TestAnInterpreterImportsNothingOfACheckout(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 in PATH")
	}
	dir := t.TempDir()
	for _, name := range []string{"importlib.py", "json.py", "email.py", "csv.py", "zipfile.py"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("raise SystemExit('of the checkout')\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	found, err := versionsOf(t.Context(), Local(dir), blockPython{path: python}, []string{"no-such-package"})
	if err != nil || found["no-such-package"] != "" || len(found) != 1 {
		t.Errorf("got %v, %v, want one package that is missing", found, err)
	}
}
