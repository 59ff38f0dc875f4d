package event

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// While a new file cannot be created events are lost, but not those after it.
func TestALogThatCannotRotateGoesOnWhenItCan(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	l.limit = 10
	if _, err := l.Append(Event{Type: Notice, Message: "fills the first file"}); err != nil {
		t.Fatal(err)
	}
	inTheWay := filepath.Join(dir, fmt.Sprintf("%020d.jsonl", 2))
	if err := os.Mkdir(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := l.Append(Event{Type: Notice, Message: "no room"}); err == nil {
			t.Fatal("an event was written although no file could be started")
		}
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	if e, err := l.Append(Event{Type: Notice, Message: "room again"}); err != nil || e.Seq != 2 {
		t.Fatalf("once there is room: event %d, %v; want event 2", e.Seq, err)
	}
}

// A new file is started a day after the first event of the last one. Old events, of a block that went on for days
// without an engine, are not a file each.
func TestAFileHoldsTheEventsOfADay(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC()
	for name, hours := range map[string][]int{"as they come": {0, 25, 26}, "old ones": {-72, -71, -70, -69, -68, 1, 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			l, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			for _, h := range hours {
				at := now.Add(time.Duration(h) * time.Hour)
				if _, err := l.Append(Event{Type: Notice, Message: name, Time: at}); err != nil {
					t.Fatal(err)
				}
			}
			if segments, err := Segments(dir); err != nil || len(segments) != 2 {
				t.Errorf("the log has %d files, %v; want 2", len(segments), err)
			}
		})
	}
}

// A full disk leaves an incomplete line. It is cut off before the next line, also if the first attempt to do so fails.
func TestATornLineIsCutOffBeforeTheNext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if _, err := l.file.WriteString(`{"v":1,"se`); err != nil {
		t.Fatal(err)
	}
	l.torn = true
	if _, err := l.Append(Event{Type: Notice, Message: "whole"}); err != nil {
		t.Fatal(err)
	}
	var got []Event
	if err := Read(dir, 0, func(e Event) error { got = append(got, e); return nil }); err != nil || len(got) != 1 ||
		got[0].Message != "whole" {
		t.Fatalf("read %+v, %v; want the one whole event", got, err)
	}
}

// A follower of the log may have read part of a line that is then cut off.
func TestAFollowerForgetsALineThatWasCutOff(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, fmt.Sprintf("%020d.jsonl", 1))
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const first = `{"v":1,"seq":1,"type":"notice"}` + "\n"
	r := &reader{dir: dir}
	defer r.close()
	var seqs []uint64
	drain := func() {
		t.Helper()
		if _, err := r.drain(func(e Event) error { seqs = append(seqs, e.Seq); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	write(first + `{"v":1,"seq":2,"type":"metrics","address":"trainer.tiny.policy"`)
	drain()
	write(first)
	drain()
	write(first + `{"v":1,"seq":2,"type":"run_ended"}` + "\n")
	drain()
	if fmt.Sprint(seqs) != "[1 2]" {
		t.Errorf("read the events %v, want 1 and 2", seqs)
	}
}
