package run

import (
	"fmt"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/host"
)

// outputEvery is how often it is looked whether a plugin process has printed something.
const outputEvery = time.Second

// A plugin that prints without end must not fill the run's log: so many lines at once, then so many a second. All of
// them are in its files.
const (
	printedBurst = 200
	printedRate  = 5
)

// printed copies what a plugin process prints into the run's log.
type printed struct {
	attempt *attempt
	output  *host.Output
	room    float64 // lines that may be logged now
	since   time.Time
	left    int // lines that were left out since the last one that was told
}

func newPrinted(at *attempt) *printed {
	p := &printed{attempt: at, room: printedBurst, since: at.e.now()}
	dir := at.e.opts.Dir.Block(at.block)
	if at.adopt != nil {
		p.output = host.ResumeOutput(dir)
	} else {
		p.output = host.NewOutput(dir)
	}
	return p
}

// next tells what was printed since the last call; ended: the process has ended.
func (p *printed) next(ended bool) {
	now := p.attempt.e.now()
	p.room = min(printedBurst, p.room+printedRate*max(0, now.Sub(p.since).Seconds()))
	p.since = now
	for p.output.Next(ended, p.line) && ended { // a call reads so much and no more
	}
	if ended {
		p.told()
	}
}

func (p *printed) line(l host.OutputLine) {
	if p.room < 1 {
		p.left++
		return
	}
	p.told()
	p.room--
	p.attempt.e.append(event.Event{Type: event.LogLine, Address: p.attempt.block.String(),
		BlockAttempt: p.attempt.number, Level: "info", Stream: l.Stream, Message: l.Text})
}

// told says how many lines were left out.
func (p *printed) told() {
	if p.left == 0 {
		return
	}
	p.attempt.e.append(event.Event{Type: event.LogLine, Address: p.attempt.block.String(),
		BlockAttempt: p.attempt.number, Level: "warn",
		Message: fmt.Sprintf("%d lines of its output were dropped; they are in %s", p.left,
			p.attempt.e.opts.Dir.Block(p.attempt.block))})
	p.left = 0
}
