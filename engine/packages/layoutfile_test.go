package packages

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestAPipeInALayoutHoldsNothingUp: a layout may come with a checkout.
func TestAPipeInALayoutHoldsNothingUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tarred := filepath.Join(dir, "x.tar")
	err := errors.Join(os.WriteFile(filepath.Join(dir, "oci-layout"), []byte("{}"), 0o600),
		syscall.Mkfifo(filepath.Join(dir, "index.json"), 0o600), syscall.Mkfifo(tarred, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, tarred} {
		done := make(chan error, 1)
		go func() { done <- CheckLayout(path) }()
		select {
		case err := <-done:
			if err == nil {
				t.Errorf("%s is a layout", path)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s holds the command up", path)
		}
	}
}
