package eventlog_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/internal/disk/disktest"
	"github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/internal/eventlog"
	"github.com/recipe-rl/recipe/sdk/spec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func progress(step int64) event.Body { return event.Progress{Step: step} }

func text(n int) event.Body { return event.LogLine{Message: strings.Repeat("x", n)} }

// outputs is the schema of the block's outputs.
var outputs = &spec.Schema{}

// drain reads all present events after a number, and fails on a gap or a repetition.
func drain(t *testing.T, l *eventlog.Log, after uint64) []event.Event {
	t.Helper()
	var all []event.Event
	for after < l.Last() {
		events, err := l.Next(t.Context(), after)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			want := after + 1
			if g, ok := e.Body.(event.Gap); ok {
				if g.From != want || g.To != e.Seq {
					t.Fatalf("gap %v with number %d after %d", g, e.Seq, after)
				}
			} else if e.Seq != want {
				t.Fatalf("event %d follows %d", e.Seq, after)
			}
			after = e.Seq
			all = append(all, e)
		}
	}
	return all
}

func TestAReaderMissesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), eventlog.FileName)
	l, err := eventlog.Open(path, 100, outputs, eventlog.Limits{Events: 8})
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(50) {
		if err := l.Append(progress(i)); err != nil {
			t.Fatal(err)
		}
	}
	// Most of them are in the file only.
	for _, after := range []uint64{0, 99, 100, 120, 141, 142, 148} {
		events := drain(t, l, after)
		first := max(after, 99) + 1
		if after < 99 {
			if _, ok := events[0].Body.(event.Gap); !ok {
				t.Errorf("after %d: the first is %v, want a gap", after, events[0])
			}
			events = events[1:]
		}
		if uint64(len(events)) != 150-first || events[0].Body != progress(int64(first-100)) {
			t.Errorf("after %d: %d events, the first %v", after, len(events), events[0])
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if events, err := eventlog.Read(path, 120, outputs); err != nil || len(events) != 29 || events[0].Seq != 121 {
		t.Errorf("read from the file: %d events, %v", len(events), err)
	}
}

func TestWhatIsKeptNowhereIsAGap(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), eventlog.FileName)
	l, err := eventlog.Open(path, 1, outputs, eventlog.Limits{Events: 4, Bytes: 4000})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for range 100 {
		if err := l.Append(text(100)); err != nil {
			t.Fatal(err)
		}
	}
	events := drain(t, l, 10)
	if g, ok := events[0].Body.(event.Gap); !ok || g.From != 11 || g.To < 20 {
		t.Errorf("the first is %v, want a gap from 11 on", events[0])
	}
	if len(events) < 10 {
		t.Errorf("only %d events were kept", len(events))
	}
	for _, name := range []string{path, path + ".old"} {
		info, err := os.Stat(name)
		if err != nil || info.Size() > 2000 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want at most 2000 bytes, mode 0600", name, info, err)
		}
	}
}

// A block that runs for days reports its own programs once. A later engine must still find them.
func TestTheHandleOutlivesEverythingElse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), eventlog.FileName)
	l, err := eventlog.Open(path, 1, outputs, eventlog.Limits{Events: 4, Bytes: 4000})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		e := text(100)
		if i == 3 || i == 5 {
			e = event.Handle{Data: []byte{byte(i)}}
		}
		if err := l.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	drain(t, l, 0)
	drain(t, l, 90)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	handle, err := eventlog.LastHandle(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(handle) != 1 || handle[0] != 5 {
		t.Errorf("the newest handle on the disk is %v, want the second, 5", handle)
	}
	if events, err := eventlog.Read(path, 98, outputs); err != nil || len(events) != 2 {
		t.Errorf("after event 98: %d events, %v; want the last two", len(events), err)
	}
}

func TestReadersWaitAndEnd(t *testing.T) {
	t.Parallel()
	l, err := eventlog.Open("", 0, outputs, eventlog.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Next(ctx, 0); err == nil {
		t.Error("Next came back without an event")
	}
	got := make(chan []event.Event)
	go func() {
		events, _ := l.Next(context.Background(), 0)
		got <- events
		events, _ = l.Next(context.Background(), 1)
		got <- events
	}()
	_ = l.Append(progress(1))
	if e := <-got; len(e) != 1 || e[0].Seq != 1 || e[0].Time.IsZero() {
		t.Errorf("got %v", e)
	}
	_ = l.Close()
	if e := <-got; e != nil {
		t.Errorf("after the end: %v", e)
	}
}

func TestManyWritersAndReaders(t *testing.T) {
	t.Parallel()
	l, err := eventlog.Open(filepath.Join(t.TempDir(), eventlog.FileName), 1, outputs, eventlog.Limits{Events: 16})
	if err != nil {
		t.Fatal(err)
	}
	var writers, readers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for i := range int64(200) {
				_ = l.Append(progress(i))
			}
		})
		readers.Go(func() {
			for after := uint64(0); ; {
				events, err := l.Next(context.Background(), after)
				if err != nil || events == nil {
					if after != 800 {
						t.Errorf("a reader ended at %d: %v", after, err)
					}
					return
				}
				for _, e := range events {
					if _, gap := e.Body.(event.Gap); e.Seq != after+1 || gap {
						t.Errorf("event %d follows %d", e.Seq, after)
					}
					after = e.Seq
				}
			}
		})
	}
	writers.Wait()
	_ = l.Close()
	readers.Wait()
}

func TestAFullDiskKeepsEventsInMemory(t *testing.T) {
	t.Parallel()
	small := disktest.Small(t, 64<<10)
	l, err := eventlog.Open(filepath.Join(small, eventlog.FileName), 1, outputs, eventlog.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	disktest.Fill(t, small)
	if err := l.Append(progress(1)); err == nil {
		t.Error("a full disk was not reported")
	}
	if err := l.Append(progress(2)); err != nil {
		t.Errorf("it was reported twice: %v", err)
	}
	if events := drain(t, l, 0); len(events) != 2 {
		t.Errorf("%d events in memory, want 2", len(events))
	}
}

// While the disk is full events are in memory; with room again all of them are in the file, also after the end of the
// block.
// after the end of the block.
//
//docs:survival.md the disk is full (no room, or the user's quota)
func TestTheFileIsWrittenWhenThereIsRoomAgain(t *testing.T) {
	t.Parallel()
	for name, closed := range map[string]bool{"while it lives": false, "after its end": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			small := disktest.Small(t, 256<<10)
			path := filepath.Join(small, eventlog.FileName)
			l, err := eventlog.Open(path, 1, outputs, eventlog.Limits{Bytes: 64 << 10})
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Append(event.Handle{Data: []byte{7}}); err != nil {
				t.Fatal(err)
			}
			room := disktest.Fill(t, small)
			const events = 300
			reported := 0
			for range events {
				if err := l.Append(text(100)); err != nil {
					if reported++; !strings.Contains(err.Error(), "waits for room") ||
						!strings.Contains(err.Error(), small) {
						t.Errorf("it says %v", err)
					}
				}
			}
			if reported != 1 {
				t.Errorf("the full disk was reported %d times, want once", reported)
			}
			if left, err := eventlog.Read(path, 0, outputs); err != nil || len(left) >= events {
				t.Fatalf("while it is full the file holds %d events, %v", len(left), err)
			}
			if closed {
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
			room()
			for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
				left, err := eventlog.Read(path, 0, outputs)
				if err != nil {
					t.Fatal(err)
				}
				if len(left) == events+1 {
					if _, ok := left[0].Body.(event.Handle); !ok {
						t.Fatalf("its first event is %v, want the handle", left[0])
					}
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("with room again the file holds %d of %d events", len(left), events+1)
				}
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// FuzzRead gives the reader damaged files: it must not fail, nor return events out of order.
func FuzzRead(f *testing.F) {
	path := filepath.Join(f.TempDir(), eventlog.FileName)
	l, err := eventlog.Open(path, 1, outputs, eventlog.Limits{})
	if err != nil {
		f.Fatal(err)
	}
	for i := range int64(3) {
		_ = l.Append(progress(i))
	}
	_ = l.Close()
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-3])
	f.Add([]byte{255, 255, 255, 255, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), eventlog.FileName)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		events, err := eventlog.Read(path, 0, outputs)
		if err != nil {
			t.Fatal(err)
		}
		last := uint64(0)
		for _, e := range events {
			if e.Seq <= last {
				t.Fatalf("event %d after %d", e.Seq, last)
			}
			last = e.Seq
		}
	})
}
