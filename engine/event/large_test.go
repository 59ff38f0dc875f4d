package event

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestALineOfTooManyValues is refused before its values are decoded, and a long text is read.
func TestALineOfTooManyValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, more string
		refused    bool
	}{
		{name: "a long text", more: `"message":"` + strings.Repeat("{,", largeLine) + `"`},
		{name: "metrics", more: `"metrics":{"a":1` + strings.Repeat(`,"a":1`, 2*mostValues) + `}`, refused: true},
	} {
		dir := t.TempDir()
		line := `{"v":1,"seq":1,"time":"2026-12-01T13:05:51Z","type":"metrics",` + c.more + "}\n"
		if err := os.WriteFile(filepath.Join(dir, "00000000000000000001.jsonl"), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Read(dir, 0, func(Event) error { return nil }); (err != nil) != c.refused {
			t.Errorf("%s is read with %v", c.name, err)
		}
		l, err := Open(dir)
		if err == nil {
			err = l.Close()
		}
		if (err != nil) != c.refused {
			t.Errorf("%s is opened with %v", c.name, err)
		}
	}
}

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
