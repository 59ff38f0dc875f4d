package main

import (
	"context"
	"encoding/json"
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
		w.done <- watched{b, err}
	}()
	return w
}

// orders are what signals say to a run: the first drains it, the second kills it.
type orders struct {
	stop, kill chan struct{}
	signals    chan os.Signal
	wait       sync.WaitGroup
}

// listen takes SIGINT, SIGTERM and SIGHUP (a terminal that was closed) until close is called. It tells what it heard through
// draining and killing.
func listen(draining, killing func()) *orders {
	o := &orders{stop: make(chan struct{}), kill: make(chan struct{}), signals: make(chan os.Signal, 4)}
	signal.Notify(o.signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
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
	close(o.signals)
	o.wait.Wait()
}
