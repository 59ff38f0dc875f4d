package regular

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// What has the name of a new file is not written to: what a link leads to, and a file's other name, stay as they are.
func TestANewFileReplacesWhatIsThere(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(path, other string) error{
		"nothing":               func(string, string) error { return nil },
		"a file":                func(path, _ string) error { return os.WriteFile(path, []byte("longer than new"), 0o666) },
		"a link":                func(path, other string) error { return os.Symlink(other, path) },
		"a link to nothing":     func(path, other string) error { return os.Symlink(other+"none", path) },
		"a second name":         func(path, other string) error { return os.Link(other, path) },
		"a pipe with no reader": func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
			err := errors.Join(os.WriteFile(other, []byte("own"), 0o600), put(path, other))
			if err == nil {
				err = WriteFile(path, []byte("new"))
			}
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]string{path: "new", other: "own"} {
				if text, err := os.ReadFile(name); err != nil || string(text) != want {
					t.Errorf("%s: %q, %v; want %q", name, text, err, want)
				}
			}
			if info, err := os.Lstat(path); err != nil || info.Mode() != 0o600 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
			if _, err := os.Lstat(other + "none"); err == nil {
				t.Error("a file was made through a link")
			}
		})
	}
}
