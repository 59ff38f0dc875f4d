package event

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file that is larger than the engine writes any is refused by every reader, before it is read.
func TestAFileLargerThanAnyIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "00000000000000000001.jsonl")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, segmentLimit+1); err != nil { // it takes no room on the disk
		t.Fatal(err)
	}
	none := func(Event) error { return nil }
	for name, read := range map[string]func() error{
		"Read":   func() error { return Read(dir, 0, none) },
		"Follow": func() error { return FollowUntil(t.Context(), dir, 0, none, func() bool { return true }) },
		"Back":   func() error { return Back(dir, Pick{Text: func([]byte) bool { return true }}, none) },
		"Last":   func() error { _, err := Last(dir); return err },
		"Open": func() error {
			l, err := Open(dir)
			if err == nil {
				err = l.Close()
			}
			return err
		},
	} {
		if err := read(); err == nil || !strings.Contains(err.Error(), "expected at most") {
			t.Errorf("%s: %v, expected a refusal", name, err)
		}
	}
}
