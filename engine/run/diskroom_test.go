package run_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/disk/disktest"
	blockevent "github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
)

// onSmallDisk is a fixture whose run directory is on a small disk of its own.
func onSmallDisk(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t)
	f.root = disktest.Small(t, 512<<10)
	f.dir = state.DirOf(f.root, "r")
	return f
}

// While the disk is full a run continues: orders are answered, events are kept, no block is started. With room again
// the record and the log are complete and in order, and waiting blocks start.
//
//docs:survival.md the disk is full (no room, or the user's quota)
func TestAFullDiskIsWaitedFor(t *testing.T) {
	t.Parallel()
	f := onSmallDisk(t)
	const steps = 300
	tell, finish := make(chan struct{}), make(chan struct{})
	f.host.scripts[trainer] = func(p *fakeProcess) {
		p.ready("running")
		p.emit(blockevent.Checkpoint{CheckpointInfo: sdk.CheckpointInfo{Path: "/c/1", Step: 1, Version: 1}})
		<-tell
		for i := range int64(steps) {
			p.emit(blockevent.Metrics{Step: i, Values: map[string]float64{"reward": 0.5}})
		}
		for range 100 { // more than the rest of a page of the record holds
			p.emit(blockevent.Checkpoint{CheckpointInfo: sdk.CheckpointInfo{Path: "/c/2", Step: 2, Version: 2}})
		}
		p.emit(blockevent.Checkpoint{CheckpointInfo: sdk.CheckpointInfo{Path: "/c/3", Step: 3, Version: 3}})
		<-finish
		p.say(sdk.Completed, "", "")
	}
	src := strings.Replace(wholeLoop, `model = "m"`, "model = \"m\"\n restart { delay = \"1ms\" }\n", 1)
	a := f.apply(f.load(src))
	f.until("the first checkpoint is recorded", func() bool {
		rec := f.recordedBlock(trainer)
		return rec != nil &&
			rec.Checkpoint != nil
	})
	room := disktest.Fill(t, f.root)
	close(tell)
	look := func(address string) (rec *state.Block, phase string) {
		t.Helper()
		r, live, err := a.engine.Live(context.Background())
		if err != nil {
			t.Fatalf("the engine does not answer while the disk is full: %v", err)
		}
		at, err := addr.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		return r.Blocks[at], live[at].Phase
	}
	f.until("the engine knows the last checkpoint",
		func() bool { rec, _ := look(trainer); return rec.Checkpoint.Step == 3 })
	f.until("it says that it waits", func() bool {
		w := a.engine.Waiting()
		return len(w) == 1 && strings.Contains(w[0].Path, string(f.dir)) &&
			strings.Contains(w[0].Reason, "no space left") && w[0].Free < 4096
	})
	reported := 0
	for _, e := range f.events() {
		if e.Path == "/c/2" {
			reported++
		}
	}
	if rec := f.recordedBlock(trainer); reported > 0 && rec.Checkpoint.Step < 2 {
		t.Error("the log tells of a checkpoint that the record does not know")
	}
	f.host.process(inf).crash()
	f.until("inference is to be started again",
		func() bool { _, phase := look(inf); return phase == string(sdk.Starting) })
	if n := len(f.host.startsOf(inf)); n != 1 {
		t.Errorf("inference was started %d times, although that could not be recorded", n)
	}
	room()
	f.until("inference is started again", func() bool { return len(f.host.startsOf(inf)) == 2 })
	f.until("nothing waits any more", func() bool { return len(a.engine.Waiting()) == 0 })
	close(finish)
	if a.wait(); a.err != nil {
		t.Fatal(a.err)
	}
	metrics := 0
	for i, e := range f.events() {
		if e.Seq != uint64(i+1) {
			t.Fatalf("event %d has number %d", i+1, e.Seq)
		}
		if e.Type == event.Metrics && e.Address == trainer {
			metrics++
		}
	}
	if rec := f.recordedBlock(trainer); metrics != steps || rec.Checkpoint.Step != 3 ||
		f.record().Status != state.Completed {
		t.Errorf("%d of %d reports are in the log, the newest checkpoint is that of step %d, the run is %s", metrics,
			steps, rec.Checkpoint.Step, f.record().Status)
	}
}

// A stop on a full disk takes effect at once, and the engine stays until its end is recorded, or until it is killed.
//
//docs:survival.md the disk is full (no room, or the user's quota)
func TestAStopOnAFullDisk(t *testing.T) {
	t.Parallel()
	for name, kill := range map[string]bool{"until there is room": false, "until it is killed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := onSmallDisk(t)
			f.host.scripts[trainer] = func(p *fakeProcess) {
				p.ready("running")
				<-p.stopping
				for i := range int64(300) { // more than the rest of a page holds
					p.emit(blockevent.Metrics{Step: i, Values: map[string]float64{"reward": 0.5}})
				}
				p.emit(blockevent.Checkpoint{CheckpointInfo: sdk.CheckpointInfo{Path: "/c/last", Step: 7, Version: 7}})
				p.say(sdk.Stopped, "", "")
			}
			a := f.apply(f.load(wholeLoop))
			f.until("everything runs", func() bool {
				rec := f.recordedBlock(syncer)
				return rec != nil &&
					rec.Phase == "ready"
			})
			room := disktest.Fill(t, f.root)
			if err := a.engine.Stop(context.Background(), "enough"); err != nil {
				t.Fatal(err)
			}
			f.until("everything has ended", func() bool { return len(f.host.alive()) == 0 })
			f.until("the engine waits", func() bool { return len(a.engine.Waiting()) == 1 })
			if _, _, err := a.engine.Live(context.Background()); err != nil {
				t.Errorf("the engine that waits does not answer: %v", err)
			}
			if kill {
				if err := a.engine.Kill(context.Background()); err != nil {
					t.Fatal(err)
				}
				if a.wait(); a.err == nil || !strings.Contains(a.err.Error(), "no space left") {
					t.Errorf("the run ended with %v; want that its end could not be recorded", a.err)
				}
				return
			}
			room()
			if a.wait(); a.err != nil {
				t.Fatal(a.err)
			}
			if rec := f.recordedBlock(trainer); f.record().Status != state.Stopped || rec.Checkpoint == nil ||
				rec.Checkpoint.Step != 7 || rec.Phase != "stopped" {
				t.Errorf("recorded: %s, the trainer %s with checkpoint %+v", f.record().Status, rec.Phase,
					rec.Checkpoint)
			}
		})
	}
}

// A stop takes effect while a block waits for room to be restarted: none of its processes runs, and none is started.
//
//docs:survival.md the disk is full (no room, or the user's quota)
func TestAStopWhileAStartWaitsForRoom(t *testing.T) {
	t.Parallel()
	f := onSmallDisk(t)
	tell := make(chan struct{})
	saved := filepath.Join(t.TempDir(), "step-99") // on a disk that has room
	if err := os.WriteFile(saved, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.host.scripts[trainer] = func(p *fakeProcess) {
		p.ready("running")
		<-tell
		for i := range int64(100) { // more than the rest of a page of the record holds
			p.emit(blockevent.Checkpoint{CheckpointInfo: sdk.CheckpointInfo{Path: saved, Step: i, Version: i}})
		}
		<-p.stopping
		p.say(sdk.Stopped, "", "")
	}
	src := strings.Replace(wholeLoop, `model = "m"`, "model = \"m\"\n restart { delay = \"1ms\" }\n", 1)
	a := f.apply(f.load(src))
	f.until("everything runs", func() bool {
		rec := f.recordedBlock(syncer)
		return rec != nil && rec.Phase == "ready"
	})
	room := disktest.Fill(t, f.root)
	close(tell)
	f.until("the record waits", func() bool { return len(a.engine.Waiting()) == 1 })
	f.host.process(trainer).crash()
	f.until("the trainer waits to be started again", func() bool {
		_, live, err := a.engine.Live(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		at, err := addr.Parse(trainer)
		if err != nil {
			t.Fatal(err)
		}
		return live[at].Phase == string(sdk.Starting)
	})
	if err := a.engine.Stop(context.Background(), "enough"); err != nil {
		t.Fatal(err)
	}
	f.until("everything has ended, although the disk is full", func() bool { return len(f.host.alive()) == 0 })
	if n := len(f.host.startsOf(trainer)); n != 1 {
		t.Errorf("the trainer was started %d times", n)
	}
	room()
	if a.wait(); a.err != nil {
		t.Fatal(a.err)
	}
	if rec := f.recordedBlock(trainer); f.record().Status != state.Stopped || rec.Phase != "stopped" {
		t.Errorf("recorded: %s, the trainer %s", f.record().Status, rec.Phase)
	}
}
