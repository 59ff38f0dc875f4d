package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/engine/state"
)

// endless is a run that goes on until it is stopped.
var endless = []string{"-y", "--var", "steps=1000000", "quickstart.hcl"}

// fits waits until the overview fills the upper left part of a screen, of that size: the first line says how the run
// stands, the phases of all blocks can be read, the panes reach the right edge, the keys stand in the last line, and
// nothing is outside of it.
func (s *seat) fits(cols, rows int) {
	s.t.Helper()
	block, wrong := regexp.MustCompile(`^[▸ ] \d  \S+ +ready`), ""
	eventually(s.t, fmt.Sprintf("an overview of %d × %d", cols, rows), func() bool {
		lines := s.lines()
		screen := strings.Join(lines, "\n")
		ready, panes := 0, 0
		for _, l := range lines {
			if block.MatchString(l) {
				ready++
			}
			if strings.Contains(l, "─ samples ─") && ansi.StringWidth(l) == cols {
				panes++
			}
		}
		wrong = fmt.Sprintf("%d lines, %d blocks, %d panes:\n%s", len(lines), ready, panes, screen)
		return len(lines) >= rows && strings.Join(lines[rows:], "") == "" &&
			strings.HasPrefix(lines[0], "quickstart running") && ready == 5 && panes == 1 &&
			strings.HasPrefix(lines[rows-1], "? help") && strings.Count(screen, "? help") == 1 &&
			strings.Contains(screen, "/1000000 steps")
	}, &wrong)
}

// resize makes the terminal larger or smaller, which signals its command, and waits until the overview fills it. x/vt
// fails on a frame that was made for more lines than it has now, so it becomes smaller only after that.
func (s *seat) resize(cols, rows int) {
	s.t.Helper()
	larger := cols > s.screen.Width()
	if larger {
		s.screen.Resize(cols, rows)
	}
	if err := pty.Setsize(s.keys, size(cols, rows)); err != nil {
		s.t.Fatal(err)
	}
	s.fits(cols, rows)
	if !larger {
		s.screen.Resize(cols, rows)
	}
}

// trained is the step of the trainer in the event log.
func (w *workshop) trained() int64 {
	w.t.Helper()
	snap, err := snapshot.Read(state.DirOf(w.dir, "quickstart").Events())
	if err != nil {
		w.t.Fatal(err)
	}
	return snap.Blocks["trainer.tiny.policy"].Step
}

// The same run in terminals of four widths, with and without colors; each is then resized to all the others.
//
//docs:terminal.md The live view
func TestTheLiveViewFillsAnyTerminal(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	w.recipe(append([]string{"apply", "--detach"}, endless...)...)
	sizes := [][2]int{{40, 24}, {80, 24}, {120, 40}, {200, 50}}
	for i, size := range sizes {
		env := [2]string{"NO_COLOR=1", "COLORTERM=truecolor"}[i%2]
		// one after the other: parallel ones wait for other tests while the endless run takes their processors
		t.Run(fmt.Sprintf("%d columns, %s", size[0], env), func(t *testing.T) {
			w := &workshop{t: t, dir: w.dir}
			s := w.seatOf(size[0], size[1], env, "status", "--watch")
			s.fits(size[0], size[1])
			for j := 1; j <= len(sizes); j++ {
				other := sizes[(i+j)%len(sizes)]
				s.resize(other[0], other[1])
			}
			s.press("q")
			s.ends()
			view, _, _ := strings.Cut(s.text(), "\x1b[?1049l")
			if colored := regexp.MustCompile(`\x1b\[[0-9;]*3\dm`).MatchString(view); colored != (i%2 == 1) {
				t.Errorf("colors with %s: %v", env, colored)
			}
		})
	}
}

// The keys of a run that goes on: a block and its log, samples, pause, resume, stop.
func TestTheKeysOfALiveView(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	s := w.seatOf(100, 30, "NO_COLOR=1", append([]string{"apply"}, endless...)...)
	s.sees(`[1-9]\d*/1000000 steps`)
	s.press("4\r")
	s.sees(`(?m)^trainer\.tiny\.policy ready`)
	s.sees(`─ log, newest lines ─`)
	s.press("k")
	s.sees(`─ log, 1 lines back ─`)
	s.press("\x1b[F") // end
	s.sees(`─ log, newest lines ─`)
	s.press("cy")
	s.sees(`(?m)^\S+ trainer\.tiny\.policy checkpoint at step`) // the log goes on below

	s.back()
	s.press("s")
	newest := s.number(`group (\d+) of trajectories`)
	s.press("\x1b[D") // left: older, but not always of the number before: groups are posted side by side
	s.sees(`(?m)^([2-9]|\d{2,}) of \d+, newest first`)
	if older := s.number(`group (\d+) of trajectories`); older == newest {
		t.Errorf("the group before %d is %d", newest, older)
	}
	s.press("\x1b[C")
	s.sees(fmt.Sprintf(`group %d of trajectories`, newest))
	s.sees(`completion 1 of 16, score`)

	s.back()
	s.press("py")
	s.sees(`(?m)^quickstart paused`)
	s.sees(`(?m)^paused$`)
	if w.record().Paused.IsZero() {
		t.Error("the record does not say that the run is paused")
	}
	s.press("?")
	s.sees(`hold the display`)
	s.back()
	step := w.trained()
	s.press("py")
	s.sees(`(?m)^quickstart running`)
	eventually(t, "a later step", func() bool { return w.trained() > step })

	s.press("xn")
	s.sees(`(?m)^\? help`)
	s.press("xy")
	s.endsWith(exitStopped)
	s.shows("The run is stopped. Continue with")
	if r := w.record(); r.Status != state.Stopped {
		t.Errorf("the run is %s", r.Status)
	}
}

// A terminal that takes no more output stops only the view: the engine in the same process goes on.
//
//docs:terminal.md What it costs
func TestATerminalThatTakesNothingDelaysNoStep(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	s := w.seat(append([]string{"apply"}, endless...)...)
	s.sees(`[1-9]\d*/1000000 steps`)
	s.link.Lock()
	s.fill()
	before := w.trained()
	eventually(t, "20 steps without a view", func() bool { return w.trained() >= before+20 })
	s.link.Unlock()
	eventually(t, "the view is where the run is", func() bool { return s.number(`(\d+)/1000000 steps`) >= before+20 })
	s.press("\x03")
	s.endsWith(exitStopped)
}

// fill writes characters that show nothing until the terminal takes no more.
func (s *seat) fill() {
	s.t.Helper()
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/1", s.cmd.Process.Pid))
	if err != nil {
		s.t.Skipf("the terminal of a process cannot be found here: %v", err)
	}
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	for {
		if _, err := unix.Write(fd, make([]byte, 512)); err != nil {
			return
		}
	}
}

// back returns to the overview. The key after Escape has to wait, or both would be one.
func (s *seat) back() {
	s.t.Helper()
	s.press("\x1b")
	s.sees(`─ samples ─`)
}

// number waits until a pattern is on the screen, and returns its group.
func (s *seat) number(pattern string) int64 {
	s.t.Helper()
	n, err := strconv.ParseInt(s.sees(pattern), 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}
