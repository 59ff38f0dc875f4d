package plugintest

import (
	"os"
	"path/filepath"
	"testing"
)

// Uncompiled makes an interpreter whose packages lie there as sources only, in an image whose variables forbid Python
// to compile them there, and a user's cache that is empty. It gives the interpreter's path, the folder of its packages
// and the one that programs keep compiled files in instead. It changes the process's environment.
func Uncompiled(t *testing.T) (python, packages, cache string) {
	t.Helper()
	root, home := t.TempDir(), t.TempDir()
	packages = filepath.Join(root, "lib", "python3.12", "site-packages")
	torch := filepath.Join(packages, "torch")
	if err := os.MkdirAll(torch, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(torch, "__init__.py"), []byte("x = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", home)
	t.Setenv("HOME", home) // where the cache is on macOS
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	t.Setenv("PYTHONPYCACHEPREFIX", "")
	user, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "bin", "python"), packages, filepath.Join(user, "recipe", "pycache")
}
