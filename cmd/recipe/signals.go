package main

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// together is the time within which several signals count as one: a terminal and timeout(1) signal the whole group of
// processes, and timeout its child besides.
const together = time.Second

// wish is the action that a signal requests.
type wish int

const (
	nothing wish = iota
	drain        // end at a checkpoint
	kill         // end at once
	leave        // the terminal was closed: continue without it
)

// presses maps each of a sequence of signals to an action. Ctrl-C and SIGTERM drain. A Ctrl-C after that kills, since
// only a person presses it twice; SIGTERM never does, since programs send it, some of them repeatedly, and use SIGKILL
// to kill.
type presses struct{ first time.Time }

func (p *presses) hear(sig os.Signal, now time.Time) wish {
	switch {
	case sig == syscall.SIGHUP:
		return leave
	case p.first.IsZero():
		p.first = now
		return drain
	case sig == os.Interrupt && now.Sub(p.first) >= together:
		return kill
	}
	return nothing
}

// reactions are the handlers of the actions that signals request, each called at most once.
type reactions struct{ draining, killing, leaving func() }

// orders turns signals into actions on a run.
type orders struct {
	stop, kill chan struct{}
	signals    chan os.Signal
	broken     chan os.Signal // of pipes; never read
	wait       sync.WaitGroup
}

// listen takes SIGINT, SIGTERM and SIGHUP (a terminal that was closed) until close is called, and calls
// the reactions.
func listen(r reactions) *orders {
	o := &orders{stop: make(chan struct{}), kill: make(chan struct{}), signals: make(chan os.Signal, 4),
		broken: make(chan os.Signal, 1)}
	signal.Notify(o.signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A pipe without a reader fails the write and does not end the engine. SIGPIPE must not be ignored: programs
	// that are started would inherit that.
	signal.Notify(o.broken, syscall.SIGPIPE)
	o.wait.Go(func() {
		var p presses
		done := map[wish]bool{nothing: true}
		for sig := range o.signals {
			w := p.hear(sig, time.Now())
			if done[w] {
				continue
			}
			done[w] = true
			switch w {
			case drain:
				r.draining()
				close(o.stop)
			case kill:
				r.killing()
				close(o.kill)
			case leave:
				r.leaving()
			}
		}
	})
	return o
}

func (o *orders) close() {
	signal.Stop(o.signals)
	signal.Stop(o.broken)
	close(o.signals)
	o.wait.Wait()
}
