package tail

import (
	"errors"
	"fmt"
	"os"
)

// SetAside renames a log of an earlier attempt to PATH.previous, so that what is read of the new one is not about the
// old. A log that does not exist is fine.
func SetAside(path string) error {
	if err := os.Rename(path, path+".previous"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("set the log of an earlier attempt aside: %w", err)
	}
	return nil
}
