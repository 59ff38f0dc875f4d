package disk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/recipe-rl/recipe/internal/disk"
	"github.com/recipe-rl/recipe/internal/disk/disktest"
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

func TestRetryWaitsForRoom(t *testing.T) {
	t.Parallel()
	dir := disktest.Small(t, 1<<20)
	room := disktest.Fill(t, dir)
	var reported []string
	tries := 0
	err := disk.Retry(t.Context(), dir, func(text string) {
		if reported = append(reported, text); text != "" {
			room()
		}
	}, func() error {
		tries++
		return os.WriteFile(filepath.Join(dir, "x"), make([]byte, 8192), 0o600)
	})
	if err != nil || tries != 2 || len(reported) != 2 || !strings.Contains(reported[0], "0 bytes free") ||
		reported[1] != "" {
		t.Errorf("%v after %d tries; reported %q", err, tries, reported)
	}
}

func TestRetryEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	err := disk.Retry(ctx, t.TempDir(), func(string) { cancel(io.EOF) },
		func() error { return disk.NoRoom("no room for checkpoint 7") })
	if !errors.Is(err, io.EOF) || !disk.Full(err) || !strings.Contains(err.Error(), "checkpoint 7") {
		t.Errorf("it ended with %v", err)
	}
}
