package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/snapshot"
)

// watched is the result of watching a run.
type watched struct {
	snap *snapshot.Snapshot
	err  error
}

// watcher shows the events of a run: live for people, one JSON object a line for machines.
type watcher struct {
	live runView
	done chan watched
	left atomic.Bool // the terminal was closed
}

// leave ends the output; the run is still followed.
func (w *watcher) leave() {
	w.left.Store(true)
	w.live.Leave()
}

// gone reports that the output has no reader: a pipe without a reader, a closed terminal.
func gone(err error) bool { return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.EIO) }

// watch begins to show the events of a run, until it has ended or ctx ends; with asJSON those since a time, one JSON
// object a line.
func (a *app) watch(ctx context.Context, w *watcher, dir string, since time.Time, asJSON bool) {
	go func() {
		if !asJSON {
			w.live.Lost(a.blind)
			snap, err := w.live.Follow(ctx, dir)
			w.done <- watched{snap, err}
			return
		}
		snap, err := snapshot.Before(dir, since)
		if err != nil {
			w.done <- watched{snap, err}
			return
		}
		enc := json.NewEncoder(a.out)
		err = event.Follow(ctx, dir, snap.Last, func(e event.Event) error {
			snap.Apply(e)
			if e.Time.Before(since) || w.left.Load() {
				return nil
			}
			err := enc.Encode(e)
			if gone(err) {
				a.blind(err)
				w.left.Store(true)
				return nil
			}
			return err
		})
		w.done <- watched{snap, err}
	}()
}

// blind reports that a run continues without output: in `recipe apply | tee log`, for example, Ctrl-C ends tee.
func (a *app) blind(err error) {
	fmt.Fprintf(a.err,
		"recipe: the output cannot be written any more (%v). The run continues; recipe status and recipe logs -f "+
			"show it\n", err)
}
