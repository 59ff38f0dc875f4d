package alert

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/schema/decode"
)

// A notification has the alert's name and text as plain arguments; where there is no notify-send, nothing fails.
func TestADesktopIsNotified(t *testing.T) {
	// not parallel: it sets an environment variable
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	a := decode.Alert{Name: "-fell", Desktop: true, Timeout: time.Minute}
	m := Message{Text: "$(touch planted) reward fell"}
	if err := deliver(t.Context(), a, m); err != nil {
		t.Errorf("without notify-send: %v", err)
	}
	seen := filepath.Join(dir, "seen")
	script := "#!/bin/sh\nprintf '%s\\n' \"$#\" \"$@\" >" + seen + "\n"
	//nolint:gosec // a program
	if err := os.WriteFile(filepath.Join(dir, "notify-send"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := deliver(t.Context(), a, m); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(seen)
	if want := "3\n--\nrecipe: -fell\n$(touch planted) reward fell\n"; err != nil || string(got) != want {
		t.Errorf("notify-send was called with %q, %v, expected %q", got, err, want)
	}
}
