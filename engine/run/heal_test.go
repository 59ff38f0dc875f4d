package run_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/state"
)

// A live engine writes its record and its event log again when another program deletes or damages them.
//
//docs:survival.md run.json, run.journal or the newest file of the event log (or the folder events) is …
func TestFilesOfALiveRunAreHealed(t *testing.T) {
	t.Parallel()
	damage := map[string]struct {
		do   func(dir string) error
		text string
	}{
		"events deleted":    {func(d string) error { return os.RemoveAll(filepath.Join(d, "events")) }, "event log"},
		"record emptied":    {func(d string) error { return os.Truncate(filepath.Join(d, "run.json"), 0) }, "overwritten"},
		"record deleted":    {func(d string) error { return os.Remove(filepath.Join(d, "run.json")) }, "was deleted"},
		"journal deleted":   {func(d string) error { return os.Remove(filepath.Join(d, "run.journal")) }, "run.journal"},
		"journal truncated": {func(d string) error { return os.Truncate(filepath.Join(d, "run.journal"), 9) }, "run.journal"},
	}
	for name, c := range damage {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			finish := make(chan struct{})
			f.host.scripts[trainer] = func(p *fakeProcess) { p.ready("running"); <-finish; p.say("completed", "", "") }
			a := f.apply(f.load(wholeLoop))
			f.until("the trainer runs", func() bool {
				rec := f.recordedBlock(trainer)
				return rec != nil && rec.Phase == "ready"
			})
			if err := c.do(string(f.dir)); err != nil {
				t.Fatal(err)
			}
			f.until("it is healed", func() bool {
				h := a.engine.Healed()
				return len(h) == 1 && strings.Contains(h[0].Message, c.text)
			})
			if rec, err := state.Read(f.dir); err != nil || rec.Status != state.Running {
				t.Errorf("the record is %+v, %v", rec, err)
			}
			close(finish)
			if a.wait(); a.err != nil {
				t.Fatal(a.err)
			}
			warned := false
			for i, e := range f.events() {
				if e.Seq != uint64(i+1) {
					t.Fatalf("event %d has number %d", i+1, e.Seq)
				}
				warned = warned || e.Type == event.Notice && e.Level == "warn" && strings.Contains(e.Message, c.text)
			}
			if !warned {
				t.Error("the log has no warning")
			}
		})
	}
}

// An engine whose whole run directory was removed or moved writes nothing at its old path.
//
//docs:survival.md run.json, run.journal or the newest file of the event log (or the folder events) is …
func TestARemovedRunDirectoryIsNotHealed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	e, err := run.Open(t.Context(), run.Options{Dir: f.dir, Name: "r", File: "r.hcl", Host: f.host, Plugins: f.plug})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := os.RemoveAll(string(f.dir)); err != nil {
		t.Fatal(err)
	}
	e.Heal()
	if _, err := os.Stat(string(f.dir)); !os.IsNotExist(err) {
		t.Errorf("the directory is there again: %v", err)
	}
}

// Numbers of events continue when all files of the log were deleted between two engines.
//
//docs:survival.md all files of the event log are deleted between two applies
func TestEventNumbersContinue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	done := func(p *fakeProcess) { p.ready("running"); p.say("completed", "", "") }
	f.host.scripts[trainer] = done
	f.apply(f.load(wholeLoop)).wait()
	first := f.events()
	if err := os.RemoveAll(f.dir.Events()); err != nil {
		t.Fatal(err)
	}
	f.apply(f.load(wholeLoop)).wait()
	if second, last := f.events(), first[len(first)-1].Seq; len(second) == 0 || second[0].Seq+1 < last {
		t.Errorf("the second log begins with %d, the first ended with %d", second[0].Seq, last)
	}
}
