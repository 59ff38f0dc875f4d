package main

import (
	"context"
	"fmt"
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

// A recipe names nothing that its reader was given open: standard input is the protocol of an editor or an agent.
func TestAModuleIsNoOpenFile(t *testing.T) {
	t.Parallel()
	dir, environ := t.TempDir(), fresh(t)
	for name, source := range map[string]string{"stdin": "/dev/stdin", "descriptor": "/dev/fd/0"} {
		text := fmt.Sprintf("module \"m\" {\n  source = %q\n}\n", source)
		if err := os.WriteFile(filepath.Join(dir, name+".hcl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"stdin", "descriptor"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, "recipe", "validate", name+".hcl")
		cmd.Dir, cmd.Env = dir, environ
		in, err := cmd.StdinPipe() // which stays open
		if err != nil {
			t.Fatal(err)
		}
		out, _ := cmd.CombinedOutput()
		if ctx.Err() != nil || !strings.Contains(string(out), "not a file of a folder") {
			t.Errorf("%s: %v\n%s", name, ctx.Err(), out)
		}
		_ = in.Close()
		cancel()
	}
}

// Completion reads the recipe of the folder where somebody presses TAB, and flags name files that may be anything.
func TestCompletionAndFlagsReadNoPipe(t *testing.T) {
	t.Parallel()
	path, environ := filepath.Join(t.TempDir(), "train.hcl"), fresh(t)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"__complete plan --target |", "__complete output |", "__complete apply --var |",
		"run-api --token-file " + path, "plugin sign oci://127.0.0.1:1/x:1 --key " + path,
		"plugin verify oci://127.0.0.1:1/x:1 --key " + path} {
		args := strings.Fields(line)
		if args[len(args)-1] == "|" {
			args[len(args)-1] = ""
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, "recipe", args...)
		cmd.Dir, cmd.Env = filepath.Dir(path), environ
		out, err := cmd.CombinedOutput()
		if ctx.Err() != nil {
			t.Errorf("%s waits for %s: %v\n%s", line, path, err, out)
		}
		if args[0] != "__complete" && err == nil {
			t.Errorf("%s takes %s\n%s", line, path, out)
		}
		cancel()
	}
}
