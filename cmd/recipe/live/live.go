// Package live is the view of a run that fills a terminal: the blocks and what they wait for, progress, curves, the log
// and the samples. What it shows is a function of the event log and of a few facts that are asked for beside it; what a
// key may change in the run goes to the engine's socket, as the commands of the same names.
package live

import (
	"os"
	"sync/atomic"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/lazyregexp"
)

const (
	framesPerSecond = 10
	batchEvery      = 200 * time.Millisecond // events reach the screen together
	maxBatch        = 4096
	factsEvery      = 2 * time.Second
	keptNotable     = 200 // lines that are printed when the view has ended
)

// Commands are what keys change in a run. Each returns a line that says what came of it.
type Commands interface {
	Stop() string
	Pause(paused bool) string // false: resume
	Restart(address string) string
	Checkpoint(address string) string
}

// Options are what a view is of.
type Options struct {
	In, Out  *os.File
	Environ  []string // as os.Environ
	Style    view.Style
	Name     string
	Dir      state.Dir
	Since    time.Time // events before it are not repeated when the view has ended
	Commands Commands
	// Dashboard is the address of the page that shows the run meanwhile; empty: there is none.
	Dashboard string
	// CtrlC is what Ctrl-C does in the view. Nil: it ends the view, as q does, and the view stays open after the end of
	// the run. Else q leaves the view, plain lines follow, and the view ends with the run.
	CtrlC func()
}

// View is one view of a run. Its methods but Follow may be called from anywhere.
type View struct {
	opts    Options
	out     *gate
	said    chan string
	lost    func(error)
	program *tea.Program
	model   *model
	source  *source
	ended   chan struct{} // closed when the program has ended
}

// New makes a view. It does nothing before Follow.
func New(o Options) *View {
	v := &View{opts: o, out: &gate{file: o.Out}, said: make(chan string, 4), ended: make(chan struct{})}
	v.source = &source{dir: o.Dir}
	v.model = &model{
		screen: screen{style: o.Style, name: o.Name, run: newRun(), now: time.Now(), keys: "q leaves the view",
			reading:   true,
			dashboard: o.Dashboard},
		commands: o.Commands, ctrlC: o.CtrlC, read: v.source.sample}
	if o.CtrlC != nil {
		v.model.screen.keys, v.model.screen.stops = "ctrl-c stops the run", true
	}
	v.program = tea.NewProgram(v.model, tea.WithInput(o.In), tea.WithOutput(v.out), tea.WithEnvironment(o.Environ),
		tea.WithoutSignalHandler(), tea.WithFPS(framesPerSecond))
	return v
}

// gate is a terminal that can be closed: after that, what is written is lost. It implements what Bubble Tea needs to
// recognize a terminal.
type gate struct {
	file   *os.File
	closed atomic.Bool
}

// Fd implements term.File.
func (g *gate) Fd() uintptr { return g.file.Fd() }

// Read implements term.File.
func (g *gate) Read(p []byte) (int, error) { return g.file.Read(p) }

// Close implements term.File. The terminal stays open.
func (g *gate) Close() error { return nil }

func (g *gate) Write(p []byte) (int, error) {
	if g.closed.Load() {
		return len(p), nil
	}
	if _, err := g.file.Write(unbounded(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

var margins = lazyregexp.New(`\x1b\[\d+;\d+r`)

// unbounded returns a frame that leaves the terminal without margins. Bubble Tea scrolls lines between margins and then
// sets them to the first and the last line of the screen; a terminal that has grown before the frame arrives would keep
// the last line of the smaller screen as a margin, and all later frames would be scrolled.
func unbounded(frame []byte) []byte {
	set := false
	return margins.ReplaceAllFunc(frame, func(sequence []byte) []byte {
		if set = !set; set {
			return sequence
		}
		return []byte("\x1b[r")
	})
}

// Lost sets what is called when nothing can be shown any more.
func (v *View) Lost(f func(error)) { v.lost = f }

// Draining answers the first Ctrl-C, Killing the second.
func (v *View) Draining() { v.say(view.DrainingText) }

// Killing answers the second Ctrl-C.
func (v *View) Killing() { v.say(view.KillingText) }

func (v *View) say(text string) {
	select {
	case v.said <- text:
	default: // no follower
	}
}

// Leave ends the output: the terminal was closed. Follow continues.
func (v *View) Leave() {
	v.out.closed.Store(true)
	go v.program.Quit() // blocks before the program has started
	select {
	case <-v.ended:
	case <-time.After(time.Second):
		v.program.Kill()
	}
}
