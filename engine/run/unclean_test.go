package run_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/sdk"
)

// What a stop failed to do is the run's error, is in the record and in the log, and the next plan reports it.
//
//docs:survival.md a block cannot be stopped in order: its last checkpoint cannot be written, it is killed …
func TestWhatAStopCouldNotDo(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end  func(p *fakeProcess)
		want string
	}{
		"a checkpoint that cannot be written": {func(p *fakeProcess) {
			p.say(sdk.Failed,
				"the last checkpoint: no space left on device", "make room")
		}, "no space left on device"},
		"a process that dies meanwhile": {func(p *fakeProcess) { p.crash() },
			"ended before it had stopped cleanly"},
		"one that never ends": {func(*fakeProcess) {}, "did not stop within"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.host.scripts[trainer] = func(p *fakeProcess) {
				p.ready("running")
				<-p.stopping
				tt.end(p)
			}
			src := strings.Replace(wholeLoop, "environments = [environment.x.e]",
				"environments = [environment.x.e]\n health {\n stop_timeout = \"10ms\"\n }\n", 1)
			a := f.apply(f.load(src))
			f.until("the trainer runs", func() bool {
				rec := f.recordedBlock(trainer)
				return rec != nil &&
					rec.Phase == "ready"
			})
			if err := a.engine.Stop(context.Background(), "enough"); err != nil {
				t.Fatal(err)
			}
			a.wait()
			var unclean *run.UncleanError
			if !errors.As(a.err, &unclean) || len(unclean.Blocks) != 1 ||
				unclean.Blocks[0].Address.String() != trainer || !strings.Contains(a.err.Error(), tt.want) {
				t.Fatalf("the run ended with %v; want what the trainer could not do: %s", a.err, tt.want)
			}
			rec := f.record()
			block := rec.Blocks[trainerAddress]
			if rec.Status != state.Stopped || !strings.Contains(rec.Error, tt.want) ||
				!strings.Contains(block.Error, tt.want) {
				t.Errorf("recorded: %s, %q; trainer: %s, %q", rec.Status, rec.Error, block.Phase, block.Error)
			}
			reported := false
			for _, e := range f.events() {
				reported = reported || e.Address == trainer && (e.Type == event.Notice && e.Level == "error" ||
					e.Phase == "failed") && strings.Contains(e.Message, tt.want)
			}
			if !reported {
				t.Error("the log does not say it")
			}
			p, err := plan.Make(plan.Input{Recipe: f.load(src), Recorded: rec, Dir: f.dir})
			if err != nil {
				t.Fatal(err)
			}
			if op := p.Operation(trainerAddress); len(op.Reasons) == 0 ||
				!strings.Contains(op.Reasons[0].Text, tt.want) {
				t.Errorf("the next plan says %+v", op.Reasons)
			}
		})
	}
}

// A block that was removed from the recipe and stopped is forgotten, also if it was stopped before it was removed.
func TestABlockThatLeftIsForgotten(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = job(2, time.Millisecond)
	if a := f.apply(f.load(another)).wait(); a.err != nil {
		t.Fatal(a.err)
	}
	if f.recordedBlock("environment.x.f") == nil {
		t.Fatal("there is no second environment to take out")
	}
	if a := f.apply(f.load(wholeLoop)).wait(); a.err != nil {
		t.Fatal(a.err)
	}
	if rec := f.recordedBlock("environment.x.f"); rec != nil {
		t.Errorf("it is still recorded: %+v", rec)
	}
}
