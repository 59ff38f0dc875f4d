package proc_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/sdk/proc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sh(t *testing.T, script string, change ...func(*proc.Spec)) *proc.Program {
	t.Helper()
	s := proc.Spec{Name: "test", Argv: []string{"sh", "-c", script}, LogDir: t.TempDir()}
	for _, f := range change {
		f(&s)
	}
	p, err := proc.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(context.Background(), 0); err != nil {
			t.Error(err)
		}
	})
	return p
}

// wait polls for a condition.
func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within 30s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// said waits until the program has written that many lines, and returns them as numbers.
func said(t *testing.T, p *proc.Program, lines int) []int {
	t.Helper()
	wait(t, fmt.Sprintf("%d lines", lines), func() bool { return len(strings.Fields(p.Tail(lines))) == lines })
	var out []int
	for _, word := range strings.Fields(p.Tail(lines)) {
		n, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}

func alive(pid int) bool {
	start, err := proc.StartOf(pid)
	return err == nil && proc.Same(pid, start)
}

func TestAProgramRunsWritesAndEnds(t *testing.T) {
	t.Parallel()
	p := sh(t, "echo out; echo err >&2; exit 3")
	<-p.Done()
	if p.Err() == nil || !strings.Contains(p.Err().Error(), "3") {
		t.Errorf("it ended with %v", p.Err())
	}
	if tail := p.Tail(5); tail != "out\nerr" {
		t.Errorf("it wrote %q", tail)
	}
	if err := p.Explain(p.Err()); !strings.Contains(err.Error(), "exit status 3") ||
		!strings.Contains(err.Error(), "err") {
		t.Errorf("explained as %v", err)
	}
	info, err := os.Stat(p.Handle().Log)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("log file %v, %v", info, err)
	}
	if p.Handle().Alive() {
		t.Error("its handle says that it runs")
	}
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, proc.ErrGone) {
		t.Errorf("a signal to it: %v", err)
	}
}

func TestAProgramThatIsNotThere(t *testing.T) {
	t.Parallel()
	for _, argv := range [][]string{nil, {"/no/such/program"}} {
		if _, err := proc.Start(t.Context(), proc.Spec{Argv: argv, LogDir: t.TempDir()}); err == nil {
			t.Errorf("%v was started", argv)
		}
	}
}

func TestTheEnvironmentOfTheCallerStaysAsItIs(t *testing.T) {
	t.Parallel()
	env := append(make([]string, 0, 8), "A=1")
	p := sh(t, "echo $A", func(s *proc.Spec) { s.Env = env })
	<-p.Done()
	if more := env[:2]; more[1] != "" || p.Tail(1) != "1" {
		t.Errorf("the environment is %q, the program saw %q", more, p.Tail(1))
	}
}

func TestStopIsGentleFirst(t *testing.T) {
	t.Parallel()
	p := sh(t, `trap 'echo 7; exit 0' TERM; echo 1; while :; do sleep 0.05; done`)
	said(t, p, 1)
	if err := p.Stop(context.Background(), 20*time.Second); err != nil {
		t.Fatal(err)
	}
	if tail := p.Tail(1); tail != "7" {
		t.Errorf("the last line is %q: it had no chance to end by itself", tail)
	}
}

// The helper would die of SIGTERM with what it holds; the program asks it to write that first, as W&B's client does.
func TestStopLetsAProgramEndItsHelpers(t *testing.T) {
	t.Parallel()
	p := sh(t, `sh -c 'trap "echo 7; exit 0" USR1; echo 1; while :; do sleep 0.05; done' & helper=$!
trap 'kill -USR1 $helper; wait $helper; exit 0' TERM
while :; do sleep 0.05; done`)
	said(t, p, 1)
	if err := p.Stop(context.Background(), 20*time.Second); err != nil {
		t.Fatal(err)
	}
	if tail := p.Tail(1); tail != "7" {
		t.Errorf("the last line is %q: the helper was ended before the program could ask for its records", tail)
	}
}

// A shell without a trap ends at SIGTERM and leaves its command behind, which has the grace period, too.
func TestStopIsGentleWithWhatIsLeftBehind(t *testing.T) {
	t.Parallel()
	p := sh(t, `sh -c 'trap "echo 7; exit 0" TERM; echo 1; while :; do sleep 0.05; done'; true`)
	said(t, p, 1)
	if err := p.Stop(context.Background(), 20*time.Second); err != nil {
		t.Fatal(err)
	}
	if tail := p.Tail(1); tail != "7" {
		t.Errorf("the last line is %q: the command had no chance to end by itself", tail)
	}
}

// Its children ignore SIGTERM, one has a group of its own, one a session of its own with a parent that has gone.
//
//docs:troubleshooting.md vLLM's engine processes outlive a killed server and hold its memory
func TestStopEndsTheWholeFamily(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/usr/bin/setsid"); err != nil {
		t.Skip("there is no setsid here")
	}
	p := sh(t, `trap '' TERM
sh -c 'trap "" TERM; echo $$; while :; do sleep 1; done' &
setsid sh -c 'trap "" TERM; echo $$; while :; do sleep 1; done' &
(setsid sh -c 'echo $$; while :; do sleep 1; done' &)
while :; do sleep 1; done`)
	pids := append(said(t, p, 3), p.PID())
	if err := p.Stop(context.Background(), 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("pid %d is still there", pid)
		}
	}
}

//docs:survival.md orphans hold GPU memory
//docs:troubleshooting.md vLLM's engine processes outlive a killed server and hold its memory
func TestStopAfterTheLeaderHasDiedEndsTheRest(t *testing.T) {
	t.Parallel()
	p := sh(t, `sh -c 'echo $$; while :; do sleep 1; done' & exit 1`)
	child := said(t, p, 1)[0]
	<-p.Done()
	if !alive(child) {
		t.Fatal("the child ended with its parent")
	}
	if err := p.Stop(context.Background(), time.Second); err != nil {
		t.Fatal(err)
	}
	if alive(child) {
		t.Errorf("pid %d is still there", child)
	}
}

func TestAdoptFromAHandle(t *testing.T) {
	t.Parallel()
	first := sh(t, `echo $$; while :; do sleep 0.05; done`,
		func(s *proc.Spec) { s.Ports, s.Data = []int{8000}, "replica 0" })
	said(t, first, 1)
	handles := proc.Parse(proc.Encode(first.Handle()))
	if len(handles) != 1 || handles[0].Ports[0] != 8000 || handles[0].Data != "replica 0" {
		t.Fatalf("handles %+v", handles)
	}
	second, err := proc.Adopt(handles[0])
	if err != nil {
		t.Fatal(err)
	}
	if second.PID() != first.PID() || second.Tail(1) != strconv.Itoa(first.PID()) {
		t.Errorf("adopted pid %d with tail %q, want pid %d", second.PID(), second.Tail(1), first.PID())
	}
	if err := second.Stop(context.Background(), time.Second); err != nil {
		t.Fatal(err)
	}
	<-first.Done()
	if _, err := proc.Adopt(handles[0]); !errors.Is(err, proc.ErrGone) {
		t.Errorf("adopting a dead program: %v", err)
	}
}

func TestAStrangerIsNeverTouched(t *testing.T) {
	t.Parallel()
	stranger := sh(t, "while :; do sleep 0.05; done")
	for name, change := range map[string]func(*proc.Handle){
		"another start":                    func(h *proc.Handle) { h.Start++ },
		"another boot":                     func(h *proc.Handle) { h.Boot = "earlier" },
		"another mark":                     func(*proc.Handle) {},
		"no mark":                          func(h *proc.Handle) { h.Mark = "" },
		"another leader of the same group": func(h *proc.Handle) { h.PID, h.Start = startless, 1 },
	} {
		h := stranger.Handle()
		h.Mark = "0123456789abcdef01234567"
		change(&h)
		if runtime.GOOS != "linux" && strings.HasSuffix(name, "mark") {
			continue // the system does not report it
		}
		if h.Alive() {
			t.Errorf("%s: it is taken for the program", name)
		}
		if err := proc.KillAll(t.Context(), []proc.Handle{h}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := proc.KillSession(t.Context(), proc.Session{Leader: stranger.PID(), Start: stranger.Handle().Start + 1,
		Mark: "RECIPE_PROGRAM=" + stranger.Handle().Mark}); err != nil {
		t.Error(err)
	}
	if !stranger.Handle().Alive() {
		t.Error("a stranger was killed")
	}
	if proc.KillSession(t.Context(), proc.Session{Leader: 1, Start: 1}) == nil ||
		proc.KillSession(t.Context(), proc.Session{Start: 1}) == nil {
		t.Error("the session of init may be killed")
	}
}

// startless is a pid that nobody has.
const startless = 1 << 22

// A program that sets its own title (as vLLM's processes do) writes it over its environment, wholly or in part; it is
// still found by the log that it writes, and so is a process that it started in another session.
func TestAProgramThatOverwritesItsEnvironmentIsFound(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if runtime.GOOS != "linux" || err != nil {
		t.Skip("needs Linux and python3")
	}
	for name, overwrite := range map[string]string{
		"whole":             `ctypes.memset(start, 0, end - start)`,
		"all but the first": `ctypes.memset(start + 20, 0, end - start - 20)`,
		"title":             `ctypes.memmove(start, b"VLLM::EngineCore".ljust(end - start - 12, bytes(1)), end - start - 12)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := sh(t, "unused", func(s *proc.Spec) {
				s.Env = []string{"PATH=" + os.Getenv("PATH"), "FIRST=" + strings.Repeat("1", 50), "SECOND=2"}
				s.Argv = []string{python, "-c", `
import ctypes, os, time
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
start, end = int(fields[47]), int(fields[48])
` + overwrite + `
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    print(os.getpid(), flush=True)
time.sleep(600)`}
			})
			far := said(t, p, 1)[0]
			if !p.Handle().Alive() {
				t.Error("the program is not found any more")
			}
			h := p.Handle()
			for _, log := range []string{filepath.Join(t.TempDir(), "another.log"), os.DevNull} {
				h.Log = log
				if h.Alive() {
					t.Errorf("a process that does not write %s is taken for the program", log)
				}
			}
			if err := proc.KillAll(t.Context(), []proc.Handle{p.Handle()}); err != nil {
				t.Error(err)
			}
			<-p.Done()
			wait(t, "end of the process in another session", func() bool { return !alive(far) })
		})
	}
}

func TestTheLogIsRotated(t *testing.T) {
	t.Parallel()
	p := sh(t, `i=0; while [ $i -lt 3000 ]; do echo "line number $i of the log"; i=$((i+1)); done; sleep 600`,
		func(s *proc.Spec) { s.MaxLog = 20_000 })
	wait(t, "rotated log", func() bool {
		info, err := os.Stat(p.Handle().Log + ".1")
		return err == nil && info.Size() > 0
	})
	info, err := os.Stat(p.Handle().Log + ".1")
	if err != nil || info.Size() > 20_000 {
		t.Errorf("the rotated log: %v, %v", info, err)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, data := range []string{"", "not json", "[1]", `{"other": true}`} {
		if h := proc.Parse([]byte(data)); len(h) != 0 {
			t.Errorf("Parse(%q) is %v", data, h)
		}
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	if got := proc.Tail(path, 3); got != "" {
		t.Errorf("tail of nothing: %q", got)
	}
	if err := os.WriteFile(path, []byte("a\nb\nc\nd\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := proc.Tail(path, 3); got != "b\nc\nd" {
		t.Errorf("tail: %q", got)
	}
}

func TestWatchIsTold(t *testing.T) {
	t.Parallel()
	p := sh(t, "sleep 600")
	exited, cancel := proc.Watch(p.PID(), p.Handle().Start)
	defer cancel()
	other := sh(t, "exit 0") // once its end is noticed, that of the first one would have been, too
	over, stop := proc.Watch(other.PID(), other.Handle().Start)
	defer stop()
	<-over
	select {
	case <-exited:
		t.Fatal("a living process was said to have ended")
	default:
	}
	if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-exited:
	case <-time.After(30 * time.Second):
		t.Fatal("its end was not reported")
	}
	again, done := proc.Watch(p.PID(), p.Handle().Start)
	defer done()
	<-again // has ended already
}
