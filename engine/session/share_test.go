package session

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A checkpoint of a run directory that someone else made brings no file of this user into the fork, and no pipe.
func TestAForkTakesOnlyFilesOfTheCheckpoint(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make    func(checkpoint, secret string) error
		refused bool
	}{
		"files": {make: func(dir, _ string) error { return os.Mkdir(filepath.Join(dir, "sub"), 0o700) }},
		"a link inside": {make: func(dir, _ string) error {
			return os.Symlink("weights", filepath.Join(dir, "latest"))
		}},
		"a link out": {make: func(dir, secret string) error {
			return os.Symlink(secret, filepath.Join(dir, "more"))
		}, refused: true},
		"a relative link out": {make: func(dir, _ string) error {
			return os.Symlink("../secret", filepath.Join(dir, "more"))
		}, refused: true},
		"a link to a folder outside": {make: func(dir, secret string) error {
			return os.Symlink(filepath.Dir(secret), filepath.Join(dir, "more"))
		}, refused: true},
		"a link in place of it": {make: func(dir, secret string) error {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			return os.Symlink(secret, dir)
		}, refused: true},
		"a pipe": {make: func(dir, _ string) error {
			return syscall.Mkfifo(filepath.Join(dir, "more"), 0o600)
		}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			from, secret, to := filepath.Join(root, "step-1"), filepath.Join(root, "secret"), filepath.Join(root, "fork")
			if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(from, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(from, "weights"), []byte("w"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := c.make(from, secret); err != nil {
				t.Fatal(err)
			}
			err := share(from, to)
			if refused := err != nil && strings.Contains(err.Error(), "is no file of the checkpoint"); refused != c.refused ||
				err != nil && !refused {
				t.Errorf("got %v, want refused: %v", err, c.refused)
			}
		})
	}
}
