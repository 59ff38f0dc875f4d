package main

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
)

// A run makes its own secrets: a key, and from it two tokens per block. Its files and output contain none of them,
// except for the key's own file.
func TestTokensOfAQuickstartRunAreFoundNowhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join(repository, "recipes", "quickstart.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "quickstart.hcl"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	command := func(args ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "recipe", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("recipe %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		said.Write(out)
	}
	command("apply", "-y", "--var", "steps=5", "quickstart.hcl")
	for _, args := range [][]string{{"status"}, {"status", "--json"}, {"logs"}, {"logs", "--json"}, {"show", "--json"},
		{"output", "--json"}} {
		command(args...)
	}
	run := state.Dir(filepath.Join(dir, ".recipe", "quickstart"))
	secrets := map[string]string{}
	for _, block := range []string{"trajectories.builtin.default", "inference.tiny.policy",
		"environment.arithmetic.sums", "trainer.tiny.policy", "sync.weights.policy"} {
		a, err := addr.Parse(block)
		if err != nil {
			t.Fatal(err)
		}
		for _, purpose := range []string{"data", "control"} {
			token, err := run.Token(purpose, a, 0)
			if err != nil {
				t.Fatal(err)
			}
			secrets[purpose+" token of "+block] = token
		}
	}
	key, err := os.ReadFile(filepath.Join(string(run), "key"))
	if err != nil {
		t.Fatal(err)
	}
	secrets["key"] = string(key)
	search := func(where string, text []byte) {
		for name, secret := range secrets {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s holds the %s", where, name)
			}
		}
	}
	search("what the commands say", said.Bytes())
	files, blocks := 0, 0
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || path == filepath.Join(string(run), "key") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		if strings.Contains(path, "/blocks/") {
			blocks++
		}
		search(path, text)
		return nil
	})
	if err != nil || files < 10 || blocks < 5 {
		t.Errorf("%d files were searched, %d of blocks: %v", files, blocks, err)
	}
}
