package state

import (
	"path/filepath"
	"testing"
)

// TestALockWhereNamesAreNotCounted: there are file systems whose files never have one name.
func TestALockWhereNamesAreNotCounted(t *testing.T) {
	t.Parallel()
	f, err := takeIf(filepath.Join(t.TempDir(), "lock"), func(string) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
