package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A run writes into none of its files that has a second name, as in a backup of hard links: lines are added to logs,
// and the index of trajectories is a database. Nothing else in the backup changes.
func TestARunEmptiesNoSecondName(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	w.recipe("apply", "-y", "--var", "steps=10", "quickstart.hcl")
	run, backup := filepath.Join(w.dir, ".recipe", "quickstart"), t.TempDir()
	kept := map[string][]byte{}
	keep := func(rel string) {
		to := filepath.Join(backup, strings.ReplaceAll(rel, "/", "_"))
		err := os.Link(filepath.Join(run, rel), to)
		if err == nil {
			kept[to], err = os.ReadFile(to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, next := range []string{ // what the next life makes
		"blocks/environment.arithmetic.sums/tasks.json.new",
		"samples/trajectories.builtin.default/00000002.zst",
		"trajectories/trajectories.builtin.default/reserve",
	} {
		if err := os.WriteFile(filepath.Join(run, next), []byte("own"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(run, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			rel, _ := filepath.Rel(run, path)
			keep(rel)
		}
		return err
	})
	if err != nil || len(kept) < 20 {
		t.Fatalf("%d files, %v", len(kept), err)
	}
	w.recipe("apply", "-y", "--var", "steps=20", "quickstart.hcl")
	for path, before := range kept {
		if now, err := os.ReadFile(path); err != nil || !bytes.HasPrefix(now, before) {
			t.Errorf("%s had %d bytes and has %d others (%v)", filepath.Base(path), len(before), len(now), err)
		}
	}
}

// An evaluation records its samples in no folder that a link in the run directory leads to, and removes none there.
func TestAnEvaluationWritesThroughNoLink(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	w.recipe("apply", "-y", "--var", "steps=10", "quickstart.hcl")
	record, elsewhere := filepath.Join(w.dir, ".recipe", "quickstart", "samples"), t.TempDir()
	err := os.RemoveAll(record)
	if err == nil {
		err = os.Symlink(elsewhere, record)
	}
	if err != nil {
		t.Fatal(err)
	}
	out := w.recipe("evaluate", "environment.arithmetic.sums", "-r", "quickstart.hcl", "--samples", "1", "--limit", "2")
	if !strings.Contains(out, "not recorded: check the run directory: refused") || !strings.Contains(out, "pass@1") {
		t.Errorf("it says %s", out)
	}
	if entries, err := os.ReadDir(elsewhere); err != nil || len(entries) > 0 {
		t.Errorf("elsewhere are %v, %v", entries, err)
	}
}

// Records of blocks that are larger than recipe writes any are not read, sparse ones on an empty disk included.
func TestHugeRecordsOfBlocksAreNotRead(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	w.recipe("apply", "-y", "--var", "steps=10", "quickstart.hcl")
	blocks := filepath.Join(w.dir, ".recipe", "quickstart", "blocks")
	huge := func(name string) {
		path := filepath.Join(blocks, name)
		f, err := os.Create(path)
		if err == nil {
			err = errors.Join(f.Truncate(1<<42), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	huge("environment.arithmetic.sums/registered.json")
	w.recipe("apply", "-y", "--var", "steps=20", "quickstart.hcl")
	huge("sync.weights.policy/last.json")
	out, err := w.command("apply", "-y", "--var", "steps=30", "quickstart.hcl").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "has more than 67108864 bytes") ||
		strings.Contains(string(out), "goroutine") {
		t.Errorf("%v: %.2000s", err, out)
	}
}
