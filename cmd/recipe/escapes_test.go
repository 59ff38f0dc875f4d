package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// What a recipe says is printed by validate, which runs nothing of it: it must not act on the terminal either.
func TestARecipeControlsNoTerminal(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	recipe := `variable "steps" {
  default = 1
  validation {
    condition     = var.steps > 1
    error_message = "\u001b]52;c;cm0gLXJm\u0007\u001b[2K\u001b[1A\u009b2J\u202e looks well"
  }
}
`
	if err := os.WriteFile(filepath.Join(w.dir, "hostile.hcl"), []byte(recipe), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := w.command("validate", "hostile.hcl")
	cmd.Env = append(cmd.Env, "TERM=xterm-256color", "NO_COLOR=1")
	terminal, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	_, _ = out.ReadFrom(terminal) // ends with an error when the other side is closed
	_ = terminal.Close()
	if err := cmd.Wait(); err == nil {
		t.Error("it passed")
	}
	if text := out.String(); strings.ContainsAny(text, "\x1b\u009b\u202e\a") || !strings.Contains(text, "looks well") {
		t.Errorf("got %q", text)
	}
}
