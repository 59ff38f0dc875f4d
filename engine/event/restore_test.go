package event_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
)

// A deleted log is restored with all that was in its newest file, and a reader continues in it.
//
//docs:survival.md run.json, run.journal or the newest file of the event log (or the folder events) is …
func TestADeletedLogIsRestored(t *testing.T) {
	t.Parallel()
	remove := map[string]func(dir, file string) error{
		"folder":   func(dir, _ string) error { return os.RemoveAll(dir) },
		"file":     func(_, file string) error { return os.Remove(file) },
		"replaced": func(_, file string) error { return errors.Join(os.Remove(file), os.WriteFile(file, nil, 0o600)) },
	}
	for name, remove := range remove {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "events")
			l := open(t, dir)
			if restored, err := l.Restore(); restored || err != nil {
				t.Fatalf("restored an untouched log: %v, %v", restored, err)
			}
			add(t, l, event.Event{Type: event.RunStarted})
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			var got []uint64
			done := errors.New("done")
			err := event.Follow(ctx, dir, 0, func(e event.Event) error {
				if got = append(got, e.Seq); e.Type == event.RunEnded {
					return done
				}
				if e.Type != event.RunStarted {
					return nil
				}
				if err := remove(dir, filepath.Join(dir, "00000000000000000001.jsonl")); err != nil {
					return err
				}
				add(t, l, event.Event{Type: event.Notice, Message: "unlinked"})
				time.AfterFunc(300*time.Millisecond, func() {
					if restored, err := l.Restore(); !restored || err != nil {
						t.Errorf("restored %v, %v", restored, err)
					}
					add(t, l, event.Event{Type: event.RunEnded})
				})
				return nil
			})
			if !errors.Is(err, done) {
				t.Errorf("the reader ended with %v", err)
			}
			for i, e := range all(t, dir, 0) {
				if e.Seq != uint64(i+1) || i >= len(got) || got[i] != e.Seq {
					t.Errorf("event %d is number %d; the reader has %v", i+1, e.Seq, got)
				}
			}
			if len(got) != 3 {
				t.Errorf("the reader has %v, want three events", got)
			}
		})
	}
}

// When every file was deleted between two engines, numbers continue: readers keep theirs.
func TestNumbersContinueAfterAllFilesAreGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := event.OpenAfter(dir, 41)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if e := add(t, l, event.Event{Type: event.RunStarted}); e.Seq != 42 {
		t.Errorf("the first event has number %d, want 42", e.Seq)
	}
	if got := all(t, dir, 41); len(got) != 1 {
		t.Errorf("a reader that has 41 events reads %v", got)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir)
	if e := add(t, again, event.Event{Type: event.RunEnded}); e.Seq != 43 {
		t.Errorf("the next engine's event has number %d, want 43", e.Seq)
	}
}
