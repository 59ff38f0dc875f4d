package run_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/state"
	blockevent "github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk"
)

// converge passes another version of the recipe to a working engine.
func (a *running) converge(src string) {
	a.t.Helper()
	r := a.load(src)
	rec, seen, err := a.engine.Live(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	p, err := plan.Make(plan.Input{Recipe: r, Recorded: rec, Observed: seen, Dir: a.dir})
	if err != nil {
		a.t.Fatal(err)
	}
	if err := a.engine.Converge(a.t.Context(), r, p); err != nil {
		a.t.Fatal(err)
	}
}

const another = wholeLoop + "environment \"x\" \"f\" {\n  inference = inference.x.p\n}\n"

// stubborn is ready, and stops only when it is let go.
func stubborn(letGo <-chan struct{}) script {
	return func(p *fakeProcess) {
		p.ready("http://" + p.block.String())
		<-p.stopping
		<-letGo
		p.say(sdk.Stopped, "", "")
	}
}

// The log's cursor decides what is not read again, so what the record needs of an event is recorded before the event is
// logged: an engine that is killed between the two loses nothing.
func TestTheRecordKnowsBeforeTheLogDoes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = func(p *fakeProcess) {
		p.ready("running")
		p.emit(blockevent.Checkpoint{CheckpointInfo: sdk.CheckpointInfo{Path: "/c/7", Step: 7, Version: 7}})
		p.emit(blockevent.Weights{WeightsInfo: sdk.WeightsInfo{Version: 7, Path: "/w/7"}})
		p.say(sdk.Completed, "", "")
	}
	reported := func(want event.Type, phase string) bool {
		return slices.ContainsFunc(f.events(), func(e event.Event) bool {
			return e.Address == trainer &&
				e.Type == want && e.Phase == phase
		})
	}
	seen := map[string]bool{}
	first := func(what string, recorded bool, logged func() bool) {
		if !recorded || seen[what] {
			return
		}
		seen[what] = true
		if logged() {
			t.Errorf("%s: in the log before it was in the record", what)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	e, err := run.Open(ctx, run.Options{Dir: f.dir, Name: "r", File: "r.hcl", Host: f.host, Plugins: f.plug,
		OnJournal: func() {
			rec := f.recordedBlock(trainer)
			if rec == nil {
				return
			}
			first("checkpoint", rec.Checkpoint != nil, func() bool { return reported(event.Checkpoint, "") })
			first("weights", f.record().Policy.Version == 7, func() bool { return reported(event.Weights, "") })
			first("completed", rec.Phase == "completed", func() bool { return reported(event.Phase, "completed") })
			if rec.Intent == state.IntentDone && slices.Contains(f.host.alive(), trainer) {
				t.Error("nothing is left to do about the trainer, says the record, and its process lives")
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	r := f.load(wholeLoop)
	if _, err := e.Apply(ctx, r, f.plan(r, e)); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 3 {
		t.Errorf("recorded: %v; want checkpoint, weights and completed", seen)
	}
}

// A trainer that ends while no engine is there has reported its last outputs to nobody: the next engine reads them from
// its event log.
//
//docs:survival.md the trainer ends while no engine runs
func TestOutputsToldWhileNoEngineWasThere(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.orphan(trainer, wholeLoop, func(p *fakeProcess) {
		p.ready("running")
		last := map[string]cty.Value{}
		for _, a := range p.schema.Attributes {
			last[a.Name] = cty.NullVal(a.Type)
		}
		last["checkpoint"] = cty.StringVal("/c/last")
		p.emit(blockevent.Outputs{Values: cty.ObjectVal(last)})
		p.say(sdk.Completed, "", "")
	})
	f.until("the trainer is done", func() bool {
		st, _ := f.host.process(trainer).Status(t.Context())
		return st.Phase == sdk.Completed
	})
	a := f.apply(f.load(wholeLoop)).wait()
	if a.err != nil || len(f.host.startsOf(trainer)) != 1 {
		t.Fatalf("%v; the trainer was started %d times, want once", a.err, len(f.host.startsOf(trainer)))
	}
	if got := fmt.Sprintf("%s", a.outputs["checkpoint"]); got != `"/c/last"` {
		t.Errorf("the run's output is %s, want the last checkpoint", got)
	}
}

// Kill takes effect at once: no process gets time to end in order, and the engine does not wait for a process that is
// just being started.
//
//docs:survival.md Ctrl-C twice (a second or more apart), recipe stop --kill
func TestKillAsksNobody(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	never := make(chan struct{})
	defer close(never)
	f.host.scripts[inf] = stubborn(never)
	f.host.slowExit = true
	f.host.slowLaunch = env
	a := f.apply(f.load(wholeLoop))
	f.until("the environment is being launched",
		func() bool { return slices.Contains(f.host.happened(), "launch "+env) })
	if err := a.engine.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.wait()
	if got := f.recordedBlock(inf); got.Phase != "stopped" || got.Intent != state.IntentDone {
		t.Errorf("inference is recorded as %s, %s", got.Phase, got.Intent)
	}
}

// A block that is removed from the recipe and declared again while it still ends runs in the end.
func TestABlockDeclaredAgainWhileItEndsComesBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = job(1<<20, time.Millisecond)
	letGo := make(chan struct{})
	f.host.scripts["environment.x.f"] = stubborn(letGo)
	a := f.apply(f.load(another))
	f.until("both environments run", func() bool {
		return len(f.host.startsOf("environment.x.f")) == 1 &&
			len(f.host.startsOf(trainer)) == 1
	})
	a.converge(wholeLoop)
	f.until("it was told to stop", func() bool { return slices.Contains(f.host.happened(), "stop environment.x.f") })

	x := f.load(wholeLoop).Blocks[0].Addr
	x.Kind, x.Name = "environment", "f"
	if err := a.engine.Restart(t.Context(), x); err == nil || !strings.Contains(err.Error(), "no longer declared") {
		t.Errorf("a restart of it is answered with %v; want that it is no longer declared", err)
	}
	a.converge(another)
	close(letGo)
	f.until("it runs again", func() bool { return len(f.host.startsOf("environment.x.f")) == 2 })
	f.until("it is recorded", func() bool {
		rec := f.recordedBlock("environment.x.f")
		return rec != nil &&
			rec.Phase == "ready"
	})
}

// Live processes that the recipe no longer declares are stopped, whatever they report before.
//
//docs:survival.md a block is removed from the recipe while no engine runs
func TestAnUndeclaredBlockThatIsFoundAliveIsStopped(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]bool{"in order": false, "by itself": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.orphan("environment.x.f", another, func(p *fakeProcess) {
				p.ready("http://f")
				<-p.stopping
				if dies {
					p.crash()
					return
				}
				p.say(sdk.Stopped, "", "")
			})
			f.host.scripts[trainer] = job(2, time.Millisecond)
			if a := f.apply(f.load(wholeLoop)).wait(); a.err != nil {
				t.Fatal(a.err)
			}
			if alive := f.host.alive(); len(alive) > 0 {
				t.Errorf("still alive: %v", alive)
			}
			if rec := f.recordedBlock("environment.x.f"); rec != nil {
				t.Errorf("it is still recorded: %+v", rec)
			}
		})
	}
}

// orphan leaves a block as a killed engine does: recorded, with a live process.
func (f *fixture) orphan(address, src string, s script) *fakeProcess {
	f.t.Helper()
	r := f.load(src)
	i := slices.IndexFunc(r.Blocks, func(b *schema.Block) bool { return b.Addr.String() == address })
	if err := f.dir.Make(); err != nil {
		f.t.Fatal(err)
	}
	store, err := state.OpenStore(f.dir, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	config, err := state.Recordable(r.Blocks[i].Value, r.Blocks[i].Schema.Config, f.dir)
	if err == nil {
		store.NoteBlock(r.Blocks[i].Addr, func(rec *state.Block) {
			rec.Attempt, rec.Intent, rec.Phase, rec.Config = 1, state.IntentRun, "ready", config
		})
		err = store.Close()
	}
	if err != nil {
		f.t.Fatal(err)
	}
	f.host.scripts[address] = s
	p, err := f.host.Launch(context.Background(),
		run.Launch{Block: r.Blocks[i].Addr, Dir: f.dir.Block(r.Blocks[i].Addr)})
	if err == nil {
		err = p.Start(context.Background(), host.Start{Block: sdk.Block{RunID: store.Run().ID, Address: address},
			FirstEvent: 1})
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return f.host.process(address)
}

// A plugin that died while no engine was there may have left programs. Its block is not started again, so the engine
// must end them.
//
//docs:survival.md a block is removed from the recipe while no engine runs
func TestWhatAnUndeclaredBlockLeftIsSwept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.orphan("environment.x.f", another, func(p *fakeProcess) { <-p.stopping }).exit()
	f.host.scripts[trainer] = job(2, time.Millisecond)
	if a := f.apply(f.load(wholeLoop)).wait(); a.err != nil {
		t.Fatal(a.err)
	}
	if !slices.Contains(f.host.sweeps(), "environment.x.f") {
		t.Errorf("swept: %v; want environment.x.f", f.host.sweeps())
	}
}

const crashing = `model = "m"
  restart {
    delay     = "30s"
    max_delay = "30s"
  }`

// crash applies a recipe whose inference crashes, and waits until its restart is announced.
func (f *fixture) crash() *running {
	f.t.Helper()
	f.host.scripts[inf] = func(p *fakeProcess) { p.crash() }
	a := f.apply(f.load(strings.Replace(wholeLoop, `model = "m"`, crashing, 1)))
	f.until("the restart is announced", func() bool {
		return slices.ContainsFunc(f.events(), func(e event.Event) bool { return e.Type == event.Restart })
	})
	return a
}

// A restart counts when it is decided, also if the engine is killed before the block is up again.
func TestARestartIsRecordedWhenItIsDecided(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.crash()
	if got := f.recordedBlock(inf).Restarts; len(got) != 1 {
		t.Errorf("recorded restarts: %v, want one", got)
	}
}

// A person who restarts a block does not wait for the delay of its restart policy.
func TestARestartOnRequestEndsTheDelay(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.crash()
	if err := a.engine.Restart(t.Context(), address(t, inf)); err != nil {
		t.Fatal(err)
	}
	f.until("it is started again", func() bool { return len(f.host.startsOf(inf)) == 2 })
}

// A server that the recipe no longer names is not probed any more, and its last answer has no effect.
func TestAServerThatIsNoLongerNamedIsLeftAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var asked [2]atomic.Int64
	source := func(i int) string {
		s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked[i].Add(1) }))
		t.Cleanup(s.Close)
		return strings.Replace(wholeLoop, `model = "m"`, `model = "m"
  external { endpoint = "`+s.URL+`" }
  health { interval = "100ms" }`, 1)
	}
	f.host.scripts[trainer] = job(1<<20, time.Millisecond)
	a := f.apply(f.load(source(0)))
	f.until("the loop runs", func() bool { return len(f.host.startsOf(syncer)) == 1 })
	a.converge(source(1))
	f.until("the new server is asked", func() bool { return asked[1].Load() > 1 })
	before, now := asked[0].Load(), asked[1].Load()
	f.until("it is asked again", func() bool { return asked[1].Load() > now+2 })
	if again := asked[0].Load(); again > before+1 { // one probe may have been in progress
		t.Errorf("the old server was asked %d times more", again-before)
	}
}

// The address of a server may be secret, too: it may hold a key, for example.
func TestASecretEndpointIsWrittenNowhere(t *testing.T) {
	t.Parallel()
	const canary = "canary-5e0c77d4"
	f := newFixture(t)
	ill := httptest.NewServer(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	t.Cleanup(ill.Close)
	src := strings.Replace(wholeLoop, `model = "m"`, `model = "m"
  external {
    endpoint = env("WHERE")
    model    = env("WHICH")
  }
  health {
    interval      = "100ms"
    start_timeout = "1s"
  }`, 1)
	a := f.apply(f.load(src, "WHERE="+ill.URL+"/"+canary+"/", "WHICH="+canary)).wait()
	if a.err == nil || strings.Contains(a.err.Error(), canary) || !strings.Contains(a.err.Error(), "502") {
		t.Errorf("the run ended with %v; want the server's answer, without its address", a.err)
	}
	err := filepath.WalkDir(string(f.dir), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), canary) {
			t.Errorf("%s holds the secret:\n%s", path, b)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
