package event_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
)

// A run that is destroyed while its log is followed ends the following, also when another run takes its place at once.
// What was written last is still read.
//
//docs:survival.md the run is destroyed while recipe logs -f follows it
func TestFollowEndsWhenTheLogIsRemoved(t *testing.T) {
	t.Parallel()
	for name, replaced := range map[string]bool{"removed": false, "replaced": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "events")
			l := open(t, dir)
			add(t, l, event.Event{Type: event.RunStarted})
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			var got []event.Type
			err := event.Follow(ctx, dir, 0, func(e event.Event) error {
				if got = append(got, e.Type); len(got) > 1 {
					return nil
				}
				add(t, l, event.Event{Type: event.RunEnded})
				if err := os.RemoveAll(dir); err != nil {
					return err
				}
				if replaced {
					add(t, open(t, dir), event.Event{Type: event.RunStarted})
				}
				return nil
			})
			if !errors.Is(err, event.ErrRemoved) {
				t.Errorf("got %v, want ErrRemoved", err)
			}
			if want := []event.Type{event.RunStarted, event.RunEnded}; !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// The folder of a run that has not started yet is waited for.
func TestFollowWaitsForALog(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "events")
	begun, done := errors.New("begun"), make(chan error, 1)
	go func() { done <- event.Follow(t.Context(), dir, 0, func(event.Event) error { return begun }) }()
	time.Sleep(200 * time.Millisecond)
	add(t, open(t, dir), event.Event{Type: event.RunStarted})
	if err := <-done; !errors.Is(err, begun) {
		t.Errorf("got %v", err)
	}
}
