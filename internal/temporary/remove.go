package temporary

import (
	"errors"
	"io/fs"
	"os"
)

// Remove removes a folder with all that is in it, as os.RemoveAll does, and also what lies in folders whose owner, this
// user, has no right to read or to change them: a program may have taken these rights away.
func Remove(path string) error {
	err := os.RemoveAll(path)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if open(path) != nil {
		return err
	}
	return os.RemoveAll(path)
}

// open gives this user the rights to all folders in a folder. No link leads out of it.
func open(path string) error {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return err
	}
	if err := os.Chmod(path, 0o700); err != nil { //nolint:gosec // the owner's rights
		return err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = root.Chmod(name, 0o700) // what stays closed is not removed, and named
		}
		return nil
	})
}
