package private

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// WriteFile replaces the file at path, or makes it, with mode 0600: after a crash or a power cut there is the old
// content or the new, never a part. A mode that was looser is tightened.
func WriteFile(path string, content []byte) error {
	dir := filepath.Dir(path)
	err := renameio.WriteFile(path, content, 0o600, renameio.WithTempDir(dir), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return SyncDir(dir)
}

// SyncDir puts the names in a folder on the disk: those of files that were made, renamed or removed.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("syncing %s: %w", dir, err)
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	if err != nil && !errors.Is(err, os.ErrInvalid) {
		return fmt.Errorf("syncing %s: %w", dir, err)
	}
	return nil
}
