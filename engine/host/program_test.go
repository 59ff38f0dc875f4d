package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A program whose file was removed under a live run starts blocks from the running one, or names the missing file.
//
//docs:survival.md the program file is removed while a run is live (a package upgrade, make clean)
func TestARemovedProgramIsFound(t *testing.T) {
	t.Parallel()
	here, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(t.TempDir(), "recipe")
	at := func(path string) func() (string, error) { return func() (string, error) { return path, nil } }
	if got, err := program(at(here), "/proc/self/exe"); err != nil || got != here {
		t.Errorf("got %q, %v, want %q", got, err, here)
	}
	if got, err := program(at(gone), here); err != nil || got != here {
		t.Errorf("got %q, %v, want the running program %q", got, err, here)
	}
	if got, err := program(at(gone), gone); err == nil || !strings.Contains(err.Error(), gone+" is gone") {
		t.Errorf("got %q, %v, want an error that names %s", got, err, gone)
	}
}
