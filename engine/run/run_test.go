package run_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
)

const wholeLoop = `
inference "x" "p" {
  model = "m"
}
environment "x" "e" {
  inference = inference.x.p
}
trainer "x" "t" {
  environments = [environment.x.e]
}
sync "x" "s" {
  trainer   = trainer.x.t
  inference = [inference.x.p]
}
output "checkpoint" { value = trainer.x.t.checkpoint }
`

const (
	inf     = "inference.x.p"
	env     = "environment.x.e"
	trainer = "trainer.x.t"
	syncer  = "sync.x.s"
)

// fixture is one run directory with a host.
type fixture struct {
	usage time.Duration    // between samples of the machine
	now   func() time.Time // nil: the clock
	t     testing.TB
	dir   state.Dir
	host  *fakeHost
	plug  plugins
	root  string

	devices map[addr.Block][]string // assigned by the sizing of a plan
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	root := t.TempDir()
	plug := fakePlugins(t)
	return &fixture{t: t, root: root, dir: state.DirOf(root, "r"), host: newFakeHost(plug), plug: plug}
}

func (f *fixture) load(src string, environ ...string) *schema.Recipe {
	f.t.Helper()
	path := filepath.Join(f.root, "r.hcl")
	if err := os.WriteFile(path, []byte(src), 0o600); err != nil {
		f.t.Fatal(err)
	}
	r, diags := schema.Load(path, schema.Options{Plugins: f.plug, Environ: environ})
	if diags.HasErrors() {
		f.t.Fatal(diags)
	}
	return r
}

// running is an apply in progress.
type running struct {
	*fixture
	engine  *run.Engine
	outputs map[string]any
	err     error
	done    chan struct{}
	cancel  context.CancelFunc
}

func (f *fixture) plan(r *schema.Recipe, e *run.Engine) *plan.Plan {
	f.t.Helper()
	p, err := plan.Make(plan.Input{Recipe: r, Recorded: e.Recorded(), Observed: e.Observed(), Dir: f.dir,
		Devices: f.devices})
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

func (f *fixture) apply(r *schema.Recipe) *running {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	e, err := run.Open(ctx, run.Options{Dir: f.dir, Name: "r", File: "r.hcl", Host: f.host, Plugins: f.plug,
		Command: "test", Usage: f.usage, Now: f.now})
	if err != nil {
		f.t.Fatal(err)
	}
	a := &running{fixture: f, engine: e, done: make(chan struct{}), cancel: cancel}
	p := f.plan(r, e)
	go func() {
		defer close(a.done)
		a.outputs, a.err = e.Apply(ctx, r, p)
		e.Close()
	}()
	f.t.Cleanup(func() { cancel(); <-a.done })
	return a
}

func (a *running) wait() *running {
	a.t.Helper()
	select {
	case <-a.done:
	case <-time.After(30 * time.Second):
		a.t.Fatalf("the run is not over after 30 s; so far: %v", a.host.happened())
	}
	return a
}

// until waits until a condition holds.
func (f *fixture) until(what string, cond func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("waited 20 s until %s; so far: %v", what, f.host.happened())
		}
	}
}

func (f *fixture) record() *state.Run {
	f.t.Helper()
	r, err := state.Read(f.dir)
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

func (f *fixture) events() (out []event.Event) {
	f.t.Helper()
	if err := event.Read(f.dir.Events(), 0,
		func(e event.Event) error { out = append(out, e); return nil }); err != nil {
		f.t.Fatal(err)
	}
	return out
}

func (f *fixture) recordedBlock(a string) *state.Block {
	f.t.Helper()
	b, err := addr.Parse(a)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.record().Blocks[b]
}

//docs:survival.md "server is not up yet"; misspelled settings are ignored
func TestRunStartsInOrderCompletesAndStopsInReverse(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = job(200, 5*time.Millisecond) // longer than sync needs to start
	a := f.apply(f.load(wholeLoop)).wait()
	if a.err != nil {
		t.Fatal(a.err)
	}
	if got := a.outputs["checkpoint"]; got == nil || !strings.Contains(fmt.Sprintf("%s", got), "done") {
		t.Errorf("output = %v", got)
	}
	var starts, stops []string
	for _, h := range f.host.happened() {
		verb, what, _ := strings.Cut(h, " ")
		switch verb {
		case "start":
			starts = append(starts, what)
		case "exit":
			stops = append(stops, what)
		}
	}
	if want := []string{inf, env, trainer, syncer}; !slices.Equal(starts, want) {
		t.Errorf("started %v, want %v", starts, want)
	}
	if len(stops) != 4 || slices.Index(stops, env) > slices.Index(stops, inf) ||
		slices.Index(stops, syncer) > slices.Index(stops, inf) {
		t.Errorf("ended %v: a service ended before what needs it", stops)
	}
	if alive := f.host.alive(); len(alive) > 0 {
		t.Errorf("still alive: %v", alive)
	}
	r := f.record()
	if r.Status != state.Completed || f.recordedBlock(trainer).Phase != "completed" ||
		f.recordedBlock(inf).Intent != state.IntentDone {
		t.Errorf("record: %s, trainer %+v", r.Status, f.recordedBlock(trainer))
	}
	evs := f.events()
	if evs[0].Type != event.RunStarted || evs[len(evs)-1].Type != event.RunEnded {
		t.Errorf("the log begins with %s and ends with %s", evs[0].Type, evs[len(evs)-1].Type)
	}
	if req := f.host.startsOf(trainer)[0]; !slices.Equal(req.SyncedBy, []string{syncer}) || req.Resume {
		t.Errorf("the trainer got synced_by %v, resume %v", req.SyncedBy, req.Resume)
	}
}

func TestFinishedRunAppliedAgainDoesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = job(2, time.Millisecond)
	f.apply(f.load(wholeLoop)).wait()
	before := len(f.host.happened())
	a := f.apply(f.load(wholeLoop)).wait()
	if a.err != nil || len(f.host.happened()) != before {
		t.Errorf("error %v; happened: %v", a.err, f.host.happened()[before:])
	}
	if a.outputs["checkpoint"] == nil {
		t.Error("the outputs of the finished run are gone")
	}
}

//docs:survival.md a plugin process is killed
//docs:troubleshooting.md A dead or hung environment goes unnoticed
func TestCrashedServiceIsRestartedAtItsAddress(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = job(1000, 2*time.Millisecond)
	a := f.apply(f.load(strings.Replace(wholeLoop, `model = "m"`, "model = \"m\"\n restart { delay = \"10ms\" }\n", 1)))
	f.until("the trainer runs", func() bool { return len(f.host.startsOf(trainer)) == 1 })
	f.until("the record holds the address", func() bool { return f.recordedBlock(inf).Listen != "" })
	f.host.process(inf).crash("boom")
	f.until("inference is started again", func() bool { return len(f.host.startsOf(inf)) == 2 })
	again := f.host.startsOf(inf)[1]
	if again.Listen == "" || !again.Resume || again.Token != f.host.startsOf(inf)[0].Token {
		t.Errorf("the second start got listen %q, resume %v", again.Listen, again.Resume)
	}
	if n := len(f.host.startsOf(env)); n != 1 {
		t.Errorf("the environment was started %d times", n)
	}
	if err := a.engine.Stop(context.Background(), "enough"); err != nil {
		t.Fatal(err)
	}
	a.wait()
	reported := false
	for _, e := range f.events() {
		reported = reported || (e.Address == env && e.Type == event.Notice && strings.Contains(e.Message, inf))
	}
	if !reported {
		t.Error("the environment did not learn that its inference block is restarted")
	}
}

//docs:survival.md a block fails again and again
func TestBlockThatKeepsFailingFailsTheRun(t *testing.T) {
	t.Parallel()
	for attempts, said := range map[int]string{1: "after 1 restart within", 2: "after 2 restarts within"} {
		keepsFailing(t, attempts, said)
	}
}

func keepsFailing(t *testing.T, attempts int, said string) {
	t.Helper()
	f := newFixture(t)
	f.host.scripts[env] = func(p *fakeProcess) { p.ready("u"); p.crash("Traceback", "KeyError: inference_logprobs") }
	a := f.apply(f.load(strings.Replace(wholeLoop, "inference = inference.x.p\n",
		"inference = inference.x.p\n restart {\n attempts = "+strconv.Itoa(attempts)+"\n delay = \"1ms\"\n }\n",
		1))).wait()
	var fail *run.Failure
	if !errors.As(a.err, &fail) || fail.Address.String() != env {
		t.Fatalf("error = %v", a.err)
	}
	if !strings.Contains(a.err.Error(), "KeyError: inference_logprobs") || !strings.Contains(a.err.Error(), said) ||
		!strings.Contains(a.err.Error(), "exit status 3") {
		t.Errorf("the error does not show the last lines or the restarts:\n%v", a.err)
	}
	if n := len(f.host.startsOf(env)); n != 1+attempts {
		t.Errorf("started %d times, want %d", n, 1+attempts)
	}
	if alive := f.host.alive(); len(alive) > 0 || f.record().Status != state.Failed {
		t.Errorf("alive %v, status %s", alive, f.record().Status)
	}
}

//docs:survival.md a block fails with a diagnosis before it was ever ready
func TestDiagnosedFailureIsFinal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[inf] = func(p *fakeProcess) { p.say(sdk.Failed, "model not found", "Check the name.") }
	a := f.apply(f.load(wholeLoop)).wait()
	if a.err == nil || !strings.Contains(a.err.Error(), "Check the name.") {
		t.Fatalf("error = %v", a.err)
	}
	if n := len(f.host.startsOf(inf)); n != 1 {
		t.Errorf("started %d times: trying again cannot mend it", n)
	}
	if n := len(f.host.startsOf(env)); n != 0 {
		t.Errorf("the environment was started %d times without inference", n)
	}
}

// A start that a plugin refuses as invalid stays refused: it is reported once, even if its text is redacted.
func TestRefusedStartIsFinal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.refuse = map[string]error{inf: &sdk.Error{Summary: "start " + inf, Path: cty.GetAttrPath("model"),
		Err: fmt.Errorf("%w: transport: unknown transport; got hunter22", host.ErrInvalid)}}
	a := f.apply(f.load(wholeLoop)).wait()
	if a.err == nil || !strings.Contains(a.err.Error(), "retrying cannot help") ||
		!strings.Contains(a.err.Error(), "unknown transport") || !strings.Contains(a.err.Error(), "r.hcl:3: start") {
		t.Fatalf("error = %v", a.err)
	}
	if n := len(f.host.startsOf(inf)); n != 1 {
		t.Errorf("started %d times: trying again cannot mend it", n)
	}
}

//docs:survival.md no output after the first update
func TestNotReadyInTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[inf] = func(p *fakeProcess) { p.say(sdk.Loading, "", ""); <-p.stopping }
	a := f.apply(f.load(strings.Replace(wholeLoop, `model = "m"`,
		"model = \"m\"\n health { start_timeout = \"1s\" }\n restart { attempts = 0 }\n", 1))).wait()
	if a.err == nil || !strings.Contains(a.err.Error(), "not ready within 1s") ||
		!strings.Contains(a.err.Error(), "loading") {
		t.Errorf("error = %v", a.err)
	}
}

//docs:survival.md a plugin is suspended (SIGSTOP) or hangs
func TestHungProcessIsReplaced(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = job(100000, time.Millisecond)
	a := f.apply(f.load(strings.Replace(wholeLoop, `model = "m"`,
		"model = \"m\"\n health {\n interval = \"100ms\"\n timeout = \"100ms\"\n failures = 2\n }\n restart { delay "+
			"= \"1ms\" }\n", 1)))
	f.until("inference is ready", func() bool { return len(f.host.startsOf(trainer)) == 1 })
	p := f.host.process(inf)
	p.mu.Lock()
	p.hung = true
	p.mu.Unlock()
	f.until("inference is started again", func() bool { return len(f.host.startsOf(inf)) == 2 })
	if !isClosed(p.exited) {
		t.Error("the hung process was left alive")
	}
	_ = a.engine.Kill(context.Background())
	a.wait()
}

//docs:survival.md the trainer restarts
func TestStopDrainsAndApplyResumes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = job(100000, time.Millisecond)
	a := f.apply(f.load(wholeLoop))
	f.until("the trainer runs", func() bool { return len(f.host.startsOf(trainer)) == 1 })
	if err := a.engine.Stop(context.Background(), "a person asked"); err != nil {
		t.Fatal(err)
	}
	a.wait()
	if a.err != nil || f.record().Status != state.Stopped || f.recordedBlock(trainer).Checkpoint == nil {
		t.Fatalf("error %v, record %+v", a.err, f.recordedBlock(trainer))
	}
	f.host.scripts[trainer] = job(1, time.Millisecond)
	a = f.apply(f.load(wholeLoop)).wait()
	if a.err != nil {
		t.Fatal(a.err)
	}
	if reqs := f.host.startsOf(trainer); len(reqs) != 2 || !reqs[1].Resume {
		t.Errorf("the second start was not a resume: %v", reqs)
	}
}

//docs:survival.md two engines on one run
func TestConvergeTouchesOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = job(100000, time.Millisecond)
	a := f.apply(f.load(wholeLoop))
	f.until("the loop runs", func() bool { return len(f.host.startsOf(syncer)) == 1 })

	converge := func(src string) {
		t.Helper()
		r := f.load(src)
		rec, seen, err := a.engine.Live(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Make(plan.Input{Recipe: r, Recorded: rec, Observed: seen, Dir: f.dir})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.engine.Converge(context.Background(), r, p); err != nil {
			t.Fatal(err)
		}
	}
	count := func(a string) int { return len(f.host.startsOf(a)) }

	// Another environment, and a live change of the trainer's list of environments.
	two := strings.Replace(wholeLoop, "environments = [environment.x.e]",
		"environments = [environment.x.e, environment.x.f]", 1) +
		"environment \"x\" \"f\" { inference = inference.x.p }\n"
	converge(two)
	f.until("the new environment runs", func() bool { return count("environment.x.f") == 1 })
	f.until("the trainer has taken the change over", func() bool {
		p := f.host.process(trainer)
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.updates) == 1
	})

	// Back again: the new one stops.
	converge(wholeLoop)
	f.until("the environment is gone", func() bool { return f.recordedBlock("environment.x.f") == nil })

	// A change that needs a resume from the checkpoint.
	converge(strings.Replace(wholeLoop, "environments = [environment.x.e]",
		"environments = [environment.x.e]\n rate = 2\n", 1))
	f.until("the trainer is started again", func() bool { return count(trainer) == 2 })
	if !f.host.startsOf(trainer)[1].Resume {
		t.Error("the trainer did not resume")
	}
	if count(inf) != 1 || count(env) != 1 || count(syncer) != 1 {
		t.Errorf("untouched blocks were started again: %d %d %d", count(inf), count(env), count(syncer))
	}

	// Another model: inference and all that depends on it start again.
	converge(strings.Replace(strings.Replace(wholeLoop, "environments = [environment.x.e]",
		"environments = [environment.x.e]\n rate = 2\n", 1), `"m"`, `"other"`, 1))
	f.until("inference is replaced", func() bool { return count(inf) == 2 && count(env) == 2 })
	if f.host.startsOf(inf)[1].Resume {
		t.Error("a replaced block resumes")
	}
	if err := a.engine.Stop(context.Background(), "enough"); err != nil {
		t.Fatal(err)
	}
	if a.wait(); a.err != nil {
		t.Error(a.err)
	}
}

func TestStopWhenEndsTheJobAsDone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = job(100000, time.Millisecond)
	a := f.apply(f.load(strings.Replace(wholeLoop, "environments = [environment.x.e]",
		"environments = [environment.x.e]\n stop_when {\n metric = \"reward\"\n at_least = 0.0001\n }\n", 1))).wait()
	if a.err != nil || f.record().Status != state.Completed || f.recordedBlock(trainer).Phase != "completed" {
		t.Errorf("error %v, status %s, trainer %s", a.err, f.record().Status, f.recordedBlock(trainer).Phase)
	}
}

//docs:survival.md inference restarts
func TestPolicyVersionReachesARestartedInference(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = job(100000, time.Millisecond)
	f.host.scripts[syncer] = func(p *fakeProcess) {
		p.ready("u")
		p.emit(blockevent.Weights{WeightsInfo: sdk.WeightsInfo{Version: 7, Path: "/w/7", Format: "hf", Inference: inf}})
		<-p.stopping
		p.say(sdk.Stopped, "", "")
	}
	a := f.apply(f.load(strings.Replace(wholeLoop, `model = "m"`, "model = \"m\"\n restart { delay = \"1ms\" }\n", 1)))
	f.until("version 7 is recorded", func() bool { return f.record().Policy.Version == 7 })
	f.host.process(inf).crash()
	f.until("inference is started again", func() bool { return len(f.host.startsOf(inf)) == 2 })
	if p := f.host.startsOf(inf)[1].Policy; p.Version != 7 || p.Weights != "/w/7" || p.Format != "hf" {
		t.Errorf("it got policy %v", p)
	}
	_ = a.engine.Kill(context.Background())
	a.wait()
}

// Trainers and environments get the project and the group of the run's W&B tracker; what a block sets itself wins.
func TestProjectAndGroupOfATrackerAreShared(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	src := strings.Replace(wholeLoop, "inference = inference.x.p\n",
		"inference = inference.x.p\n environment_variables = { WANDB_MODE = \"disabled\" }\n", 1) +
		"tracking \"wandb\" \"x\" {\n project = \"sums\"\n group = \"sweep\"\n mode = \"offline\"\n}\n"
	f.host.scripts[trainer] = job(3, time.Millisecond)
	if a := f.apply(f.load(src)).wait(); a.err != nil {
		t.Fatal(a.err)
	}
	for block, want := range map[string]map[string]string{
		trainer: {"WANDB_PROJECT": "sums", "WANDB_RUN_GROUP": "sweep", "WANDB_MODE": "offline"},
		env:     {"WANDB_PROJECT": "sums", "WANDB_RUN_GROUP": "sweep", "WANDB_MODE": "disabled"},
		inf:     {},
	} {
		if got := f.host.startsOf(block)[0].Environment; !maps.Equal(got, want) {
			t.Errorf("%s gets %v, want %v", block, got, want)
		}
	}
}

//docs:survival.md Files of a run
func TestSecretsNeverReachTheDisk(t *testing.T) {
	t.Parallel()
	const canary = "canary-7f3a9b21"
	f := newFixture(t)
	f.host.scripts[inf] = func(p *fakeProcess) {
		p.emit(blockevent.LogLine{Level: "info", Message: "using key " + canary})
		p.say(sdk.Failed, "the hub refused "+canary, "Ask for access with "+canary)
	}
	src := strings.Replace(wholeLoop, `model = "m"`,
		"model = \"m\"\n key = env(\"HUB\")\n environment_variables = { TOKEN = env(\"HUB\") }\n", 1)
	a := f.apply(f.load(src, "HUB="+canary)).wait()
	if a.err == nil {
		t.Fatal("the run did not fail")
	}
	if req := f.host.startsOf(inf)[0]; req.Environment["TOKEN"] != canary ||
		!strings.Contains(req.Config.GoString(), canary) {
		t.Fatal("the plugin was not given the secret")
	}
	err := filepath.WalkDir(string(f.dir), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), canary) {
			t.Errorf("%s holds the secret", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

//docs:survival.md two engines on one run
func TestSecondEngineIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = job(100000, time.Millisecond)
	a := f.apply(f.load(wholeLoop))
	_, err := run.Open(context.Background(), run.Options{Dir: f.dir, Name: "r", Host: f.host, Plugins: f.plug})
	var locked *state.LockedError
	if !errors.As(err, &locked) {
		t.Errorf("error = %v", err)
	}
	f.until("the run has begun", func() bool { return len(f.host.startsOf(inf)) == 1 })
	a.cancel()
	a.wait()
	if alive := f.host.alive(); len(alive) > 0 {
		t.Errorf("still alive after a kill: %v", alive)
	}
}

func TestNewRunDoesNotMixWithEarlierCheckpoints(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if err := f.dir.Make(); err != nil {
		t.Fatal(err)
	}
	a, err := addr.Parse(trainer)
	if err != nil {
		t.Fatal(err)
	}
	old := f.dir.Checkpoints(a)
	if err := os.MkdirAll(old, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(old, "step_900"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.host.scripts[trainer] = job(2, time.Millisecond)
	if r := f.apply(f.load(wholeLoop)).wait(); r.err != nil {
		t.Fatal(r.err)
	}
	if left, _ := os.ReadDir(old); len(left) > 0 {
		t.Errorf("a new run has %v among its checkpoints", left)
	}
	if kept, _ := filepath.Glob(old + ".before-*/step_900"); len(kept) != 1 {
		t.Error("the earlier checkpoint is lost")
	}
}
