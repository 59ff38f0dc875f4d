package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/sdk/kit/sandbox/inside"
)

func TestMain(m *testing.M) {
	inside.Main()
	playOne()
	starts()
	goleak.VerifyTestMain(m)
}

// needs is a way of making sandboxes; a test is skipped where there is none.
func needs(t *testing.T) *Sandbox {
	t.Helper()
	s, err := Probe(t.Context(), exec.LookPath)
	if err != nil {
		t.Skip(err)
	}
	return s
}

// world is what hostile programs attack: a run with the folders of two rollouts, a process, servers.
type world struct {
	t       *testing.T
	sandbox *Sandbox
	work    string // the program's own folder
	secret  string // in the folder of another rollout
	victim  *exec.Cmd
	env     []string
	gateway *Way
}

const secretText = "a secret"

// A test's sandbox has the rollout's folder and the program at these places.
const (
	insideDir  = "/rollout"
	workInside = insideDir + "/work"
	playInside = insideDir + "/play"
)

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, sandbox: needs(t)}
	run := t.TempDir()
	w.work = filepath.Join(run, "rollouts", "line-1", "work")
	w.secret = filepath.Join(run, "rollouts", "line-2", "secret")
	for _, dir := range []string{w.work, filepath.Dir(w.secret)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = temporary.Remove(w.work) }) // folders without rights
	if err := os.WriteFile(w.secret, []byte(secretText), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteFiles(filepath.Join(run, "etc")); err != nil {
		t.Fatal(err)
	}
	w.victim = exec.Command("sleep", "300")
	if err := w.victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.victim.Process.Kill(); _ = w.victim.Wait() })
	other, gate := serve(t, "tcp", "127.0.0.1:0", "other"), serve(t, "tcp", "127.0.0.1:0", "gateway")
	name := "recipe-sandbox-test-" + strconv.Itoa(os.Getpid()) + filepath.Base(filepath.Dir(run)) + filepath.Base(run)
	serve(t, "unix", "@"+name, "abstract")
	forward, err := Forward("http://" + gate + "/v1")
	if err != nil {
		t.Fatal(err)
	}
	if w.gateway, err = forward.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(w.gateway.Close(), forward.Close()); err != nil {
			t.Error(err)
		}
	})
	_, port, _ := net.SplitHostPort(other)
	inner := strings.TrimSuffix(strings.TrimPrefix(w.gateway.Gateway().URL("http://"+gate+"/v1"), "http://"), "/v1")
	w.env = []string{secretVar + "=" + w.secret, pidVar + "=" + strconv.Itoa(w.victim.Process.Pid), portVar + "=" + port,
		abstract + "=" + name, "SANDBOX_TEST_GATEWAY=" + inner, "PATH=/usr/bin:/bin"}
	return w
}

// serve answers each connection with a text.
func serve(t *testing.T, network, address, text string) string {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte(text))
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// spec is the sandbox of a program of this test.
func (w *world) spec() Spec {
	return Spec{Argv: []string{playInside}, Dir: workInside, Files: filepath.Join(filepath.Dir(filepath.Dir(
		filepath.Dir(w.work))), "etc"),
		Mounts: []Mount{{Host: w.work, Inside: workInside, Writable: true}, {Host: w.sandbox.self,
			Inside: playInside}},
		Gateway: w.gateway.Gateway(), Tmp: 16 << 20, Timeout: 20 * time.Second, Grace: 200 * time.Millisecond,
		Output: 1 << 16,
		Limits: inside.Limits{Memory: 512 << 20, Processes: 64, FileSize: 8 << 20, Disk: 32 << 20, Files: 1000,
			OpenFiles: 1024}}
}

// play runs a program of this test in a sandbox.
func (w *world) play(name string, change func(*Spec)) (report *inside.Report, output string) {
	w.t.Helper()
	spec := w.spec()
	if change != nil {
		change(&spec)
	}
	argv, err := w.sandbox.Command(spec)
	if err != nil {
		w.t.Fatal(err)
	}
	reporter, err := NewReporter()
	if err != nil {
		w.t.Fatal(err)
	}
	defer reporter.Close()
	leak, err := os.Open(w.secret) // as a program of recipe that forgets to close it for others
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = leak.Close() }()
	cmd := exec.CommandContext(w.t.Context(), argv[0], argv[1:]...)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles, cmd.WaitDelay = &said, &said, []*os.File{reporter.File(), leak}, time.Second
	cmd.Env = append(w.env, playsVar+"="+name)
	_ = cmd.Run()
	report, err = reporter.Report()
	if err != nil {
		w.t.Fatalf("%s: %v\n%s", name, err, said.String())
	}
	return report, said.String()
}

// Programs that try to get out of the sandbox. Each fails, and what is outside is as it was.
//
//docs:environments/agent.md programs in a sandbox read, write, reach and signal nothing outside of it
func TestHostileProgramsInASandbox(t *testing.T) {
	t.Parallel()
	needs(t)
	for name := range plays() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			report, said := w.play(name, nil)
			if report.Exit == nil || *report.Exit != 0 || strings.Contains(said, escaped) {
				t.Errorf("%+v\n%s", report, said)
			}
			if text, err := os.ReadFile(w.secret); err != nil || string(text) != secretText {
				t.Errorf("the file outside: %q, %v", text, err)
			}
			if err := w.victim.Process.Signal(syscall.Signal(0)); err != nil {
				t.Errorf("the process outside: %v", err)
			}
		})
	}
}

// Programs that use more than they may are ended, or get no more.
//
//docs:environments/agent.md limits of a sandbox hold without cgroups
func TestLimitsOfASandbox(t *testing.T) {
	t.Parallel()
	needs(t)
	for name, c := range map[string]struct {
		limit  string // of the report
		said   string
		exit   int // 0: it is ended
		late   bool
		change func(*Spec)
	}{
		"forks":              {limit: "processes and threads, 64 are allowed"},
		"threads":            {limit: "processes and threads, 64 are allowed", exit: 2}, // for root nothing else holds
		"takes memory":       {limit: "MiB of memory, 512 are allowed", exit: 2},
		"shares the work":    {limit: "MiB of memory, 512 are allowed", change: many},
		"maps shared memory": {limit: "MiB of memory, 512 are allowed"},
		"maps without use":   {limit: "MiB of memory, 512 are allowed"},
		"fills sockets":      {limit: "MiB of memory, 512 are allowed"},
		"orphans sockets":    {limit: "MiB of memory, 512 are allowed"},
		"divides its memory": {limit: "MiB of memory, 200 are allowed", change: tight},
		"watches files":      {limit: "files watched by epoll, 200000 are allowed"},
		"makes empty files":  {limit: "MiB of memory, 512 are allowed"},
		"nests folders":      {limit: "folders are nested more than 128 deep"},
		"makes many files":   {limit: "more than 1000 files in its folders"},
		"fills its folder":   {limit: "MiB in its folders, 32 are allowed"},
		"fills /tmp":         {exit: 7, said: "no space left on device", change: large},
		"fills /dev/shm":     {exit: 7, said: "no space left on device", change: large},
		"writes one file":    {exit: 7, said: "file too large"},
		"burns":              {said: "", change: func(s *Spec) { s.Limits.CPU = time.Second }},
		"will not end":       {late: true, said: "begun", change: func(s *Spec) { s.Timeout = 500 * time.Millisecond }},
		"floods":             {late: true, said: "xxx", change: func(s *Spec) { s.Timeout = 500 * time.Millisecond }},
		"kills all":          {late: true, change: func(s *Spec) { s.Timeout = 2 * time.Second }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			report, said := w.play(name, c.change)
			exit := 0
			if report.Exit != nil {
				exit = *report.Exit
			}
			if exit != 0 && exit == c.exit && c.limit != "" { // what the kernel holds for each process comes first
				report.Limit = c.limit
			}
			if report.Limit != "" && exit == 0 {
				exit = c.exit
			}
			if !strings.Contains(report.Limit, c.limit) || (report.Limit != "") != (c.limit != "") || exit != c.exit ||
				report.Late != c.late || !strings.Contains(said, c.said) {
				t.Errorf("%+v, exit status %d; want %+v\n%.2000s", report, exit, c, said)
			}
			if len(said) > 1<<16+100 || strings.Contains(said, escaped) {
				t.Errorf("%d bytes of output, at most %d are kept: %.200s", len(said), 1<<16, said)
			}
		})
	}
}

func tight(s *Spec) { s.Limits.Memory = 200 << 20 }
func many(s *Spec)  { s.Limits.Processes = 10000 }
func large(s *Spec) { s.Limits.FileSize = 1 << 40 }

// What a program has left behind ends with it, at its own end, at its limits, and when the sandbox's maker is killed.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		name string
		late bool
	}{{"daemon", false}, {"daemon, waits", true}} {
		report, said := w.play(c.name, func(s *Spec) { s.Timeout = 2 * time.Second })
		if !strings.Contains(said, "left") || report.Late != c.late {
			t.Errorf("%s: %+v\n%s", c.name, report, said)
		}
		if left := sleeping(t); len(left) > 0 {
			t.Errorf("%s: processes %v are left", c.name, left)
		}
	}
	maker := exec.Command(w.sandbox.self)
	maker.Env = append(os.Environ(), append(w.env, makesVar+"="+w.work)...)
	maker.Stderr = os.Stderr
	if err := maker.Start(); err != nil {
		t.Fatal(err)
	}
	wait(t, "a daemon in the sandbox", func() bool { return len(sleeping(t)) > 0 })
	if err := maker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = maker.Wait()
	wait(t, "the end of all", func() bool { return len(sleeping(t)) == 0 })
}

func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// makesVar has another process make a sandbox with a daemon in it.
const makesVar = "SANDBOX_TEST_MAKES"

func starts() {
	work, ok := os.LookupEnv(makesVar)
	if !ok {
		return
	}
	s, err := Probe(context.Background(), exec.LookPath)
	if err != nil {
		panic(err)
	}
	argv, err := s.Command(Spec{Argv: []string{playInside}, Dir: "/tmp", Tmp: 1 << 20, Mounts: []Mount{
		{Host: work, Inside: workInside, Writable: true}, {Host: s.self, Inside: playInside}}})
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), playsVar+"=daemon, waits")
	fmt.Fprintln(os.Stderr, cmd.Run())
	os.Exit(1)
}

// sleeping are the processes of a daemon of these tests.
func sleeping(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range all {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), "86399.25") {
			found = append(found, filepath.Dir(path)+" "+string(text))
		}
	}
	return found
}

// The model's gateway is reached, and what a program leaves is made safe for who reads it outside.
func TestWhatASandboxAllows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if report, said := w.play("asks the gateway", nil); said != "gateway <nil> /rollout/work\n" {
		t.Errorf("%+v\n%s", report, said)
	}
	// Its last step nests folders deeper than is allowed, which is seen before its end or not.
	report, said := w.play("leaves links", nil)
	if nested := strings.Contains(report.Limit, "nested"); !nested && (report.Exit == nil || *report.Exit != 0) {
		t.Fatalf("%+v\n%s", report, said)
	}
	removed, err := Tidy(t.Context(), w.work, workInside)
	if err != nil || removed != 6 {
		t.Errorf("%d entries removed, want 6; %v", removed, err)
	}
	for _, name := range []string{"answer.txt", "up", "pipe", "closed/dots", "fixed/link"} {
		if _, err := os.Lstat(filepath.Join(w.work, name)); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
	for _, name := range []string{"inner", "own"} {
		if text, err := os.ReadFile(filepath.Join(w.work, name)); string(text) != "own" {
			t.Errorf("%s is %q, %v", name, text, err)
		}
	}
	if info, err := os.Stat(filepath.Join(w.work, "own")); err != nil || info.Mode()&os.ModeSetuid != 0 {
		t.Errorf("own: %v, %v", info, err)
	}
	if _, err := os.Stat(filepath.Join(w.work, "closed", "env")); err != nil {
		t.Error(err)
	}
}

// Without a sandbox nothing runs.
func TestProbe(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "bwrap")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho bwrap: No permissions to create new namespace >&2\nexit 1\n"),
		0o700); err != nil {
		t.Fatal(err)
	}
	for want, lookPath := range map[string]func(string) (string, error){
		"is not installed":                       func(string) (string, error) { return "", exec.ErrNotFound },
		"No permissions to create new namespace": func(string) (string, error) { return broken, nil },
		"the sandbox ended without a report":     func(string) (string, error) { return "/bin/true", nil },
	} {
		if _, err := Probe(t.Context(), lookPath); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// The time from the start of a sandbox to its end, and to the first instruction of the program in it, in milliseconds.
// SANDBOX_BENCH_SELF names the program of recipe, which is larger than this test's.
func BenchmarkStart(b *testing.B) {
	s, err := Probe(b.Context(), exec.LookPath)
	if err != nil {
		b.Skip(err)
	}
	if self := os.Getenv("SANDBOX_BENCH_SELF"); self != "" {
		s.self = self
	}
	argv, err := s.Command(Spec{Argv: []string{"/bin/date", "+%s%N"}, Dir: "/", Tmp: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	for name, argv := range map[string][]string{"bubblewrap": argv, "none": {"/bin/date", "+%s%N"}} {
		b.Run(name, func(b *testing.B) {
			var took []float64
			for b.Loop() {
				reporter, err := NewReporter()
				if err != nil {
					b.Fatal(err)
				}
				began := time.Now().UnixNano()
				cmd := exec.CommandContext(b.Context(), argv[0], argv[1:]...)
				cmd.ExtraFiles = []*os.File{reporter.File()}
				said, err := cmd.Output()
				first, _ := strconv.ParseInt(strings.TrimSpace(string(said)), 10, 64)
				if err != nil || first < began {
					b.Fatalf("%v: %s", err, said)
				}
				took = append(took, float64(first-began)/1e6)
				reporter.Close()
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2], "ms-p50")
			b.ReportMetric(took[len(took)*95/100], "ms-p95")
		})
	}
}
