package run_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	sdkenvironment "github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/protocol"
	"github.com/recipe-rl/recipe/sdk/spec"
	sdktrainer "github.com/recipe-rl/recipe/sdk/trainer"
	sdktrajectories "github.com/recipe-rl/recipe/sdk/trajectories"
)

// These tests run the supervisor as it runs for users: an engine process, a plugin process per block, and kill -9. The
// test binary is all of them.

var trainerAddress = addr.Block{Kind: kind.Trainer, Plugin: "x", Name: "t"}

const (
	engineKey  = "RECIPE_CRASH_ENGINE" // folder of the recipe: the process is an engine
	crashAtKey = "RECIPE_CRASH_AT"     // the engine kills itself after so many writes of its record
	markKey    = "RECIPE_CRASH_MARK"   // in the environment of every process of one test: how orphans are found
	chaosKey   = "RECIPE_CHAOS"        // number of random kills; the long form, `make chaos`
)

func TestMain(m *testing.M) {
	limitFiles()
	if sdk.ServeBuiltin(crashPlugins()) {
		return
	}
	if dir := os.Getenv(engineKey); dir != "" {
		os.Exit(crashEngine(dir))
	}
	if os.Getenv(answerKey) != "" {
		os.Exit(answerAll())
	}
	goleak.VerifyTestMain(m)
}

// crashPlugins are a service, another service that refers to it, and a job that counts.
func crashPlugins() []*sdk.Definition {
	return []*sdk.Definition{
		sdktrajectories.New("x", "a service", func() sdk.Service[noConfig] { return lockedService{} }),
		sdkenvironment.New("x", "a service that refers to another",
			func() sdk.Service[envConfig] { return lockedEnvironment{} }),
		sdktrainer.New("x", "a job that counts", func() sdktrainer.Plugin[jobConfig] { return &counter{} }),
	}
}

type noConfig struct{}

type envConfig struct {
	Trajectories spec.Ref `recipe:"trajectories" reference:"trajectories" required:"true" doc:"what it refers to"`
}

type jobConfig struct {
	Environments []spec.Ref `recipe:"environments" reference:"environment" doc:"what it refers to"`
	Steps        int        `recipe:"steps" doc:"how far it counts"`
}

// alone takes a lock that only one process of a block may hold, and writes a file if another process has it.
func alone(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "alone"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = os.WriteFile(filepath.Join(dir, "duplicate"), []byte(strconv.Itoa(os.Getpid())), 0o600)
		return errors.New("another process of this block is alive")
	}
	return nil // held until the process ends
}

type lockedService struct{}

func (lockedService) Run(ctx context.Context, req sdk.Request[noConfig], h sdk.Host) error {
	if err := alone(req.Dir); err != nil {
		return err
	}
	h.Ready(outputs.Trajectories{URL: "http://127.0.0.1:1"})
	<-ctx.Done()
	return nil
}

type lockedEnvironment struct{}

func (lockedEnvironment) Run(ctx context.Context, req sdk.Request[envConfig], h sdk.Host) error {
	if err := alone(req.Dir); err != nil {
		return err
	}
	select {
	case <-time.After(50 * time.Millisecond): // so that some kills hit the preparation of the trainer
		h.Ready(outputs.Environment{Name: "x"})
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}

// counter appends every step to a ledger and saves a checkpoint every ten.
type counter struct{ alone bool }

// Prepare takes the lock, as a trainer takes memory.
func (c *counter) Prepare(_ context.Context, req sdk.Request[jobConfig], _ sdk.Host, _ <-chan struct{}) error {
	c.alone = true
	return alone(req.Dir)
}

func (c *counter) Run(ctx context.Context, req sdk.Request[jobConfig], h sdktrainer.Host) error {
	if !c.alone {
		if err := alone(req.Dir); err != nil {
			return err
		}
	}
	saved := filepath.Join(req.CheckpointDir, "step")
	step := 0
	if b, err := os.ReadFile(saved); err == nil && req.Resume {
		if step, err = strconv.Atoi(string(b)); err != nil {
			return err
		}
	}
	ledger, err := os.OpenFile(filepath.Join(req.Dir, "ledger"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = ledger.Close() }()
	checkpoint := func() error {
		if err := os.WriteFile(saved+".tmp", []byte(strconv.Itoa(step)), 0o600); err != nil {
			return err
		}
		if err := os.Rename(saved+".tmp", saved); err != nil {
			return err
		}
		h.Checkpoint(sdk.CheckpointInfo{Path: saved, Step: int64(step)})
		return nil
	}
	h.Ready(outputs.Trainer{Model: "m"})
	for step < req.Config.Steps {
		select {
		case <-ctx.Done():
			return checkpoint()
		case <-time.After(4 * time.Millisecond):
		}
		step++
		if _, err := fmt.Fprintf(ledger, "%d %d\n", os.Getpid(), step); err != nil {
			return err
		}
		if step%10 == 0 {
			if err := checkpoint(); err != nil {
				return err
			}
		}
	}
	return checkpoint()
}

const policies = `
  health {
    interval = "200ms"
    timeout  = "2s"
    failures = 2
  }
  restart {
    attempts  = 1000
    delay     = "10ms"
    max_delay = "20ms"
  }
`

const crashRecipe = `
trajectories "x" "q" {` + policies + `}
environment "x" "e" {
  trajectories = trajectories.x.q` + policies + `}
trainer "x" "t" {
  environments = [environment.x.e]
  steps        = %d` + policies + `}
`

// crashEngine is one engine process: apply, in this process.
func crashEngine(dir string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	catalog, err := host.NewCatalog(crashPlugins(), nil, filepath.Join(dir, "cache"))
	if err != nil {
		return fail(err)
	}
	r, diags := schema.Load(filepath.Join(dir, "r.hcl"), schema.Options{Plugins: catalog})
	if diags.HasErrors() {
		return fail(diags)
	}
	writes, at := 0, 0
	if s := os.Getenv(crashAtKey); s != "" {
		if at, err = strconv.Atoi(s); err != nil {
			return fail(err)
		}
	}
	ctx := context.Background()
	e, err := run.Open(ctx, run.Options{
		Dir: state.DirOf(dir, "r"), Name: "r", File: "r.hcl", Host: run.Processes{Catalog: catalog}, Plugins: catalog,
		Command: "crash test",
		OnJournal: func() {
			if writes++; writes == at {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		},
	})
	if err != nil {
		return fail(err)
	}
	defer e.Close()
	p, err := plan.Make(plan.Input{Recipe: r, Recorded: e.Recorded(), Observed: e.Observed(),
		Dir: state.DirOf(dir, "r")})
	if err != nil {
		return fail(err)
	}
	if _, err := e.Apply(ctx, r, p); err != nil {
		return fail(err)
	}
	return 0
}

// scene is one run directory whose engine is killed several times.
type scene struct {
	t    *testing.T
	dir  string
	mark string
	out  bytes.Buffer
}

func newScene(t *testing.T, steps int) *scene {
	t.Helper()
	s := &scene{t: t, dir: t.TempDir(), mark: fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name(), "/", "-"),
		rand.Uint64())}
	if err := os.WriteFile(filepath.Join(s.dir, "r.hcl"), fmt.Appendf(nil, crashRecipe, steps), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pid := range s.processes() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return s
}

func (s *scene) engine(env ...string) *exec.Cmd {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), engineKey+"="+s.dir, markKey+"="+s.mark), env...)
	cmd.Stdout, cmd.Stderr = &s.out, &s.out
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	return cmd
}

// finish runs an engine to the end of the run.
func (s *scene) finish() {
	s.t.Helper()
	cmd := s.engine()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			s.t.Fatalf("the last engine failed: %v\n%s", err, s.story())
		}
	case <-time.After(90 * time.Second):
		_ = cmd.Process.Kill()
		<-done //nolint:errcheck // it was killed
		s.t.Fatalf("the last engine did not end within 90 s\n%s", s.story())
	}
}

// processes are those that carry the scene's mark or work in its folder, whatever their parent.
func (s *scene) processes() (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		s.t.Skip("needs /proc")
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// Plugins do not get the engine's environment; they work in the scene's folder.
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		cwd, _ := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		if err == nil && bytes.Contains(env, []byte(markKey+"="+s.mark)) ||
			strings.HasPrefix(cwd, s.dir+string(filepath.Separator)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// settled is processes after those that an engine started and died before it recorded them have ended by themselves,
// which takes seconds.
func (s *scene) settled() (left []int) {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if left = s.processes(); len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// story is the output of the scene's processes, for a failed test.
func (s *scene) story() string {
	var b strings.Builder
	b.WriteString(s.out.String())
	_ = event.Read(state.DirOf(s.dir, "r").Events(), 0, func(e event.Event) error {
		if e.Type != event.Progress && e.Type != event.Metrics {
			fmt.Fprintf(&b, "%s %s %s %s %s\n", e.Time.Format("05.000"), e.Type, e.Address, e.Phase, e.Message)
		}
		return nil
	})
	return b.String()
}

// check compares the run with what is promised: completed, nothing twice, nothing lost, no process left.
func (s *scene) check(steps int) {
	s.t.Helper()
	d := state.DirOf(s.dir, "r")
	r, err := state.Read(d)
	if err != nil {
		s.t.Fatal(err)
	}
	if r.Status != state.Completed {
		s.t.Errorf("the run is %s: %s\n%s", r.Status, r.Error, s.story())
	}
	if left := s.settled(); len(left) > 0 {
		for _, pid := range left {
			s.t.Errorf("process %s is left", describe(pid))
		}
		s.t.Error(s.story())
	}
	if dup, _ := filepath.Glob(filepath.Join(string(d), "blocks", "*", "duplicate")); len(dup) > 0 {
		s.t.Errorf("two processes of one block were alive at once: %v\n%s", dup, s.story())
	}
	s.ledger(d, steps)
	var last uint64
	if err := event.Read(d.Events(), 0, func(e event.Event) error {
		if e.Seq != last+1 {
			s.t.Errorf("event %d follows event %d", e.Seq, last)
		}
		last = e.Seq
		return nil
	}); err != nil {
		s.t.Error(err)
	}
}

// ledger checks that the job did every step, and never went back behind its last checkpoint.
func (s *scene) ledger(d state.Dir, steps int) {
	s.t.Helper()
	ledgers, _ := filepath.Glob(filepath.Join(string(d), "blocks", "trainer*", "ledger"))
	if len(ledgers) != 1 {
		s.t.Fatalf("%d ledgers", len(ledgers))
	}
	f, err := os.Open(ledgers[0])
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	last, lastPID := 0, 0
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var pid, step int
		if _, err := fmt.Sscan(sc.Text(), &pid, &step); err != nil {
			s.t.Fatalf("ledger line %q: %v", sc.Text(), err)
		}
		switch {
		case pid == lastPID && step != last+1:
			s.t.Errorf("process %d went from step %d to %d", pid, last, step)
		case pid != lastPID && (step > last+1 || step <= last/10*10-10):
			s.t.Errorf("process %d began at step %d after step %d: it lost a checkpoint or skipped work", pid, step,
				last)
		}
		last, lastPID = step, pid
	}
	if last != steps {
		s.t.Errorf("the job ended at step %d of %d", last, steps)
	}
}

//docs:survival.md the engine (recipe apply) is killed
func TestEngineKilledAtEveryJournalWrite(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	stride := 4
	if os.Getenv(chaosKey) != "" {
		stride = 1
	}
	const steps = 60
	for at := 1; ; at += stride {
		s := newScene(t, steps)
		cmd := s.engine(crashAtKey + "=" + strconv.Itoa(at))
		err := cmd.Wait()
		if err == nil {
			if at < 8 {
				t.Fatalf("the engine wrote its record only %d times", at)
			}
			s.check(steps)
			t.Logf("the engine writes its record fewer than %d times in an unbroken run", at)
			return
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("write %d: the engine ended with %v, not by its own kill\n%s", at, err, s.story())
		}
		s.finish()
		s.check(steps)
		if t.Failed() {
			t.Fatalf("killed after write %d", at)
		}
	}
}

//docs:survival.md the engine (recipe apply) is killed
func TestLiveProcessesAreAdopted(t *testing.T) {
	t.Parallel()
	s := newScene(t, 100000)
	d := state.DirOf(s.dir, "r")
	cmd := s.engine()
	pidOf := func(kind string) int {
		dirs, _ := filepath.Glob(filepath.Join(string(d), "blocks", kind+"*"))
		if len(dirs) != 1 {
			return 0
		}
		pid, _ := host.Probe(context.Background(), dirs[0], nil)
		return pid
	}
	f := &fixture{t: t, dir: d, host: newFakeHost(plugins{})}
	f.until("the job counts", func() bool {
		r, err := state.Read(d)
		return err == nil && len(r.Blocks) == 3 && r.Blocks[trainerAddress].Checkpoint != nil
	})
	before := []int{pidOf("trajectories"), pidOf("environment"), pidOf("trainer")}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	second := s.engine()
	f.until("the processes are adopted", func() bool {
		n := 0
		_ = event.Read(d.Events(), 0, func(e event.Event) error {
			if e.Type == event.Adopted {
				n++
			}
			return nil
		})
		return n == 3
	})
	after := []int{pidOf("trajectories"), pidOf("environment"), pidOf("trainer")}
	for i := range before {
		if before[i] == 0 || before[i] != after[i] {
			t.Errorf("process ids before %v and after %v the engine was killed", before, after)
			break
		}
	}
	_ = second.Process.Kill()
	_ = second.Wait()
}

// launch starts an engine; the channel gets its exit.
func (s *scene) launch() (*exec.Cmd, chan error) {
	cmd := s.engine()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	return cmd, done
}

// isPlugin reports whether a process has an environment of its own, as a plugin does.
func isPlugin(pid int) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && bytes.Contains(env, []byte(protocol.BuiltinKey+"="))
}

// describe describes what a process is, and its state.
func describe(pid int) string {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, state, _ := strings.Cut(string(status), "State:")
	state, _, _ = strings.Cut(state, "\n")
	cwd, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	return fmt.Sprintf("%d (plugin: %v, state %s, in %s)", pid, isPlugin(pid), strings.TrimSpace(state),
		filepath.Base(cwd))
}

// strike kills or suspends one process of the run and returns what it did.
func (s *scene) strike(rng *rand.Rand, engine int) string {
	var plugins []int
	for _, pid := range s.processes() {
		// A copy of the engine that has not called exec yet is no target: if it is stopped at that moment and its engine is
		// killed after it, it can notice nothing and nobody knows of it.
		if pid != engine && isPlugin(pid) {
			plugins = append(plugins, pid)
		}
	}
	switch n := rng.IntN(10); {
	case n < 5 || len(plugins) == 0:
		_ = syscall.Kill(engine, syscall.SIGKILL)
		return "engine killed"
	case n < 9:
		_ = syscall.Kill(plugins[rng.IntN(len(plugins))], syscall.SIGKILL)
		return "plugin killed"
	default:
		_ = syscall.Kill(plugins[rng.IntN(len(plugins))], syscall.SIGSTOP)
		return "plugin suspended"
	}
}

//docs:survival.md a plugin process is killed
func TestRandomKills(t *testing.T) {
	t.Parallel()
	kills := 12
	if n, err := strconv.Atoi(os.Getenv(chaosKey)); err == nil {
		kills = n
	}
	const steps = 300
	struck := map[string]int{}
	total := 0
	for round := 0; total < kills; round++ {
		s := newScene(t, steps)
		rng := rand.New(rand.NewPCG(uint64(round), 7))
		cmd, done := s.launch()
		deadline := time.After(2 * time.Minute)
		for over := false; !over; {
			var strike <-chan time.Time
			if total < kills {
				strike = time.After(time.Duration(50+rng.IntN(700)) * time.Millisecond)
			}
			select {
			case err := <-done:
				var exit *exec.ExitError
				switch {
				case err == nil:
					over = true
				case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
					cmd, done = s.launch()
				default:
					t.Fatalf("round %d, after %d: the engine ended with %v\n%s", round, total, err, s.story())
				}
			case <-strike:
				total++
				struck[s.strike(rng, cmd.Process.Pid)]++
			case <-deadline:
				t.Fatalf("round %d, after %d: the run is not over after 2 minutes\n%s", round, total, s.story())
			}
		}
		s.check(steps)
		if t.Failed() {
			t.Fatalf("round %d, after %d: %v", round, total, struck)
		}
	}
	t.Logf("%d blows: %v", total, struck)
}
