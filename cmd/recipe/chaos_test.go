package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// This test kills the real program while it trains the real quickstart: the engine and every plugin, at random moments.

const (
	chaosKey  = "RECIPE_CHAOS"      // number of blows; the long form, `make chaos`
	markKey   = "RECIPE_CHAOS_MARK" // in the environment of every process of one run: how those left over are found
	chaosStep = 60                  // optimizer steps of one run
)

// chaosPolicies restart quickly and without limit: the test counts what is lost, not how many restarts a policy allows.
const chaosPolicies = `
  health {
    interval = "250ms"
    timeout  = "5s"
    failures = 2
  }
  restart {
    attempts  = 1000
    delay     = "20ms"
    max_delay = "50ms"
  }
`

var blockHead = regexp.MustCompile(`(?m)^(inference|environment|trainer|sync) "\w+" "\w+" \{`)

// victim is one run of the quickstart whose processes are killed.
type victim struct {
	t    *testing.T
	dir  string
	mark string
	out  bytes.Buffer
	rng  *rand.Rand
	pair map[[2]int]time.Time // two processes of one block, and since when
}

func newVictim(t *testing.T, seed uint64) *victim {
	t.Helper()
	v := &victim{t: t, dir: t.TempDir(), mark: fmt.Sprintf("%s-%d", t.Name(), rand.Uint64()),
		rng: rand.New(rand.NewPCG(seed, 11)), pair: map[[2]int]time.Time{}}
	text, err := os.ReadFile(filepath.Join(repository, "recipes", "quickstart.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	recipe := blockHead.ReplaceAllStringFunc(string(text),
		func(head string) string { return head + "\n" + chaosPolicies })
	recipe += "\ntrajectories \"builtin\" \"default\" {\n" + chaosPolicies + "}\n"
	if err := os.WriteFile(filepath.Join(v.dir, "quickstart.hcl"), []byte(recipe), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for pid := range v.processes() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return v
}

func (v *victim) run() state.Dir { return state.DirOf(v.dir, "quickstart") }

// apply starts an engine; the channel gets its exit.
func (v *victim) apply() (*exec.Cmd, chan error) {
	v.t.Helper()
	program, err := exec.LookPath("recipe")
	if err != nil {
		v.t.Fatal(err)
	}
	cmd := exec.Command(program, "apply", "-y", "--var", fmt.Sprintf("steps=%d", chaosStep), "quickstart.hcl")
	cmd.Dir, cmd.Stdout, cmd.Stderr = v.dir, &v.out, &v.out
	cmd.Env = append(os.Environ(), markKey+"="+v.mark)
	if err := cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	return cmd, done
}

// processes are those that carry the mark, whatever their parent, with their working folders. Zombies have no
// environment and are left out.
func (v *victim) processes() map[int]string {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		v.t.Skip("needs /proc")
	}
	found := map[int]string{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && bytes.Contains(env, []byte(markKey+"="+v.mark)) {
			found[pid], _ = os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		}
	}
	return found
}

// strike kills or suspends one process of the run and says which. A suspended engine is killed afterwards, as people do
// who take it for hung.
func (v *victim) strike(engine int) string {
	all := v.processes()
	delete(all, engine)
	pids := make([]int, 0, len(all))
	for pid, dir := range all {
		if filepath.Base(filepath.Dir(dir)) == "blocks" { // else it is a copy of the engine that is no plugin yet
			pids = append(pids, pid)
		}
	}
	n := v.rng.IntN(20)
	if n < 7 || len(pids) == 0 {
		if n == 0 {
			_ = syscall.Kill(engine, syscall.SIGSTOP)
			time.Sleep(time.Second)
		}
		_ = syscall.Kill(engine, syscall.SIGKILL)
		return map[bool]string{true: "engine suspended, then killed", false: "engine killed"}[n == 0]
	}
	pid := pids[v.rng.IntN(len(pids))]
	name, _, _ := strings.Cut(filepath.Base(all[pid]), ".")
	if n < 18 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		return name + " killed"
	}
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	return name + " suspended"
}

// watch follows the run: it copies every file of the trajectory log, and looks for two processes of one block. For a
// moment there may be two, one of which was started by an engine that died before it gave it work.
func (v *victim) watch() {
	v.t.Helper()
	files, _ := filepath.Glob(filepath.Join(string(v.run()), "trajectories", "*", "log", "*.log"))
	for _, f := range files {
		_ = os.Mkdir(filepath.Join(v.dir, "kept"), 0o700)
		_ = os.Link(f, filepath.Join(v.dir, "kept", filepath.Base(f)))
	}
	owner := map[string]int{}
	now := map[[2]int]time.Time{}
	for pid, dir := range v.processes() {
		if filepath.Base(filepath.Dir(dir)) != "blocks" {
			continue
		}
		other, taken := owner[dir]
		if !taken {
			owner[dir] = pid
			continue
		}
		key := [2]int{min(pid, other), max(pid, other)}
		since, known := v.pair[key]
		if !known {
			since = time.Now()
		}
		now[key] = since
		if time.Since(since) > 20*time.Second {
			v.t.Fatalf("processes %v both work for %s\n%s", key, filepath.Base(dir), v.story())
		}
	}
	v.pair = now
}

// story is the output of the run, for a failed test.
func (v *victim) story() string {
	var b strings.Builder
	b.WriteString(v.out.String())
	_ = event.Read(v.run().Events(), 0, func(e event.Event) error {
		switch e.Type {
		case event.Progress, event.Metrics, event.Sample, event.Checkpoint, event.Weights:
		default:
			fmt.Fprintf(&b, "%s %s %s %s %s\n", e.Time.Format("04:05.000"), e.Type, e.Address, e.Phase, e.Message)
		}
		return nil
	})
	return b.String()
}

// check compares the ended run with what is promised.
func (v *victim) check() audit {
	v.t.Helper()
	r, err := state.Read(v.run())
	if err != nil {
		v.t.Fatal(err)
	}
	if r.Status != state.Completed {
		v.t.Errorf("the run is %s: %s", r.Status, r.Error)
	}
	if b := r.Blocks[addr.Block{Kind: kind.Trainer, Plugin: "tiny", Name: "policy"}]; b == nil || b.Checkpoint == nil ||
		b.Checkpoint.Step != chaosStep {
		v.t.Errorf("the trainer's record is %+v, expected a checkpoint of step %d", b, chaosStep)
	}
	left := v.processes()
	for deadline := time.Now().Add(10 * time.Second); len(left) > 0 &&
		time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		left = v.processes() // one that an engine started before it died ends by itself within seconds
	}
	if len(left) > 0 {
		v.t.Errorf("processes are left: %v", left)
	}
	served, seq := int64(0), uint64(0)
	sent := 0.0
	if err := event.Read(v.run().Events(), 0, func(e event.Event) error {
		if e.Seq != seq+1 {
			v.t.Errorf("event %d follows event %d", e.Seq, seq)
		}
		seq = e.Seq
		if e.Type == event.Weights {
			if e.Version < served {
				v.t.Errorf("policy version %d was served after version %d", e.Version, served)
			}
			served = e.Version
		}
		if e.Type == event.Metrics && strings.HasPrefix(e.Address, "environment.") {
			sent += e.Metrics["groups_sent"]
		}
		return nil
	}); err != nil {
		v.t.Error(err)
	}
	if served < chaosStep {
		v.t.Errorf("the last policy version served is %d after %d steps", served, chaosStep)
	}
	a := v.audit()
	a.sent = int(sent)
	if a.sent > a.stored {
		v.t.Errorf("environments got acknowledgements of %d groups, the log holds %d", a.sent, a.stored)
	}
	if v.t.Failed() {
		v.t.Log(v.story())
	}
	return a
}

//docs:survival.md the engine (recipe apply) is killed
func TestRealRunSurvivesRandomKills(t *testing.T) {
	t.Parallel()
	kills, wait := 6, 1500
	if n, err := strconv.Atoi(os.Getenv(chaosKey)); err == nil {
		kills, wait = n, 2000
	} else if testing.Short() {
		t.Skip("trains for a while")
	}
	struck := map[string]int{}
	var sum audit
	total, runs := 0, 0
	for ; total < kills; runs++ {
		v := newVictim(t, uint64(runs))
		budget := min(kills-total, 12) // of one run: it must also come to its end
		cmd, done := v.apply()
		deadline := time.After(5 * time.Minute)
		look := time.NewTicker(50 * time.Millisecond)
		strike := time.After(time.Duration(300+v.rng.IntN(wait)) * time.Millisecond)
		for over := false; !over; {
			select {
			case err := <-done:
				var exit *exec.ExitError
				switch {
				case err == nil:
					over = true
				case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
					cmd, done = v.apply()
				default:
					t.Fatalf("run %d, after %d blows: apply ended with %v\n%s", runs, total, err, v.story())
				}
			case <-look.C:
				v.watch()
			case <-strike:
				if budget--; budget < 0 {
					continue
				}
				total++
				struck[v.strike(cmd.Process.Pid)]++
				strike = time.After(time.Duration(200+v.rng.IntN(wait)) * time.Millisecond)
			case <-deadline:
				t.Fatalf("run %d, after %d blows: not over after 5 minutes\n%s", runs, total, v.story())
			}
		}
		look.Stop()
		sum = sum.plus(v.check())
		if t.Failed() {
			t.Fatalf("run %d, after %d blows: %v", runs, total, struck)
		}
	}
	t.Logf("%d blows in %d runs: %v", total, runs, struck)
	t.Logf("%s", sum)
}
