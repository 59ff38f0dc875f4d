package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"

	"github.com/recipe-rl/recipe/engine/state"
)

// seat is a command at a terminal of its own.
type seat struct {
	t      *testing.T
	cmd    *exec.Cmd
	keys   *os.File
	screen *vt.SafeEmulator
	link   sync.Mutex // held: nothing that the command writes arrives
	mu     sync.Mutex
	shown  bytes.Buffer // all that was written
}

// seat starts a command at a terminal of 120 × 40 without colors.
func (w *workshop) seat(args ...string) *seat {
	w.t.Helper()
	return w.seatOf(120, 40, "NO_COLOR=1", args...)
}

// seatOf starts a command at a terminal of a size, with one more environment variable.
func (w *workshop) seatOf(cols, rows int, env string, args ...string) *seat {
	w.t.Helper()
	s := &seat{t: w.t, cmd: w.command(args...), screen: vt.NewSafeEmulator(cols, rows)}
	s.cmd.Env = append(slices.DeleteFunc(s.cmd.Env, aboutColor), "TERM=xterm-256color", env)
	var err error
	if s.keys, err = pty.StartWithSize(s.cmd, size(cols, rows)); err != nil {
		w.t.Fatal(err)
	}
	var copying sync.WaitGroup
	copying.Go(s.read)
	copying.Go(func() { _, _ = io.Copy(s.keys, s.screen) }) // the answers of the terminal
	w.t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // it has ended, unless the test failed
		_ = s.keys.Close()
		_ = s.screen.InputPipe().(io.Closer).Close()
		copying.Wait()
	})
	return s
}

// aboutColor reports whether programs decide about colors by an environment variable.
func aboutColor(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return slices.Contains([]string{"NO_COLOR", "COLORTERM", "CLICOLOR", "CLICOLOR_FORCE", "TMUX"}, name)
}

func size(cols, rows int) *pty.Winsize { return &pty.Winsize{Cols: uint16(cols), Rows: uint16(rows)} }

func (s *seat) read() {
	buf := make([]byte, 4096)
	for {
		s.link.Lock()
		s.link.Unlock() //nolint:staticcheck // waits while a test holds the link
		n, err := s.keys.Read(buf)
		s.mu.Lock()
		s.shown.Write(buf[:n])
		s.mu.Unlock()
		_, _ = s.screen.Write(buf[:n])
		if err != nil {
			return
		}
	}
}

// lines are those that are on the screen now.
func (s *seat) lines() []string {
	lines := strings.Split(ansi.Strip(s.screen.Render()), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " \r")
	}
	return lines
}

// sees waits until what is on the screen matches, and returns the first group of the match.
func (s *seat) sees(pattern string) string {
	s.t.Helper()
	re, screen := regexp.MustCompile(pattern), ""
	var found []string
	eventually(s.t, pattern+" on the screen", func() bool {
		screen = strings.Join(s.lines(), "\n")
		found = re.FindStringSubmatch(screen)
		return found != nil
	}, &screen)
	return found[len(found)-1]
}

func (s *seat) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.String()
}

func (s *seat) shows(text string) {
	s.t.Helper()
	eventually(s.t, text+" is shown", func() bool { return strings.Contains(s.text(), text) })
}

func (s *seat) press(keys string) {
	s.t.Helper()
	if _, err := s.keys.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// ends waits until the command has ended well.
func (s *seat) ends() { s.t.Helper(); s.endsWith(exitDone) }

// endsWith waits until the command has ended with an exit code.
func (s *seat) endsWith(code int) {
	s.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.cmd.Wait() }()
	select {
	case err := <-ended:
		if s.cmd.ProcessState.ExitCode() != code {
			s.t.Errorf("%v, expected the exit code %d\n%q", err, code, s.text())
		}
	case <-time.After(time.Minute):
		s.t.Fatalf("%s has not ended within a minute", s.cmd)
	}
}

// The live view of an apply beside that of a status, with a real run below both.
//
//docs:survival.md samples can hardly be looked at
func TestARunInTwoLiveViews(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	apply := w.seat("apply", "-y", "--var", "steps=1000000", "quickstart.hcl")
	apply.shows("/1000000 steps")
	apply.shows("waits for") // what the blocks report to the engine
	apply.shows("─ samples ")
	status := w.seat("status", "--watch")
	status.shows("/1000000 steps")
	status.press("s")
	status.shows("completion 1 of 16")
	status.press("q")
	status.ends()
	eventually(t, "the state is printed after the view", func() bool {
		_, after, _ := strings.Cut(status.text(), "\x1b[?1049l")
		return strings.Contains(after, "quickstart: running")
	})
	apply.press("\x03")
	apply.endsWith(exitStopped)
	apply.shows("The run is stopped. Continue with")
	if r := w.record(); r.Status != state.Stopped {
		t.Errorf("the run is %s", r.Status)
	}
}

// The quickstart from start to end: blocks that start, steps, and below the view what is left of it.
func TestTheLiveViewOfAWholeRun(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	s := w.seat("apply", "-y", "--var", "steps=20", "quickstart.hcl")
	s.sees(`(?m)^[▸ ] \d  trainer\.tiny\.policy +(pending|starting|loading|ready) .*← 3 1`)
	s.sees(`[1-9]\d*/20 steps`)
	s.sees(`(?m)^reward .*[▁▂▃▄▅▆▇█]`)
	s.ends()
	s.shows("the start order of the blocks") // the last line
	_, left, over := strings.Cut(s.text(), "\x1b[?1049l")
	if !over {
		t.Fatalf("the view was not left: %q", s.text())
	}
	for _, want := range []string{"run completed", `trainer\.tiny\.policy +completed +20/20`, "checkpoint of step 20"} {
		if !regexp.MustCompile(want).MatchString(left) {
			t.Errorf("%q is not on the screen at the end:\n%s", want, left)
		}
	}
}

// Without a person at the terminal, or on request, lines are printed.
func TestNoLiveViewWithoutAPerson(t *testing.T) {
	t.Parallel()
	for name, argv := range map[string][]string{
		"plain":      {"recipe", "apply", "-y", "--plain", "--var", "steps=2", "quickstart.hcl"},
		"input":      {"sh", "-c", "recipe apply -y --var steps=2 quickstart.hcl </dev/null"},
		"background": {"sh", "-c", "set -m; recipe apply -y --var steps=2 quickstart.hcl & wait"},
		"dumb":       {"sh", "-c", "TERM=dumb recipe apply -y --var steps=2 quickstart.hcl"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorkshop(t)
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Dir, cmd.Env = w.dir, append(os.Environ(), "TERM=xterm-256color")
			terminal, err := pty.Start(cmd)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			_, _ = out.ReadFrom(terminal) // ends with an error when the other side is closed
			_ = terminal.Close()
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v\n%s", err, &out)
			}
			if text := out.String(); strings.Contains(text, "\x1b[?1049h") || !strings.Contains(text, "run completed") {
				t.Errorf("lines were expected: %q", text)
			}
		})
	}
}
