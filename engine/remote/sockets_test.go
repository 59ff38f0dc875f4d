package remote

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/recipe-rl/recipe/internal/temporary"
)

// The sockets that lead to plugins of jobs are of use to one engine: their folder goes with it, or, since it is locked,
// with the next engine of any run when that engine was killed.
func TestTheFolderOfSocketsGoesWithItsEngine(t *testing.T) {
	t.Parallel()
	h := New(t.TempDir(), "run-1", 0)
	folder, err := h.socketFolder()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := h.socketFolder(); err != nil || again != folder {
		t.Errorf("the second folder is %s, %v; want %s", again, err, folder)
	}
	if longest := len(folder) + len("/0123456789abcdef"); longest > 103 {
		t.Errorf("the path of a socket in %s has %d bytes; the limit is 103", folder, longest)
	}
	if _, err := os.Lstat(filepath.Join(folder, temporary.LockName)); err != nil {
		t.Error(err)
	}
	h.Close()
	if _, err := os.Lstat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the end of the engine: %v", err)
	}
}
