package live

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/creack/pty"
	"golang.org/x/term"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/engine/state"
)

// terminal is a pseudo-terminal with a view in it and the log that the view follows.
type terminal struct {
	t            *testing.T
	keys, inside *os.File
	before       *term.State // of the terminal, before the view had it
	log          *event.Log
	view         *View
	snap         *snapshot.Snapshot
	ended        chan error
	mu           sync.Mutex
	shown        bytes.Buffer
	called       []string
}

func (r *terminal) call(what string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.called = append(r.called, what)
	return what + " is done"
}

func (r *terminal) Stop() string                  { return r.call("stop") }
func (r *terminal) Pause(paused bool) string      { return r.call(fmt.Sprintf("pause %v", paused)) }
func (r *terminal) Restart(address string) string { return r.call("restart " + address) }
func (r *terminal) Checkpoint(a string) string    { return r.call("checkpoint " + a) }

// text is all that was written to the terminal.
func (r *terminal) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shown.String()
}

// newTerminal shows a run in a terminal of 100 × 30. Apply chooses the view of recipe apply, else that of status.
func newTerminal(t *testing.T, list []event.Event, apply bool) *terminal {
	t.Helper()
	keys, inside, err := pty.Open()
	if err == nil {
		err = pty.Setsize(keys, &pty.Winsize{Cols: 100, Rows: 30})
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := state.DirOf(t.TempDir(), "quickstart")
	log, err := event.Open(dir.Events())
	if err != nil {
		t.Fatal(err)
	}
	before, err := term.GetState(int(keys.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	r := &terminal{t: t, keys: keys, inside: inside, before: before, log: log, ended: make(chan error, 1)}
	var reading sync.WaitGroup
	reading.Go(r.read)
	r.append(list...)
	o := Options{In: inside, Out: inside, Environ: []string{"TERM=xterm-256color"}, Style: view.Style{Terminal: true},
		Name: "quickstart", Dir: dir, Since: began, Commands: r}
	if apply {
		o.CtrlC = func() { r.call("ctrl-c"); r.view.Draining() }
	}
	r.view = New(o)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	go func() {
		snap, err := r.view.Follow(ctx, dir.Events())
		r.snap = snap
		r.ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		_ = inside.Close()
		_ = keys.Close()
		reading.Wait()
		_ = log.Close()
	})
	return r
}

func (r *terminal) read() {
	buf := make([]byte, 4096)
	for {
		n, err := r.keys.Read(buf)
		r.mu.Lock()
		r.shown.Write(buf[:n])
		r.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (r *terminal) append(list ...event.Event) {
	r.t.Helper()
	for _, e := range list {
		e.Time = time.Now()
		if _, err := r.log.Append(e); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *terminal) press(keys string) {
	r.t.Helper()
	if _, err := r.keys.WriteString(keys); err != nil {
		r.t.Fatal(err)
	}
}

// await waits until a text was written or a command called.
func (r *terminal) await(what string, holds func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("not within 30 s: %s; called %v, shown:\n%q", what, r.called, r.text())
		}
	}
}

func (r *terminal) shows(text string) {
	r.t.Helper()
	r.await(text, func() bool { return strings.Contains(r.text(), text) })
}

func (r *terminal) calls(want ...string) {
	r.t.Helper()
	r.await(fmt.Sprint("calls of ", want), func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return fmt.Sprint(r.called) == fmt.Sprint(want)
	})
}

func (r *terminal) end() {
	r.t.Helper()
	select {
	case err := <-r.ended:
		if err != nil {
			r.t.Error(err)
		}
	case <-time.After(30 * time.Second):
		r.t.Fatalf("the view has not ended within 30 s; shown:\n%q", r.text())
	}
}

// after is what was written after the view had left the alternate screen.
func (r *terminal) after() string {
	const leave = "\x1b[?1049l"
	r.shows(leave)
	_, rest, _ := strings.Cut(r.text(), leave)
	return rest
}

func TestKeysOfAWatchedRun(t *testing.T) {
	t.Parallel()
	r := newTerminal(t, events(false), false)
	r.shows("environment.arithmetic.sums")
	r.press("xn")
	r.press("xy")
	r.calls("stop")
	r.shows("stop is done")
	r.press("3ry")
	r.calls("stop", "restart "+environment)
	r.press("cy")
	r.calls("stop", "restart "+environment, "checkpoint "+trainer)
	r.press("py")
	r.calls("stop", "restart "+environment, "checkpoint "+trainer, "pause true")
	r.append(event.Event{Type: event.Paused})
	r.shows("paused: recipe resume continues it")
	r.press("py")
	r.calls("stop", "restart "+environment, "checkpoint "+trainer, "pause true", "pause false")
	r.press("?")
	r.shows("hold the display")
	r.press("\x1b[B") // down: nothing to scroll
	r.append(event.Event{Type: event.RunEnded, Phase: "completed"})
	r.press("q")
	r.end()
	if r.snap.Blocks[trainer].Step != 30 {
		t.Errorf("the snapshot: %+v", r.snap.Blocks[trainer])
	}
	if after, err := term.GetState(int(r.keys.Fd())); err != nil || *after != *r.before {
		t.Errorf("the terminal is not as it was: %v", err)
	}
}

func TestTheEndOfARunEndsItsView(t *testing.T) {
	t.Parallel()
	r := newTerminal(t, events(false), true)
	r.shows("environment.arithmetic.sums")
	r.append(event.Event{Type: event.RunEnded, Phase: "completed", Message: "all jobs are done"})
	r.end()
	r.await("the table", func() bool { return strings.Contains(r.after(), "30/100") })
	rest := r.after()
	for _, want := range []string{"a reply␛[2J", "no progress for 61 s", "run completed: all jobs are done", "BLOCK"} {
		if !strings.Contains(rest, want) {
			t.Errorf("%q does not stay on the screen: %q", want, rest)
		}
	}
	if r.snap.Status != "completed" {
		t.Errorf("the snapshot is of a run that is %s", r.snap.Status)
	}
}

func TestCtrlCAndQOfAnApply(t *testing.T) {
	t.Parallel()
	r := newTerminal(t, events(false), true)
	r.shows("environment.arithmetic.sums")
	r.press("\x03")
	r.calls("ctrl-c")
	r.shows("Ctrl-C again kills")
	r.press("q")
	r.shows("The run goes on here")
	r.append(event.Event{Type: event.Phase, Address: environment, Phase: "stopped"},
		event.Event{Type: event.RunEnded, Phase: "stopped"})
	r.end()
	r.await("lines", func() bool { return strings.Contains(r.after(), "run stopped") })
	if rest := r.after(); !strings.Contains(rest, environment+" stopped") ||
		!strings.Contains(rest, `output url = "http://127.0.0.1:34567/v1"`) ||
		!strings.Contains(rest, "jobs write a checkpoint") {
		t.Errorf("no lines follow the view: %q", rest)
	}
}

func TestAViewWhoseTerminalIsClosed(t *testing.T) {
	t.Parallel()
	r := newTerminal(t, events(false), true)
	r.shows("environment.arithmetic.sums")
	r.view.Leave()
	length := len(r.text())
	r.append(event.Event{Type: event.Phase, Address: trainer, Phase: "completed"},
		event.Event{Type: event.RunEnded, Phase: "completed"})
	r.end()
	if r.snap.Status != "completed" {
		t.Error("the run was not followed to its end")
	}
	if more := r.text()[length:]; strings.Contains(more, "completed") {
		t.Errorf("it went on writing: %q", more)
	}
}

func TestAResize(t *testing.T) {
	t.Parallel()
	r := newTerminal(t, events(false), false)
	r.shows("tokens/s")
	// A pseudo-terminal signals its foreground group; this process has another terminal, so the program is told.
	if err := pty.Setsize(r.keys, &pty.Winsize{Cols: 40, Rows: 10}); err != nil {
		t.Fatal(err)
	}
	r.view.program.Send(sizeOf(t, r.inside))
	r.shows("… 4 more blocks")
	r.press("q")
	r.end()
}

func TestNoFrameLeavesMargins(t *testing.T) {
	t.Parallel()
	got := string(unbounded([]byte("a\x1b[12;18r\x1b[18;1H\n\x1b[1;24rb\x1b[1;9r\n\x1b[1;24r\x1b[3;4H")))
	if want := "a\x1b[12;18r\x1b[18;1H\n\x1b[rb\x1b[1;9r\n\x1b[r\x1b[3;4H"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func sizeOf(t *testing.T, f *os.File) tea.WindowSizeMsg {
	t.Helper()
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return tea.WindowSizeMsg{Width: width, Height: height}
}

// Every text of an event may be a stranger's, the names of phases, units and metrics too.
func TestEventsControlNoTerminal(t *testing.T) {
	t.Parallel()
	const hostile = "x\u009b2J\u202e\u200b\x1b]8;;http://evil\x1b\\\x1b[8m\nforged "
	metrics := map[string]float64{"reward" + hostile: 1, "loss": 2}
	list := []event.Event{
		{Type: event.RunStarted, Message: hostile},
		{Type: event.Phase, Address: trainer, Phase: "ready" + hostile, Message: hostile, Remedy: hostile},
		{Type: event.Phase, Address: environment, Phase: "failed", Message: hostile, Remedy: hostile},
		{Type: event.Progress, Address: trainer, Step: 3, Total: 9, Unit: hostile},
		{Type: event.Metrics, Address: trainer, Step: 1, Metrics: metrics},
		{Type: event.Metrics, Address: trainer, Step: 2, Metrics: metrics},
		{Type: event.Checkpoint, Address: trainer, Path: hostile},
		{Type: event.LogLine, Address: trainer, Message: hostile, Level: "warn" + hostile},
		{Type: event.Output, Name: "url" + hostile, Value: hostile},
	}
	for _, apply := range []bool{false, true} {
		r := newTerminal(t, list, apply)
		r.shows("forged")
		r.press("1\r")
		r.shows("log, newest lines")
		r.append(event.Event{Type: event.RunEnded, Phase: "failed" + hostile, Message: "all is over" + hostile})
		r.shows("all is over")
		r.press("q")
		r.end()
		for _, bad := range []string{"\u009b", "\u202e", "\u200b", "\x1b]8", "\x1b[8m"} {
			if strings.Contains(r.text(), bad) {
				t.Errorf("apply %v: the terminal gets %q: %q", apply, bad, r.text())
			}
		}
	}
}
