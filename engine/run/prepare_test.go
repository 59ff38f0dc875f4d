package run_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/engine/why"
	blockevent "github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// preparing is a fixture whose trainers prepare; inference is ready once open is closed.
func preparing(t *testing.T) (f *fixture, open chan struct{}) {
	t.Helper()
	f, open = newFixture(t), make(chan struct{})
	f.plug.schemas[kind.Trainer].Prepares = true
	f.host.prepare = map[string]func(*fakeProcess){
		trainer: func(p *fakeProcess) { p.say(sdk.Prepared, "weights are loaded", "") },
	}
	f.host.scripts[inf] = func(p *fakeProcess) {
		select {
		case <-open:
			p.ready("http://" + p.block.String())
			<-p.stopping
		case <-p.stopping:
		}
		p.say(sdk.Stopped, "", "")
	}
	f.host.scripts[trainer] = job(20, time.Millisecond)
	return f, open
}

func (h *fakeHost) preparedWith(a string) []host.Start {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.prepared[a])
}

// says waits for a phase of a block in the log.
func (f *fixture) says(block string, phase sdk.Phase) {
	f.t.Helper()
	f.until(block+" is "+string(phase), func() bool {
		return slices.ContainsFunc(f.events(), func(e event.Event) bool {
			return e.Type == event.Phase && e.Address == block && e.Phase == string(phase)
		})
	})
}

func TestATrainerIsPreparedWhileInferenceStarts(t *testing.T) {
	t.Parallel()
	f, open := preparing(t)
	a := f.apply(f.load(wholeLoop))
	f.says(trainer, sdk.Prepared)
	if got := f.host.startsOf(trainer); len(got) != 0 {
		t.Fatalf("it was started before what it refers to: %v", f.host.happened())
	}
	given := f.host.preparedWith(trainer)[0]
	if given.Config.IsWhollyKnown() || !slices.Equal(given.SyncedBy, []string{syncer}) || !given.SharesDevices {
		t.Errorf("prepared with %#v, synced by %v, shares devices %v; want unknown outputs, %s and true",
			given.Config, given.SyncedBy, given.SharesDevices, syncer)
	}
	if given.Grace != 5*time.Minute {
		t.Errorf("a trainer without a health block has %s to write its last checkpoint, want 5m", given.Grace)
	}
	f.until("the record says so", func() bool { return f.recordedBlock(trainer).Phase == string(sdk.Prepared) })
	f.until("recipe status --why names what it waits for", func() bool {
		doc, err := a.engine.Why(t.Context(), run.WhyRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range doc.Blocks {
			if b.Address.String() == trainer && len(b.Activities) == 1 {
				return b.Activities[0].On == env
			}
		}
		return false
	})
	close(open)
	if a.wait(); a.err != nil {
		t.Fatal(a.err)
	}
	started := f.host.startsOf(trainer)
	if len(started) != 1 || !started[0].Config.IsWhollyKnown() || started[0].FirstEvent != given.FirstEvent {
		t.Errorf("started %d times with %#v", len(started), started)
	}
	if n := f.host.count("exit " + trainer); n != 1 {
		t.Errorf("%d processes of the trainer ended, want the one that was prepared and started", n)
	}
	if r := f.recordedBlock(trainer); r.Attempt != 1 || r.Phase != string(sdk.Completed) {
		t.Errorf("recorded: attempt %d, phase %s", r.Attempt, r.Phase)
	}
}

func (h *fakeHost) count(what string) (n int) {
	for _, got := range h.happened() {
		if got == what {
			n++
		}
	}
	return n
}

func TestWhatIsNotPrepared(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]struct {
		able     bool
		from, to string
	}{
		"a plugin without the capability": {},
		"a block that the recipe orders to wait": {able: true,
			from: `trainer "x" "t" {`, to: `trainer "x" "t" {
  depends_on = [inference.x.p]`},
		"a block whose turn comes when a job has ended": {able: true, from: `trainer "x" "t" {`,
			to: `trainer "x" "first" {
  environments = [environment.x.e]
}
trainer "x" "t" {
  depends_on = [{ block = trainer.x.first, condition = "completed" }]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, open := preparing(t)
			f.plug.schemas[kind.Trainer].Prepares = change.able
			f.host.scripts["trainer.x.first"] = job(1, time.Millisecond)
			a := f.apply(f.load(strings.Replace(wholeLoop, change.from, change.to, 1)))
			f.until("inference is started", func() bool { return len(f.host.startsOf(inf)) == 1 })
			// The supervisor considers the trainer in the pass that starts inference, and answers after it.
			doc, err := a.engine.Why(t.Context(), run.WhyRequest{})
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(doc.Blocks, func(b why.BlockDocument) bool { return b.Address.String() == trainer })
			if i < 0 || doc.Blocks[i].Phase != sdk.Pending || len(f.host.preparedWith(trainer)) != 0 {
				t.Errorf("%+v; want a pending trainer. Happened: %v", doc.Blocks, f.host.happened())
			}
			close(open)
			if a.wait(); a.err != nil || len(f.host.startsOf(trainer)) != 1 {
				t.Errorf("started %d times: %v", len(f.host.startsOf(trainer)), a.err)
			}
		})
	}
}

func TestARunIsStoppedWhileABlockIsPrepared(t *testing.T) {
	t.Parallel()
	f, _ := preparing(t)
	f.host.prepare[trainer] = func(p *fakeProcess) { <-p.stopping; p.say(sdk.Stopped, "", "") }
	a := f.apply(f.load(wholeLoop))
	f.says(trainer, sdk.Preparing)
	if err := a.engine.Stop(t.Context(), "enough"); err != nil {
		t.Fatal(err)
	}
	a.wait()
	if alive := f.host.alive(); len(alive) > 0 || len(f.host.startsOf(trainer)) != 0 {
		t.Errorf("alive: %v; happened: %v", alive, f.host.happened())
	}
	if r := f.recordedBlock(trainer); r.Phase != string(sdk.Stopped) || r.Intent != state.IntentDone {
		t.Errorf("recorded: %s, %s", r.Phase, r.Intent)
	}
}

func TestAPreparationThatFailsSaysWhy(t *testing.T) {
	t.Parallel()
	f, _ := preparing(t)
	f.host.prepare[trainer] = func(p *fakeProcess) {
		p.say(sdk.Failed, "there is no such model", "name one that there is")
	}
	a := f.apply(f.load(wholeLoop)).wait()
	var failed *run.Failure
	if !errors.As(a.err, &failed) || failed.Address.String() != trainer ||
		!strings.Contains(failed.Error(), "there is no such model") || failed.Remedy != "name one that there is" {
		t.Errorf("the run ended with %v", a.err)
	}
}

func TestAPreparationHasADeadline(t *testing.T) {
	t.Parallel()
	f, _ := preparing(t)
	f.host.prepare[trainer] = nil
	src := strings.Replace(wholeLoop, `trainer "x" "t" {`, `trainer "x" "t" {
  restart { attempts = 0 }
  health { start_timeout = "1s" }`, 1)
	a := f.apply(f.load(src)).wait()
	if a.err == nil || !strings.Contains(a.err.Error(), "timed out: not prepared within 1s (last phase: preparing)") {
		t.Errorf("the run ended with %v", a.err)
	}
}

func TestAPreparedBlockThatCannotBeStartedFailsTheRun(t *testing.T) {
	t.Parallel()
	f, open := preparing(t)
	f.host.refuse = map[string]error{trainer: fmt.Errorf("start: %w: steps is wrong", host.ErrInvalid)}
	a := f.apply(f.load(wholeLoop))
	f.says(trainer, sdk.Prepared)
	close(open)
	if a.wait(); a.err == nil || !strings.Contains(a.err.Error(), "steps is wrong") || len(f.host.startsOf(trainer)) != 1 {
		t.Errorf("the run ended with %v after %d starts", a.err, len(f.host.startsOf(trainer)))
	}
	if alive := f.host.alive(); len(alive) > 0 {
		t.Errorf("still alive: %v", alive)
	}
}

// A prepared block that gets a live update is started with the new configuration.
func TestABlockThatIsPreparedTakesAnUpdateAtItsStart(t *testing.T) {
	t.Parallel()
	f, open := preparing(t)
	a := f.apply(f.load(wholeLoop))
	f.says(trainer, sdk.Prepared)
	a.converge(strings.Replace(wholeLoop, `trainer "x" "t" {`, "trainer \"x\" \"t\" {\n  steps = 7", 1))
	close(open)
	if a.wait(); a.err != nil {
		t.Fatal(a.err)
	}
	started := f.host.startsOf(trainer)
	if len(started) != 1 {
		t.Fatalf("started %d times", len(started))
	}
	if steps, _ := started[0].Config.GetAttr("steps").AsBigFloat().Int64(); steps != 7 {
		t.Errorf("started with %d steps, want 7", steps)
	}
	if n := len(f.host.process(trainer).updates); n != 0 {
		t.Errorf("%d updates were sent to a block that was not started", n)
	}
}

// Of two inference servers on the trainer's GPUs each must have taken its memory before the trainer touches them.
func TestATrainerContinuesOnceMemoryIsTaken(t *testing.T) {
	t.Parallel()
	f, open := preparing(t)
	const second = "inference.x.q"
	src := strings.Replace(wholeLoop, `environment "x"`, `inference "x" "q" {
  model = "m"
}
environment "x"`, 1)
	told := map[string]chan bool{inf: make(chan bool), second: make(chan bool)}
	for name, taken := range told {
		f.host.scripts[name] = func(p *fakeProcess) {
			for now := range taken {
				p.emit(blockevent.MemoryTaken{Taken: now})
				p.say(sdk.Loading, fmt.Sprintf("taken: %v", now), "")
			}
			<-open
			p.ready("http://" + p.block.String())
			<-p.stopping
			p.say(sdk.Stopped, "", "")
		}
	}
	a := f.apply(f.load(src))
	f.says(trainer, sdk.Prepared)
	say := func(name string, taken bool) {
		told[name] <- taken
		f.until(fmt.Sprintf("the engine knows that %s says %v", name, taken), func() bool {
			events := f.events()
			slices.Reverse(events)
			i := slices.IndexFunc(events, func(e event.Event) bool { return e.Type == event.Phase && e.Address == name })
			return i >= 0 && events[i].Message == fmt.Sprintf("taken: %v", taken)
		})
		// Its report was sent before the one that is in the log, and the supervisor answers after both.
		if _, err := a.engine.Why(t.Context(), run.WhyRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	say(inf, true)
	say(inf, false) // it starts anew
	say(second, true)
	if got := f.host.preparedWith(trainer); len(got) != 1 {
		t.Fatalf("it was told %d times to prepare while a server decides by free memory", len(got))
	}
	say(inf, true)
	f.until("the trainer goes on", func() bool { return len(f.host.preparedWith(trainer)) == 2 })
	say(second, false)
	say(second, true)
	if got := f.host.preparedWith(trainer); len(got) != 2 || got[1].SharesDevices || !got[0].SharesDevices {
		t.Errorf("told to prepare %d times, sharing accelerators %v; want twice, true then false", len(got),
			[]bool{got[0].SharesDevices, got[1].SharesDevices})
	}
	for _, taken := range told {
		close(taken)
	}
	close(open)
	if a.wait(); a.err != nil || len(f.host.startsOf(trainer)) != 1 {
		t.Errorf("started %d times: %v", len(f.host.startsOf(trainer)), a.err)
	}
}

// A server that has taken its memory and failed decides anew when it is started again.
func TestATrainerStopsBesideFailedInference(t *testing.T) {
	t.Parallel()
	f, _ := preparing(t)
	const second = "inference.x.q"
	src := strings.NewReplacer(`inference "x" "p" {`, `inference "x" "p" {
  restart { delay = "1h" }`, `environment "x"`, `inference "x" "q" {
  model = "m"
}
environment "x"`).Replace(wholeLoop)
	f.host.prepare[trainer] = func(p *fakeProcess) {
		p.say(sdk.Prepared, "weights are loaded", "")
		<-p.stopping
		p.say(sdk.Stopped, "", "")
	}
	take, fail := make(chan struct{}), make(chan struct{})
	f.host.scripts[inf] = func(p *fakeProcess) {
		p.emit(blockevent.MemoryTaken{Taken: true})
		<-fail
		p.say(sdk.Failed, "the GPU fell off the bus", "")
	}
	f.host.scripts[second] = func(p *fakeProcess) {
		<-take
		p.emit(blockevent.MemoryTaken{Taken: true})
		p.say(sdk.Loading, "taken", "")
		<-p.stopping
		p.say(sdk.Stopped, "", "")
	}
	a := f.apply(f.load(src))
	f.says(trainer, sdk.Prepared)
	close(fail)
	f.until("inference waits for its restart", func() bool {
		return slices.ContainsFunc(f.events(), func(e event.Event) bool {
			return e.Type == event.Restart && e.Address == inf
		})
	})
	close(take)
	f.says(second, sdk.Loading)
	if _, err := a.engine.Why(t.Context(), run.WhyRequest{}); err != nil {
		t.Fatal(err)
	}
	if got := f.host.preparedWith(trainer); len(got) != 1 {
		t.Errorf("it was told %d times to prepare", len(got))
	}
	if err := a.engine.Stop(t.Context(), "enough"); err != nil {
		t.Fatal(err)
	}
	a.wait()
}

// What is on GPUs of its own prepares there from the beginning, and is told nothing more.
func TestATrainerOnItsOwnGPUsIsToldOnceToPrepare(t *testing.T) {
	t.Parallel()
	f, open := preparing(t)
	src := strings.NewReplacer(`inference "x" "p" {`, `inference "x" "p" {
  placement { devices = ["0"] }`, `trainer "x" "t" {`, `trainer "x" "t" {
  placement { devices = ["1"] }`).Replace(wholeLoop)
	a := f.apply(f.load(src))
	f.says(trainer, sdk.Prepared)
	close(open)
	if a.wait(); a.err != nil {
		t.Fatal(a.err)
	}
	if got := f.host.preparedWith(trainer); len(got) != 1 || got[0].SharesDevices {
		t.Errorf("told %d times to prepare", len(got))
	}
}
