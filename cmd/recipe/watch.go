package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/board"
	"github.com/recipe-rl/recipe/engine/event"
)

// watched is what a view has seen of a run.
type watched struct {
	board *board.Board
	err   error
}

// watcher shows the events of a run: live for people, one JSON object a line for machines.
type watcher struct {
	live *view.Live
	done chan watched
}

// watch begins to show the events of a run and goes on until it has ended or ctx ends. Events older than since are not shown.
func (a *app) watch(ctx context.Context, dir string, since time.Time, asJSON bool) *watcher {
	w := &watcher{live: view.NewLive(a.out, a.style(), since), done: make(chan watched, 1)}
	go func() {
		if !asJSON {
			w.live.Lost(a.blind)
			b, err := w.live.Follow(ctx, dir)
			w.done <- watched{b, err}
			return
		}
		b, enc := &board.Board{}, json.NewEncoder(a.out)
		err := event.Follow(ctx, dir, 0, func(e event.Event) error {
			b.Apply(e)
			if e.Time.Before(since) {
				return nil
			}
			return enc.Encode(e)
		})
		if errors.Is(err, syscall.EPIPE) {
			a.blind(err)
			err = nil
		}
		w.done <- watched{b, err}
	}()
	return w
}

// blind says that a run goes on although nobody can see it here any more: `recipe apply | tee log`, for one, loses tee to Ctrl-C.
func (a *app) blind(err error) {
	fmt.Fprintf(a.err, "recipe: what the run does cannot be shown here any more (%v). It goes on; recipe status and recipe logs -f show it\n", err)
}

// orders are what signals say to a run: the first drains it, the second kills it.
type orders struct {
	stop, kill chan struct{}
	signals    chan os.Signal
	broken     chan os.Signal // of pipes; never read
	wait       sync.WaitGroup
}

// listen takes SIGINT, SIGTERM and SIGHUP (a terminal that was closed) until close is called. It tells what it heard through
// draining and killing.
func listen(draining, killing func()) *orders {
	o := &orders{stop: make(chan struct{}), kill: make(chan struct{}), signals: make(chan os.Signal, 4), broken: make(chan os.Signal, 1)}
	signal.Notify(o.signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A pipe that nobody reads any more ends what is written to it and not the engine. It must not be ignored altogether: programs
	// that are started would inherit that.
	signal.Notify(o.broken, syscall.SIGPIPE)
	o.wait.Go(func() {
		heard := 0
		for range o.signals {
			switch heard++; heard {
			case 1:
				draining()
				close(o.stop)
			case 2:
				killing()
				close(o.kill)
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
