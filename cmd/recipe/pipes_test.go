package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A named pipe in a stranger's folder holds no command up, and so a link to a device feeds none without end: validate,
// an editor and an agent read these files of any folder that is opened.
func TestAPipeOfAFolderHoldsNothingUp(t *testing.T) {
	t.Parallel()
	environ := fresh(t)
	for _, c := range []struct{ pipe, recipe string }{
		{"words.py", "train.hcl"}, {"program", "train.hcl"}, {"pyproject.toml", "train.hcl"},
		{"program.schema.json", "train.hcl"}, {"mod/main.hcl", "train.hcl"}, {"kc.yaml", "known.hcl"},
		{"model/config.json", "python.hcl"}, {"model/tokenizer_config.json", "python.hcl"},
		{"model/chat_template.jinja", "python.hcl"}, {"pkg/pyproject.toml", "packages.hcl"},
	} {
		t.Run(c.pipe, func(t *testing.T) {
			t.Parallel()
			dir, _ := strangersFolder(t)
			path := filepath.Join(dir, c.pipe)
			_ = os.Remove(path)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mkfifo(path, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, line := range []string{"plan", "plan --trust all", "plugin list -r", "trust lock -o ../lock.json"} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				cmd := exec.CommandContext(ctx, "recipe", append(strings.Fields(line), c.recipe)...)
				cmd.Dir, cmd.Env = dir, environ
				out, err := cmd.CombinedOutput()
				if ctx.Err() != nil {
					t.Errorf("%s waits for the pipe: %v\n%s", line, err, out)
				}
				cancel()
			}
		})
	}
}
