// Package eventlog keeps the events of one block so that an engine which was away misses none of them.
//
// Every event gets the next sequence number, is kept in a bounded ring in memory and is written to a bounded file in
// the block's directory. A reader asks for what comes after a sequence number: it is served from memory, else from the
// file, and what is in neither is reported as a gap with its first and last number, never skipped silently. The file
// outlives kill -9 of the plugin (not a power cut), so that an engine can still read the last events of a plugin that
// has died.
package eventlog

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/internal/disk"
	"github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// FileName is the name of the log's file inside a block's directory. A second file with the suffix ".old" stands beside
// it once the first was full.
const FileName = "events.spool"

// Limits bound a Log.
type Limits struct {
	Events int   // events kept in memory; default 4096
	Bytes  int64 // bytes of both files together; default 16 MiB
	// Secrets are kept out of the file where they stand in outputs. Readers of this log get them, Read does not.
	Secrets []string
}

func (l *Limits) setDefaults() {
	if l.Events <= 0 {
		l.Events = 4096
	}
	if l.Bytes <= 0 {
		l.Bytes = 16 << 20
	}
}

// Log is the events of one attempt of a block. It is safe for concurrent use, and writers never wait for readers.
type Log struct {
	limits Limits

	mu      sync.Mutex
	ring    []event.Event // oldest first
	last    uint64        // sequence number of the newest event
	file    *file         // nil when the file is not used any more
	written uint64        // number of the newest event that is in the file
	full    bool          // the file waits for room
	retry   *time.Timer   // while it does
	changed chan struct{} // closed and replaced when an event comes
	closed  bool
}

// Open starts a new log whose first event has the sequence number first (1 if 0). Outputs is the schema of the block's
// outputs. Files of an earlier attempt are
// removed: the engine has read them before it starts the block again. Path is usually the block's directory joined with
// FileName; an empty one keeps events in memory only.
func Open(path string, first uint64, outputs *spec.Schema, limits Limits) (*Log, error) {
	limits.setDefaults()
	if first == 0 {
		first = 1
	}
	l := &Log{limits: limits, last: first - 1, written: first - 1, changed: make(chan struct{})}
	if path != "" {
		f, err := create(path, limits.Bytes/2, outputs, newSeal(limits.Secrets))
		if err != nil {
			return nil, fmt.Errorf("open the event log: %w", err)
		}
		l.file = f
	}
	return l, nil
}

// Append makes the next event, of this time, keeps it and wakes the readers. The error says that the
// event is in memory only, because the file cannot be written. It is returned once. When the disk is full, the file is
// written again as soon as there is room, with all events that memory still holds; after any other error the file is
// not used any more.
func (l *Log) Append(body event.Body) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.last++
	e := event.Event{Seq: l.last, Time: time.Now(), Body: body}
	if len(l.ring) >= l.limits.Events {
		// Half at once, so that the copy is paid once for many events.
		l.ring = append(l.ring[:0:0], l.ring[len(l.ring)-l.limits.Events/2:]...)
	}
	l.ring = append(l.ring, e)
	close(l.changed)
	l.changed = make(chan struct{})
	return l.write()
}

// write puts into the file what is not there yet.
func (l *Log) write() error {
	if l.file == nil {
		return nil
	}
	if len(l.ring) == 0 {
		return nil
	}
	from := 0
	if first := l.ring[0].Seq; l.written >= first {
		from = int(l.written - first + 1)
	}
	for _, e := range l.ring[from:] {
		if err := l.file.append(e); err != nil {
			return l.failed(err)
		}
		l.written = e.Seq
	}
	l.full = false
	return nil
}

func (l *Log) failed(err error) error {
	path := l.file.path
	if !disk.Full(err) {
		_ = l.file.close()
		l.file = nil
		return fmt.Errorf("write the event log: %w; from here on events are kept in memory only", err)
	}
	if l.retry == nil {
		l.retry = time.AfterFunc(disk.RetryEvery, l.again)
	}
	if l.full {
		return nil
	}
	l.full = true
	return fmt.Errorf("the event log %s; until then events are kept in memory only", disk.Waiting(path, err))
}

// again writes what waits for room, also after Close.
func (l *Log) again() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retry = nil
	_ = l.write() // reported before
	if l.closed && !l.full && l.file != nil {
		_ = l.file.close()
		l.file = nil
	}
}

// Hide keeps further secrets out of the file, as those of Limits.
func (l *Log) Hide(secrets []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.file.seal = l.file.seal.with(secrets)
	}
}

// Last returns the sequence number of the newest event; first-1 when there is none.
func (l *Log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Next returns the events after the given sequence number, at least one: it waits until there is one. When some of them
// are not kept any more, the first one returned is a Gap that names them. It returns the context's error when that
// ends, and neither events nor an error when the log is closed and there is nothing left. The events are shared: do not
// change them.
func (l *Log) Next(ctx context.Context, after uint64) ([]event.Event, error) {
	for {
		l.mu.Lock()
		if l.last > after {
			events, err := l.afterLocked(after)
			l.mu.Unlock()
			return events, err
		}
		closed, changed := l.closed, l.changed
		l.mu.Unlock()
		if closed {
			return nil, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// afterLocked collects what is kept after the given number. It holds the lock while it reads the file, which is
// bounded.
func (l *Log) afterLocked(after uint64) ([]event.Event, error) {
	oldest := l.last + 1
	if len(l.ring) > 0 {
		oldest = l.ring[0].Seq
	}
	if after+1 >= oldest {
		return append([]event.Event(nil), l.ring[after+1-oldest:]...), nil
	}
	var events []event.Event
	if l.file != nil {
		spilled, err := l.file.read(after, oldest)
		if err != nil {
			return nil, fmt.Errorf("read the event log: %w", err)
		}
		events = spilled
	}
	return withGaps(after, append(events, l.ring...)), nil
}

// Close ends waiting readers once they have read everything, and closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	close(l.changed)
	l.changed = make(chan struct{})
	_ = l.write() // what cannot be written was reported when it came
	if l.file == nil || l.full {
		return nil
	}
	return l.file.close()
}

// withGaps puts a Gap wherever sequence numbers are missing, beginning with what follows after.
func withGaps(after uint64, events []event.Event) []event.Event {
	complete := make([]event.Event, 0, len(events)+1)
	want := after + 1
	for _, e := range events {
		if e.Seq > want {
			complete = append(complete, event.Event{Seq: e.Seq - 1, Time: e.Time,
				Body: event.Gap{From: want, To: e.Seq - 1}})
		}
		complete = append(complete, e)
		want = e.Seq + 1
	}
	return complete
}
