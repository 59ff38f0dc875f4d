package host_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/host"
)

// A run of an earlier version may have recorded a block whose folder no file system can hold. Nothing runs in it, so it
// can be destroyed.
func TestAFolderWithTooLongANameHoldsNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 300))
	if err := host.Sweep(context.Background(), dir, nil); err != nil {
		t.Errorf("end what runs in it: %v", err)
	}
	if _, err := host.Reattach(context.Background(), dir, nil); !errors.Is(err, host.ErrNoRecord) {
		t.Errorf("reattach: got %v, want ErrNoRecord", err)
	}
}

// A path that is too long as a whole says nothing about what is in it.
func TestAPathThatIsTooLongIsNoAbsence(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat(strings.Repeat("x", 200)+string(os.PathSeparator), 30), "block")
	if err := host.Sweep(context.Background(), dir, nil); err == nil {
		t.Error("no error")
	}
}
