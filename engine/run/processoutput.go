package run

import (
	"fmt"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/host"
)

// outputEvery is the interval between reads of a plugin process's output.
const outputEvery = time.Second

// Limits for a plugin that prints without end and would fill the run's log: lines at once, then lines a second. The
// newest lines are in its files.
const (
	printedBurst = 200
	printedRate  = 5
)

// processOutput copies what a plugin process prints into the run's log.
type processOutput struct {
	attempt *attempt
	output  *host.Output
	room    float64 // lines that may be logged now
	since   time.Time
	left    int // lines left out since the last one that was logged
}

func newProcessOutput(at *attempt) *processOutput {
	p := &processOutput{attempt: at, room: printedBurst, since: at.e.now()}
	dir := at.e.opts.Dir.Block(at.block)
	if at.adopt != nil {
		p.output = host.ResumeOutput(dir)
	} else {
		p.output = host.NewOutput(dir)
	}
	return p
}

// next logs what was printed since the last call; ended: the process has ended.
func (p *processOutput) next(ended bool) {
	now := p.attempt.e.now()
	p.room = min(printedBurst, p.room+printedRate*max(0, now.Sub(p.since).Seconds()))
	p.since = now
	for p.output.Next(ended, p.line) && ended { // a call reads a limited amount
	}
	if ended {
		p.reportDropped()
	}
}

func (p *processOutput) line(l host.OutputLine) {
	if p.room < 1 {
		p.left++
		return
	}
	p.reportDropped()
	p.room--
	p.attempt.e.append(event.Event{Type: event.LogLine, Address: p.attempt.block.String(),
		BlockAttempt: p.attempt.number, Level: "info", Stream: l.Stream, Message: l.Text})
}

// reportDropped logs how many lines were left out.
func (p *processOutput) reportDropped() {
	if p.left == 0 {
		return
	}
	p.attempt.e.append(event.Event{Type: event.LogLine, Address: p.attempt.block.String(),
		BlockAttempt: p.attempt.number, Level: "warn",
		Message: fmt.Sprintf("%d lines of its output were dropped; they are in %s", p.left,
			p.attempt.e.opts.Dir.Block(p.attempt.block))})
	p.left = 0
}
