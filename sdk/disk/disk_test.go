package disk_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/recipe-rl/recipe/sdk/disk"
)

func TestFull(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{syscall.ENOSPC: true, syscall.EDQUOT: true, syscall.EFBIG: false,
		syscall.EIO: false, syscall.EACCES: false} {
		wrapped := fmt.Errorf("writing: %w", &os.PathError{Op: "write", Path: "x", Err: err})
		if got := disk.Full(wrapped); got != want {
			t.Errorf("Full(%v) = %v, want %v", err, got, want)
		}
	}
	if disk.Full(nil) {
		t.Error("no error is no full disk")
	}
}

func TestFreeOfAPathThatDoesNotExistYet(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "b")
	if n, err := disk.Free(path); err != nil || n == 0 {
		t.Errorf("free: %d, %v", n, err)
	}
	if text := disk.Waiting(path, syscall.ENOSPC); !strings.Contains(text, path) || !strings.Contains(text, "B free") {
		t.Errorf("it says %q", text)
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for n, want := range map[uint64]string{0: "0 bytes", 999: "999 bytes", 1000: "1.0 kB", 1_250_000: "1.2 MB",
		3_000_000_000: "3.0 GB"} {
		if got := disk.Size(n); got != want {
			t.Errorf("Size(%d) = %q, want %q", n, got, want)
		}
	}
}
