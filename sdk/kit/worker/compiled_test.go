package worker

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

// Torch runs what it finds among compiled code, so its place is none that another user can make.
func TestCompiledCodeHasAPlaceOfThisUser(t *testing.T) {
	var w Trainer[struct{}]
	w.req.Dir = t.TempDir()
	cache := t.TempDir()
	if runtime.GOOS != "linux" {
		t.Skip("XDG_CACHE_HOME is Linux's")
	}
	file := filepath.Join(cache, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ cache, own, want string }{
		{cache, "", filepath.Join(cache, "recipe", "torch")},
		{file, "", filepath.Join(w.req.Dir, "compiled")}, // no folder can be made there
		{cache, "/mine", "/mine"},
	} {
		t.Setenv("XDG_CACHE_HOME", c.cache)
		t.Setenv("HOME", c.cache)
		t.Setenv(compiledVariable, c.own)
		want := compiledVariable + "=" + c.want
		if got := w.environ("python"); !slices.Contains(got, want) {
			t.Errorf("cache %s, variable %q: %s is not in %q", c.cache, c.own, want, got)
		}
	}
}
