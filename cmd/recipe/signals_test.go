package main

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/state"
)

//docs:survival.md Ctrl-C twice (a second or more apart), recipe stop --kill
func TestWhatSignalsAskFor(t *testing.T) {
	t.Parallel()
	type at struct {
		ms  int
		sig os.Signal
	}
	term, hup, ctrlC := syscall.SIGTERM, syscall.SIGHUP, os.Interrupt
	for name, c := range map[string]struct {
		heard []at
		want  []wish
	}{
		"Ctrl-C": {[]at{{0, ctrlC}}, []wish{drain}},
		"Ctrl-C, to the group and to the process": {[]at{{0, ctrlC}, {1, ctrlC}}, []wish{drain, nothing}},
		"Ctrl-C twice": {[]at{{0, ctrlC}, {1200, ctrlC}}, []wish{drain, kill}},
		"impatient": {[]at{{0, ctrlC}, {300, ctrlC}, {900, ctrlC}, {1500, ctrlC}},
			[]wish{drain, nothing, nothing, kill}},
		"timeout: the child, then the group": {[]at{{0, term}, {0, term}}, []wish{drain, nothing}},
		"a service manager that asks again": {[]at{{0, term}, {5000, term}, {10000, term}},
			[]wish{drain, nothing, nothing}},
		"of both kinds at once":                 {[]at{{0, term}, {5, ctrlC}}, []wish{drain, nothing}},
		"a person after a service manager":      {[]at{{0, term}, {3000, ctrlC}}, []wish{drain, kill}},
		"the terminal is closed":                {[]at{{0, hup}, {0, hup}}, []wish{leave, leave}},
		"the terminal is closed, then kill PID": {[]at{{0, hup}, {9000, term}}, []wish{leave, drain}},
		"Ctrl-C, then the terminal is closed":   {[]at{{0, ctrlC}, {2000, hup}}, []wish{drain, leave}},
		"closed while it drains, told to end again": {[]at{{0, ctrlC}, {1100, hup}, {1200, term}},
			[]wish{drain, leave, nothing}},
	} {
		var p presses
		var got []wish
		start := time.Now()
		for _, h := range c.heard {
			got = append(got, p.hear(h.sig, start.Add(time.Duration(h.ms)*time.Millisecond)))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, expected %v", name, got, c.want)
		}
	}
}

// metrics counts the steps that the run's trainer has reported.
func (w *workshop) metrics() int {
	n := 0
	files, _ := filepath.Glob(filepath.Join(w.dir, ".recipe", "quickstart", "events", "*.jsonl"))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		n += bytes.Count(text, []byte(`"type":"metrics","address":"trainer.tiny.policy"`))
	}
	return n
}

// A signal to the process and another to its group at the same moment, as timeout(1) sends them, drain instead of
// killing.
//
//docs:survival.md SIGTERM (timeout, a service manager), any number of times; Ctrl-C and SIGTERM together, …
func TestSignalsOfOneMomentDrain(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorkshop(t)
			var out bytes.Buffer
			cmd := w.command("apply", "-y", "--var", "steps=1000000", "quickstart.hcl")
			cmd.Stdout, cmd.Stderr = &out, &out
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the trainer has made a step", func() bool { return w.metrics() > 0 })
			for _, pid := range []int{cmd.Process.Pid, -cmd.Process.Pid, cmd.Process.Pid} {
				_ = syscall.Kill(pid, sig)
			}
			err := cmd.Wait()
			if cmd.ProcessState.ExitCode() != exitStopped ||
				!strings.Contains(out.String(), "The run is stopped. Continue with") {
				t.Errorf("the run was not drained, with exit code %d: %v\n%s", exitStopped, err, &out)
			}
			if r := w.record(); r.Status != state.Stopped {
				t.Errorf("the run is %s", r.Status)
			}
			if plan := w.recipe("plan", "--var", "steps=1000000", "quickstart.hcl"); !strings.Contains(plan,
				"continues from step") {
				t.Errorf("no checkpoint was written:\n%s", plan)
			}
		})
	}
}

// The terminal of an apply is closed: directly, or with the shell that started the apply, as when ssh is cut off.
//
//docs:survival.md the terminal of recipe apply is closed, or the ssh connection breaks
func TestAClosedTerminalDoesNotStopTheRun(t *testing.T) {
	t.Parallel()
	// Under nohup the shells below would inherit that SIGHUP is ignored; a signal that is caught has its default handler
	// there.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hangups) })
	for name, argv := range map[string][]string{
		"terminal": {"recipe", "apply", "-y", "--var", "steps=1000000", "quickstart.hcl"},
		"shell":    {"sh", "-c", "recipe apply -y --var steps=1000000 quickstart.hcl; true"},
		"pipe":     {"sh", "-c", "recipe apply -y --var steps=1000000 quickstart.hcl | cat; true"},
		"json":     {"recipe", "apply", "-y", "--json", "--var", "steps=1000000", "quickstart.hcl"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorkshop(t)
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Dir = w.dir
			terminal, err := pty.Start(cmd)
			if err != nil {
				t.Fatal(err)
			}
			read := make(chan struct{})
			go func() { // unread output would block the writer
				defer close(read)
				_, _ = new(bytes.Buffer).ReadFrom(terminal)
			}()
			eventually(t, "the trainer has made a step", func() bool { return w.metrics() > 0 })
			dir := state.DirOf(w.dir, "quickstart")
			engine := state.Holder(dir)
			if engine == nil {
				t.Fatal("no engine is running on the run")
			}
			_ = terminal.Close()
			<-read
			said := func() string {
				text, _ := os.ReadFile(session.EngineLog(dir))
				return string(text)
			}
			eventually(t, "the engine has left the terminal",
				func() bool { return strings.Contains(said(), "the terminal was closed") })
			before := w.metrics()
			eventually(t, "the trainer goes on", func() bool { return w.metrics() > before+3 })
			if now := state.Holder(dir); now == nil || now.PID != engine.PID {
				t.Errorf("engine %d worked on the run, now %v", engine.PID, now)
			}
			if out := w.recipe("stop"); !strings.Contains(out, "The run is stopped") {
				t.Errorf("recipe stop says:\n%s", out)
			}
			_ = cmd.Wait() // processes that were started at the terminal end somehow
			eventually(t, "the engine ends", func() bool { return syscall.Kill(engine.PID, 0) != nil })
			if text := said(); name != "pipe" && name != "json" &&
				!strings.Contains(text, "The run is stopped. Continue with") || strings.Contains(text, "\x1b[") {
				t.Errorf("engine.log holds\n%q", text)
			}
		})
	}
}
