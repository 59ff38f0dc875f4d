package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"
	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/proc"
	schemaspec "github.com/recipe-rl/recipe/sdk/spec"
)

// TestMain lets the test binary be a plugin, or an engine that is killed.
func TestMain(m *testing.M) {
	if sdk.ServeBuiltin([]*sdk.Definition{definition()}) {
		return
	}
	if os.Getenv("RECIPE_TEST_ENGINE") != "" {
		engine()
		return
	}
	goleak.VerifyTestMain(m)
}

type config struct {
	Program bool   `recipe:"program" default:"false" doc:"start a program"`
	Behave  string `recipe:"behave" default:"" doc:"what Run does"`
}

// service counts, which shows that the same process continues, and can supervise a program.
type service struct{}

func (service) Run(ctx context.Context, req sdk.Request[config], h sdk.Host) error {
	if req.Config.Behave == "exit" {
		fmt.Fprintln(os.Stderr, "the model is too large")
		os.Exit(3)
	}
	var program *proc.Program
	if req.Config.Program {
		var err error
		if handles := proc.Parse(req.Handle); len(handles) == 1 {
			program, err = proc.Adopt(handles[0])
		} else {
			program, err = proc.Start(ctx, proc.Spec{Argv: []string{"sh", "-c", "echo hello; sleep 600 & sleep 600"},
				LogDir: req.Dir})
		}
		if err != nil {
			return err
		}
		h.SetHandle(proc.Encode(program.Handle()))
	}
	fmt.Println("printed, not written to the handshake")
	h.Ready(outputs.Environment{Name: req.Address, GroupSize: 8})
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n := int64(1); ; n++ {
		h.Progress(n, 0, "ticks")
		select {
		case <-ctx.Done():
			if program != nil {
				return errors.Join(program.Stop(context.Background(), time.Second), ctx.Err())
			}
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// The optional abilities, so that each call goes through a real process.
var (
	_ sdk.Validator[config] = service{}
	_ sdk.Planner[config]   = service{}
	_ sdk.Updater[config]   = service{}
)

func (service) Validate(c config) []schemaspec.Problem {
	if c.Behave == "nonsense" {
		return []schemaspec.Problem{{Path: cty.GetAttrPath("behave"), Summary: "nonsense",
			Detail: "say something else"}}
	}
	if c.Behave == "huge" {
		return []schemaspec.Problem{{Path: cty.GetAttrPath("behave"), Summary: "huge",
			Detail: strings.Repeat("x", 65<<20)}}
	}
	return nil
}

func (service) Plan(_ config, p sdk.Placement) (sdk.Estimate, []schemaspec.Problem) {
	return sdk.Estimate{
		Amounts: []sdk.Amount{{Resource: "gpu_memory", Part: "weights", Value: 2 * float64(p.GPUs),
			How: "2 bytes a GPU"}},
		Notes: []string{"a note"}, Facts: map[string]string{"tokenizer": "none"},
	}, nil
}

func (service) Update(_ context.Context, c config) error {
	if c.Behave == "refuse" {
		return &sdk.Error{Summary: "not now", Detail: "busy"}
	}
	return nil
}

func definition() *sdk.Definition {
	return environment.New("ticker", "A plugin for tests.", func() sdk.Service[config] { return service{} },
		sdk.WithEnvironmentVariables("TICKER_*"), sdk.WithPackages(func(gpu bool) sdk.Packages {
			return sdk.Packages{Requirements: []string{map[bool]string{true: "ticks==2", false: "ticks==1"}[gpu]}}
		}))
}

const deadline = 60 * time.Second

func contextOf(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	t.Cleanup(cancel)
	return ctx
}

func spec(dir string) host.LaunchSpec {
	argv, env, err := host.Builtin(kind.Environment, "ticker")
	if err != nil {
		panic(err)
	}
	return host.LaunchSpec{
		Kind: kind.Environment, Name: "ticker", RunID: "run-1", Block: "environment.ticker.a",
		Command: argv, Env: append(os.Environ(), env), Dir: dir,
	}
}

func start(dir string, config map[string]cty.Value) host.Start {
	return host.Start{Config: cty.ObjectVal(config), Block: sdk.Block{
		Address: "environment.ticker.a", RunID: "run-1", Dir: dir, RunDir: dir, RecipeDir: dir, CheckpointDir: dir,
	}}
}

func launch(t *testing.T, dir string, values map[string]cty.Value) *host.Plugin {
	t.Helper()
	ctx := contextOf(t)
	p, err := host.Launch(ctx, spec(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if host.HasRecord(dir) {
			if err := host.Sweep(context.Background(), dir, nil); err != nil {
				t.Error(err)
			}
		}
		p.Release()
	})
	if values == nil {
		return p
	}
	if err := p.Attach(ctx, "test", time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(ctx, start(dir, values)); err != nil {
		t.Fatal(err)
	}
	waitReady(t, p)
	return p
}

func waitReady(t *testing.T, p *host.Plugin) {
	t.Helper()
	ctx, cancel := context.WithCancel(contextOf(t))
	defer cancel()
	ready := false
	err := p.Watch(ctx, 0, func(e event.Event) {
		if c, ok := e.Body.(event.PhaseChange); ok && c.Phase == sdk.Ready {
			ready = true
			cancel()
		}
	})
	if !ready {
		t.Fatalf("the block did not become ready: %v", err)
	}
}

func none() map[string]cty.Value { return map[string]cty.Value{"behave": cty.StringVal("")} }

func TestLaunchTalkExit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := launch(t, dir, none())
	ctx := contextOf(t)
	s, err := p.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if s.PID != p.PID() || s.PID == os.Getpid() || s.Phase != sdk.Ready ||
		s.Outputs.GetAttr("group_size").Equals(cty.NumberIntVal(8)).False() {
		t.Errorf("status is %+v", s)
	}
	d, err := p.Describe(ctx)
	if err != nil || d.Kind != kind.Environment || d.Name != "ticker" {
		t.Errorf("description is %+v, %v", d, err)
	}
	if _, _, err := p.Evaluate(ctx, 0); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("evaluate: %v", err)
	}
	if err := p.Stop(ctx, 10*time.Second, false, "test"); err != nil {
		t.Error(err)
	}
	if err := p.Exit(ctx); err != nil {
		t.Error(err)
	}
	if host.HasRecord(dir) {
		t.Error("the record is still there")
	}
	if proc.Same(p.PID(), 0) || syscall.Kill(p.PID(), 0) == nil {
		t.Errorf("pid %d is still there", p.PID())
	}
	info, err := os.Stat(dir + "/stderr")
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("stderr file: %v, %v", info, err)
	}
}

func TestOptionalCalls(t *testing.T) {
	t.Parallel()
	p := launch(t, t.TempDir(), none())
	ctx := contextOf(t)
	behave := func(s string) cty.Value {
		return cty.ObjectVal(map[string]cty.Value{"behave": cty.StringVal(s), "program": cty.UnknownVal(cty.Bool)})
	}
	known := func(s string) cty.Value { return cty.ObjectVal(map[string]cty.Value{"behave": cty.StringVal(s)}) }
	if problems, err := p.Validate(ctx, known("nonsense")); err != nil || len(problems) != 1 ||
		problems[0].Detail != "say something else" || schemaspec.PathString(problems[0].Path) != "behave" {
		t.Errorf("validate: %+v, %v", problems, err)
	}
	if problems, err := p.Validate(ctx, behave("nonsense")); err != nil || len(problems) != 1 {
		t.Errorf("validate with an unknown value beside the wrong one: %+v, %v", problems, err)
	}
	var refused *sdk.Error
	if err := p.Update(ctx, known("nonsense")); !errors.Is(err, host.ErrInvalid) || !errors.As(err, &refused) ||
		schemaspec.PathString(refused.Path) != "behave" || !strings.Contains(err.Error(), "say something else") {
		t.Errorf("update to what Validate refuses: %v", err)
	}
	e, _, err := p.Plan(ctx, "environment.ticker.a", behave(""), sdk.Placement{GPUs: 3})
	if err != nil || len(e.Amounts) != 1 || e.Amounts[0].Value != 6 || e.Notes[0] != "a note" ||
		e.Facts["tokenizer"] != "none" {
		t.Errorf("plan: %+v, %v", e, err)
	}
	if err := p.Update(ctx, known("")); err != nil {
		t.Errorf("update: %v", err)
	}
	if err := p.Update(ctx, known("refuse")); err == nil || !strings.Contains(err.Error(), "environment.ticker.a") ||
		!strings.Contains(err.Error(), "not now: busy") {
		t.Errorf("a refused update: %v", err)
	}
	if _, err := p.Checkpoint(ctx); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("checkpoint: %v", err)
	}
	if d, err := p.Describe(ctx); err != nil || !d.Can("update") || !d.Can("plan") || !d.Can("validate") ||
		d.Can("checkpoint") {
		t.Errorf("capabilities: %+v, %v", d, err)
	}
	if err := p.Start(ctx, start(t.TempDir(), none())); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second start: %v", err)
	}
}

func TestALaunchThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, command := range map[string][]string{
		"exits":      {"sh", "-c", "echo cannot find the model >&2; exit 3"},
		"no program": {"/no/such/plugin"},
		"gibberish":  {"sh", "-c", "echo hello; sleep 600 & sleep 600"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := spec(dir)
			s.Command = command
			ctx := contextOf(t)
			if name == "gibberish" { // which is waited for until the deadline
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
			}
			_, err := host.Launch(ctx, s)
			if err == nil || !strings.Contains(err.Error(), "environment.ticker.a") {
				t.Fatalf("error is %v", err)
			}
			if name == "exits" && !strings.Contains(err.Error(), "cannot find the model") {
				t.Errorf("the error lacks the last words of the plugin: %v", err)
			}
			if host.HasRecord(dir) {
				t.Error("a record was left")
			}
		})
	}
}

func TestALaunchThatHangsEndsWithItsContext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := spec(dir)
	s.Command = []string{"sh", "-c", "echo $$ > pid; sleep 600"}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	go func() { // the plugin is there and does not answer; now the caller cancels
		for ctx.Err() == nil {
			if text, err := os.ReadFile(dir + "/pid"); err == nil && bytes.HasSuffix(text, []byte("\n")) {
				cancel()
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	if _, err := host.Launch(ctx, s); err == nil {
		t.Fatal("a plugin without a handshake was accepted")
	}
	if pid := readPID(t, dir+"/pid"); pid == 0 || syscall.Kill(pid, 0) == nil {
		t.Errorf("pid %d is still there", pid)
	}
}

func readPID(t *testing.T, path string) int {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	var pid int
	if _, err := fmt.Sscan(string(data), &pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestReattachAfterTheEngineIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pid, seen := orphan(t, dir)

	ctx := contextOf(t)
	p, err := host.Reattach(ctx, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	if p.PID() != pid {
		t.Errorf("pid is %d, was %d", p.PID(), pid)
	}
	// The events before and after are one sequence without a gap, including those emitted while no engine was there.
	watching, cancel := context.WithCancel(ctx)
	next := seen + 1
	_ = p.Watch(watching, seen, func(e event.Event) {
		if e.Seq != next {
			t.Errorf("event %d follows %d", e.Seq, next-1)
		}
		next = e.Seq + 1
		if next > seen+50 {
			cancel()
		}
	})
	cancel()
	if next <= seen+50 {
		t.Errorf("watching ended at event %d", next)
	}
	if err := p.Exit(ctx); err != nil {
		t.Error(err)
	}
}

// orphan starts a plugin by an engine that is killed, in a folder. seen is the number of its last event that the engine
// has seen.
func orphan(t *testing.T, dir string) (pid int, seen uint64) {
	t.Helper()
	first := exec.Command(os.Args[0])
	first.Env = append(os.Environ(), "RECIPE_TEST_ENGINE="+dir)
	first.Stderr = os.Stderr
	out, err := first.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscan(out, &pid, &seen); err != nil {
		t.Fatalf("the engine did not start its plugin: %v", err)
	}
	_ = first.Process.Kill()
	_ = first.Wait()
	return pid, seen
}

// engine is the process that orphan kills.
func engine() {
	dir := os.Getenv("RECIPE_TEST_ENGINE")
	_ = os.Unsetenv("RECIPE_TEST_ENGINE")
	ctx := context.Background()
	p, err := host.Launch(ctx, spec(dir))
	if err == nil {
		err = p.Attach(ctx, "first", time.Minute)
	}
	if err == nil {
		err = p.Start(ctx, start(dir, none()))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = p.Watch(ctx, 0, func(e event.Event) {
		if e.Seq == 10 {
			fmt.Println(p.PID(), e.Seq)
		}
	})
	select {}
}

func TestAKilledPluginIsNoticedAndItsProgramAdopted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := launch(t, dir, map[string]cty.Value{"program": cty.True})
	ctx := contextOf(t)
	s, err := p.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	program := proc.Parse(s.Handle)
	if len(program) != 1 || !program[0].Alive() {
		t.Fatalf("handle is %s", s.Handle)
	}
	if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Exited():
	case <-ctx.Done():
		t.Fatal("the death of the plugin was not noticed")
	}
	if _, err := p.Status(ctx); !errors.Is(err, host.ErrGone) {
		t.Errorf("status of a dead plugin: %v", err)
	}
	p.Release()
	if _, err := host.Reattach(ctx, dir, nil); !errors.Is(err, host.ErrGone) {
		t.Errorf("reattach to a dead plugin: %v", err)
	}
	if !program[0].Alive() {
		t.Fatal("the program died with its plugin")
	}

	again := spec(dir)
	again.Keep = s.Handle
	second, err := host.Launch(ctx, again)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Release()
	if !program[0].Alive() {
		t.Fatal("the program did not survive the next launch")
	}
	request := start(dir, map[string]cty.Value{"program": cty.True})
	request.Handle, request.FirstEvent = s.Handle, s.LastEvent+1
	if err := second.Start(ctx, request); err != nil {
		t.Fatal(err)
	}
	waitReady(t, second)
	if s, err = second.Status(ctx); err != nil || proc.Parse(s.Handle)[0].PID != program[0].PID {
		t.Errorf("the second attempt has handle %s, want pid %d (%v)", s.Handle, program[0].PID, err)
	}
	if err := second.Exit(ctx); err != nil {
		t.Error(err)
	}
	if program[0].Alive() {
		t.Errorf("program %d is still there", program[0].PID)
	}
}

//docs:survival.md orphans hold GPU memory
func TestSweepEndsWhatADeadPluginHasLeft(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := launch(t, dir, map[string]cty.Value{"program": cty.True})
	s, err := p.Status(contextOf(t))
	if err != nil {
		t.Fatal(err)
	}
	program := proc.Parse(s.Handle)[0]
	if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	p.Release()
	if err := host.Sweep(contextOf(t), dir, nil); err != nil {
		t.Fatal(err)
	}
	if program.Alive() {
		t.Errorf("program %d is still there", program.PID)
	}
	if host.HasRecord(dir) {
		t.Error("the record is still there")
	}
	if err := host.Sweep(contextOf(t), dir, nil); err != nil {
		t.Errorf("a second sweep: %v", err)
	}
}

func TestASuspendedPluginCanBeEnded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := launch(t, dir, none())
	if err := syscall.Kill(p.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// A stop signal needs a moment to reach every thread.
	for deadline := time.Now().Add(deadline); ; {
		short, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		_, err := p.Status(short)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("status of a suspended plugin: %v", err)
		}
	}
	other, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if _, err := host.Reattach(other, dir, nil); err == nil || errors.Is(err, host.ErrGone) {
		t.Errorf("reattach to a suspended plugin: %v", err)
	}
	now, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if err := p.Exit(now); err != nil {
		t.Error(err)
	}
	if syscall.Kill(p.PID(), 0) == nil {
		t.Errorf("pid %d is still there", p.PID())
	}
}

func TestLastEventsOfADeadPlugin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := launch(t, dir, none())
	ctx := contextOf(t)
	d, err := p.Describe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	events, err := host.LastEvents(dir, 2, d.Outputs)
	if err != nil || len(events) == 0 || events[0].Seq != 3 {
		t.Errorf("last events: %v, %v", events, err)
	}
}

// The process of a block may be on a machine that is not the user's any more.
func TestAHugeMessageIsRefused(t *testing.T) {
	t.Parallel()
	p := launch(t, t.TempDir(), none())
	ctx := contextOf(t)
	_, err := p.Validate(ctx, cty.ObjectVal(map[string]cty.Value{"behave": cty.StringVal("huge")}))
	if err == nil || !strings.Contains(err.Error(), "larger than max") {
		t.Errorf("got %.200v", err)
	}
	if _, err := p.Status(ctx); err != nil {
		t.Errorf("the connection does not go on: %v", err)
	}
}
