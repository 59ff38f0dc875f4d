package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/internal/objectstore/storetest"
)

// A trainer whose checkpoints are neither on this machine nor in its store does not start at step 0 by itself. Not
// parallel, for the keys in the process's environment.
//
//docs:survival.md the recorded checkpoint of a trainer is gone (deleted, or its disk is not mounted)
func TestLostCopiesAreNoNewStart(t *testing.T) {
	s := storetest.New(t)
	quickstart, err := os.ReadFile(filepath.Join(repository, "recipes", "quickstart.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	text := strings.Replace(string(quickstart), `trainer "tiny" "policy" {`,
		"trainer \"tiny\" \"policy\" {\n  save_every = 2\n  store = \""+s.URL+"\"\n", 1)
	if err := os.WriteFile(filepath.Join(dir, "q.hcl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	lose := "rm -r .recipe/q/checkpoints/trainer.tiny.policy; "
	for _, c := range []struct {
		name, script, want string
		empty, fails       bool
	}{
		{name: "the first apply", script: "recipe apply -y --var steps=4 q.hcl", want: "step 4"},
		{name: "copies in the store", script: lose + "recipe apply -y --var steps=6 q.hcl", want: "step 5:"},
		{name: "no copies", script: lose + "recipe apply -y --var steps=8 q.hcl", empty: true, fails: true,
			want: "the checkpoint of step 6 is neither in"},
		{name: "from scratch", script: "recipe apply -y --from-scratch --var steps=8 q.hcl", want: "step 1:"},
	} {
		if c.empty {
			for _, name := range s.Names() {
				s.Change(name, nil)
			}
		}
		out, err := shell(t, dir, c.script)
		if (err != nil) != c.fails || !strings.Contains(out, c.want) {
			t.Fatalf("%s: %v, expected %q:\n%s", c.name, err, c.want, out)
		}
	}
}
