package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/internal/objectstore/storetest"
)

// TestAForkOfARunInAStore loses a machine but not its store, and begins another run with what is there. Not parallel,
// for the keys in the process's environment.
//
//docs:lineage.md Forks
func TestAForkOfARunInAStore(t *testing.T) {
	s := storetest.New(t)
	quickstart, err := os.ReadFile(filepath.Join(repository, "recipes", "quickstart.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, store string) {
		t.Helper()
		text := strings.Replace(string(quickstart), `trainer "tiny" "policy" {`,
			"trainer \"tiny\" \"policy\" {\n  save_every = 2\n  store = \""+store+"\"\n", 1)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(script string) (string, bool) {
		t.Helper()
		out, err := shell(t, dir, script)
		return out, err == nil
	}
	expect := func(fine bool, script string, says ...string) {
		t.Helper()
		out, ok := run(script)
		for _, text := range says {
			ok = ok == fine && strings.Contains(out, text)
			if !ok {
				t.Fatalf("%s\n%s\nexpected %q", script, out, text)
			}
			ok = fine
		}
		if ok != fine {
			t.Fatalf("%s: %t\n%s", script, ok, out)
		}
	}
	write("first.hcl", s.URL)
	write("second.hcl", s.URL)
	write("third.hcl", s.URL)
	expect(true, "recipe apply --auto-approve --var steps=6 first.hcl && rm -r .recipe")
	names := s.Names()
	folder := ""
	for _, name := range names {
		if strings.HasSuffix(name, "run.json") {
			folder = strings.TrimSuffix(strings.TrimPrefix(name, "some/folder/"), "/run.json")
		}
	}
	address := func(below string) string {
		return "'" + strings.Replace(s.URL, "/some/folder", "/some/folder/"+below, 1) + "'"
	}

	expect(false, "recipe fork -r "+address("")+" nowhere.hcl", "a store has no recipes to copy")
	expect(false, "recipe fork --at 3 -r "+address("")+" second.hcl",
		"no checkpoint of step 3; it has checkpoints of steps [2 4 6]")
	expect(true, "recipe fork --at 4 -r "+address(folder)+" second.hcl",
		"Fetches the checkpoint of step 4 of trainer.tiny.policy", "trainer.tiny.policy of second.hcl continues from step 4")
	expect(true, "sed -i.old s/3e-4/1e-4/ second.hcl && recipe plan --var steps=8 second.hcl", "1 to resume",
		"learning_rate = 0.0003 → 0.0001")
	expect(true, "recipe apply --auto-approve --var steps=8 second.hcl && recipe lineage second.hcl",
		"(first), trainer.tiny.policy at step 4")
	steps, _ := run(`recipe logs --json -r second.hcl | grep '"type":"metrics","address":"trainer' | head -n 1`)
	if !strings.Contains(steps, `"step":5,`) {
		t.Errorf("the fork did not continue after step 4:\n%s", steps)
	}

	expect(false, "recipe fork -r "+address("")+" third.hcl", "has checkpoints of 2 runs; name one of", folder)
	for _, name := range names {
		if strings.Contains(name, "step-00000006") && !strings.HasSuffix(name, ".json") {
			s.Change(name, func(b []byte) []byte { b[9]++; return b })
		}
	}
	expect(false, "recipe fork -r "+address(folder+"/step-00000006.tiny")+" third.hcl", "is damaged")
	expect(true, "recipe fork -r "+address(folder)+" third.hcl", "is damaged", "third.hcl continues from step 4")
}
