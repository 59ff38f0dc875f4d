package private

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// WriteFile replaces or creates the file at path, with mode 0600: after a crash or a power failure it has the old or
// the new content, never a part.
func WriteFile(path string, content []byte) error {
	dir := filepath.Dir(path)
	// renameio.WriteFile would keep the permissions of a file that was open to others.
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(dir), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() { _ = f.Cleanup() }()
	if _, err = f.Write(content); err == nil {
		err = f.CloseAtomicallyReplace()
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return SyncDir(dir)
}

// SyncDir syncs a folder: the names of files that were created, renamed or removed.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("syncing %s: %w", dir, err)
	}
	err = cmp.Or(d.Sync(), d.Close())
	if err != nil && !errors.Is(err, os.ErrInvalid) {
		return fmt.Errorf("syncing %s: %w", dir, err)
	}
	return nil
}
