package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSettingsOfEverybodyAreRefused: they name programs that a command runs without a question.
func TestSettingsOfEverybodyAreRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.hcl")
	if err := os.WriteFile(path, []byte("pass_environment = [\"A\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]string{0o600: "", 0o664: "", 0o666: "chmod o-w"} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		s, err := readSettings([]string{"RECIPE_CONFIG=" + path})
		switch {
		case want == "" && (err != nil || len(s.PassEnvironment) != 1):
			t.Errorf("settings with mode %s: %v, %v", mode, s, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("settings with mode %s: %v, expected %q", mode, err, want)
		}
	}
	if _, err := readSettings([]string{"RECIPE_CONFIG=/dev/null"}); err != nil {
		t.Errorf("no settings: %v", err)
	}
}
