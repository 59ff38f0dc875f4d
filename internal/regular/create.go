package regular

import (
	"errors"
	"io/fs"
	"os"
)

// Create opens a new file for writing, with the mode 0600. What has the name is removed first, not emptied: it may be a
// link, or a file that has another name elsewhere. flags are added, such as os.O_APPEND.
func Create(path string, flags int) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|flags, 0o600) //nolint:gosec // the caller's path
}

// WriteFile is os.WriteFile by Create.
func WriteFile(path string, content []byte) error {
	f, err := Create(path, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}
