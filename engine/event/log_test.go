package event_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/engine/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string) *event.Log {
	t.Helper()
	l, err := event.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func add(t *testing.T, l *event.Log, e event.Event) event.Event {
	t.Helper()
	out, err := l.Append(e)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func all(t *testing.T, dir string, after uint64) []event.Event {
	t.Helper()
	var out []event.Event
	if err := event.Read(dir, after, func(e event.Event) error { out = append(out, e); return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAppendNumbersEventsAcrossReopening(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir)
	add(t, l, event.Event{Type: event.RunStarted})
	add(t, l, event.Event{Type: event.Metrics, Address: "trainer.tiny.p", BlockAttempt: 2, Cursor: 7,
		Metrics: map[string]float64{"reward": 0.5}})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = open(t, dir)
	if got := l.Cursor("trainer.tiny.p"); got != (event.Cursor{Attempt: 2, Seq: 7}) {
		t.Errorf("cursor after reopening = %+v, want attempt 2, event 7", got)
	}
	if e := add(t, l, event.Event{Type: event.RunEnded}); e.Seq != 3 || e.V != event.FormatVersion {
		t.Errorf("third event has number %d and version %d", e.Seq, e.V)
	}
	got := all(t, dir, 0)
	if len(got) != 3 || got[1].Metrics["reward"] != 0.5 || got[2].Type != event.RunEnded {
		t.Errorf("read back %+v", got)
	}
	if got := all(t, dir, 2); len(got) != 1 || got[0].Seq != 3 {
		t.Errorf("after 2: %+v", got)
	}
}

// A block that is removed from the run and added again counts its attempts from 1, and its event numbers continue.
func TestTheCursorFollowsABlockThatComesBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir)
	for _, e := range []event.Event{{BlockAttempt: 3, Cursor: 7}, {BlockAttempt: 1, Cursor: 8},
		{BlockAttempt: 1, Cursor: 9}} {
		e.Type, e.Address = event.Notice, "environment.x.e"
		add(t, l, e)
	}
	for range 2 {
		if got := l.Cursor("environment.x.e"); got != (event.Cursor{Attempt: 1, Seq: 9}) {
			t.Errorf("the cursor is %+v, want attempt 1, event 9", got)
		}
		_ = l.Close()
		l = open(t, dir)
	}
}

//docs:survival.md the event log has a torn last line
func TestTornLastLineIsCutOff(t *testing.T) {
	t.Parallel()
	for cut := 1; cut < 30; cut += 7 {
		dir := t.TempDir()
		l := open(t, dir)
		add(t, l, event.Event{Type: event.RunStarted})
		add(t, l, event.Event{Type: event.Notice, Message: "this line will be torn"})
		_ = l.Close()
		segs, _ := event.Segments(dir)
		info, err := os.Stat(segs[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(segs[0], info.Size()-int64(cut)); err != nil {
			t.Fatal(err)
		}
		l = open(t, dir)
		if e := add(t, l, event.Event{Type: event.RunEnded}); e.Seq != 2 {
			t.Errorf("cut %d: the event after the torn one has number %d, want 2", cut, e.Seq)
		}
		if got := all(t, dir, 0); len(got) != 2 || got[1].Type != event.RunEnded {
			t.Errorf("cut %d: read %+v", cut, got)
		}
	}
}

func TestDamagedLineInTheMiddleIsReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "00000000000000000001.jsonl")
	if err := os.WriteFile(path, []byte("{\"v\":1,\"seq\":1}\n{oops\n{\"v\":1,\"seq\":2}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, opened := event.Open(dir)
	for what, err := range map[string]error{"open": opened,
		"read": event.Read(dir, 0, func(event.Event) error { return nil })} {
		if err == nil {
			t.Errorf("%s: no error of a damaged log", what)
			continue
		}
		for _, want := range []string{path, "line 2", "move the file away"} {
			if !contains(err.Error(), want) {
				t.Errorf("%s: error %q does not say %q", what, err, want)
			}
		}
	}
}

func contains(s, sub string) bool {
	for i := 0; i+len(sub) <= len(s); i++ {
		if s[i:i+len(sub)] == sub {
			return true
		}
	}
	return false
}

func TestFollowSeesOldAndNew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir)
	add(t, l, event.Event{Type: event.RunStarted})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	enough := errors.New("enough")
	var seqs []uint64
	done := make(chan error, 1)
	go func() {
		done <- event.Follow(ctx, dir, 0, func(e event.Event) error {
			seqs = append(seqs, e.Seq)
			if len(seqs) == 50 {
				return enough
			}
			return nil
		})
	}()
	for i := range 49 {
		add(t, l, event.Event{Type: event.Metrics, Step: int64(i)})
	}
	if err := <-done; !errors.Is(err, enough) {
		t.Fatalf("follow ended with %v after %d events", err, len(seqs))
	}
	for i, s := range seqs {
		if s != uint64(i+1) {
			t.Fatalf("event %d has number %d: a gap or a duplicate", i, s)
		}
	}
}

func TestReadSkipsNewerVersions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "00000000000000000001.jsonl"),
		[]byte(
			"{\"v\":1,\"seq\":1,\"type\":\"notice\"}\n{\"v\":99,\"seq\":2}\n{\"v\":1,\"seq\":3,\"type\":\"notice\"}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if got := all(t, dir, 0); len(got) != 2 || got[1].Seq != 3 {
		t.Errorf("read %+v", got)
	}
}
