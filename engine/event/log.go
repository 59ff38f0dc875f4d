package event

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/engine/private"
)

// segmentBytes is the size after which the log goes on in a new file. Whole segments can be deleted by a person.
const segmentBytes = 64 << 20

// Log appends events to a folder of JSON-lines files. One process writes it at a time (the run's lock sees to that).
type Log struct {
	dir string

	mu      sync.Mutex
	file    *os.File
	size    int64
	limit   int64 // of one file
	torn    bool  // a part of a line may lie after size
	last    uint64
	cursors map[string]Cursor
	failed  error
	now     func() time.Time
}

// Cursor is how far the log has followed a block: which of its lives, and the plugin's number of the last event.
type Cursor struct {
	Life int
	Seq  uint64
}

// Open opens the log in dir for appending. A torn last line, as a crash leaves it, is cut off; anything else that
// cannot be read is an error that names the file and the line.
func Open(dir string) (*Log, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the event log's folder: %w", err)
	}
	l := &Log{dir: dir, limit: segmentBytes, cursors: map[string]Cursor{}, now: time.Now}
	segments, err := Segments(dir)
	if err != nil {
		return nil, err
	}
	for i, path := range segments {
		good, err := l.scan(path)
		if err != nil {
			return nil, err
		}
		if i < len(segments)-1 {
			continue
		}
		if l.file, err = private.OpenFile(path, os.O_WRONLY|os.O_APPEND); err != nil {
			return nil, fmt.Errorf("opening the event log: %w", err)
		}
		if err := l.file.Truncate(good); err != nil {
			return nil, fmt.Errorf("cutting a torn line off the event log %s: %w", path, err)
		}
		l.size = good
	}
	if l.file == nil {
		if err := l.rotate(); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// scan reads one segment into the cursors and returns how many bytes of it are whole lines.
func (l *Log) scan(path string) (int64, error) {
	f, err := private.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return 0, fmt.Errorf("opening the event log: %w", err)
	}
	defer func() { _ = f.Close() }()
	r := bufio.NewReaderSize(f, 1<<16)
	var good int64
	for line := 1; ; line++ {
		b, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return good, nil
		}
		if err != nil {
			return 0, fmt.Errorf("reading the event log %s: %w", path, err)
		}
		var e Event
		if err := json.Unmarshal(b, &e); err != nil {
			return 0, fmt.Errorf("the event log %s is damaged at line %d: %w; move the file away to go on without its events", path, line, err)
		}
		good += int64(len(b))
		l.note(e)
	}
}

func (l *Log) note(e Event) {
	l.last = max(l.last, e.Seq)
	// The events of a block are numbered over all of its lives. Lives are counted anew when a block comes back that was taken out of the run.
	if e.Cursor > l.cursors[e.Address].Seq {
		l.cursors[e.Address] = Cursor{e.Life, e.Cursor}
	}
}

// Append writes one event, giving it its number, version and (when unset) time, and returns it as written.
// Durable events (starts, ends, phases, checkpoints, weights) are synced to disk before Append returns.
func (l *Log) Append(e Event) (Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return e, l.failed
	}
	if e.Time.IsZero() {
		e.Time = l.now().UTC()
	}
	e.V, e.Seq = FormatVersion, l.last+1
	line, err := json.Marshal(e)
	if err != nil {
		return e, fmt.Errorf("writing a %s event of %s: %w", e.Type, e.Address, err)
	}
	if err := l.mend(); err != nil {
		return e, err
	}
	if l.size > l.limit {
		if err := l.rotate(); err != nil {
			return e, err
		}
	}
	n, err := l.file.Write(append(line, '\n'))
	if err != nil {
		l.torn = n > 0
		_ = l.mend() // else before the next line
		return e, fmt.Errorf("writing to the event log in %s: %w", l.dir, err)
	}
	l.size += int64(n)
	l.note(e)
	if e.Type.durable() {
		if err := l.file.Sync(); err != nil {
			return e, fmt.Errorf("syncing the event log in %s: %w", l.dir, err)
		}
	}
	return e, nil
}

// mend cuts off the part of a line that a full disk has left, so that what follows stays readable.
func (l *Log) mend() error {
	if !l.torn {
		return nil
	}
	if err := l.file.Truncate(l.size); err != nil {
		return fmt.Errorf("cutting a torn line off the event log in %s: %w", l.dir, err)
	}
	l.torn = false
	return nil
}

func (t Type) durable() bool {
	switch t {
	case Progress, Metrics, LogLine, Sample:
		return false
	default:
		return true
	}
}

// rotate goes on in a new file. When it fails, the old one is still open.
func (l *Log) rotate() error {
	if l.file != nil {
		if err := l.file.Sync(); err != nil {
			return fmt.Errorf("syncing the event log: %w", err)
		}
	}
	path := filepath.Join(l.dir, fmt.Sprintf("%020d.jsonl", l.last+1))
	f, err := private.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	if err != nil {
		return fmt.Errorf("starting a new file of the event log: %w", err)
	}
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file, l.size = f, 0
	return nil
}

// Cursor returns how far the log has followed the block at address.
func (l *Log) Cursor(address string) Cursor {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cursors[address]
}

// Close syncs and closes the log.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return nil
	}
	l.failed = errors.New("the event log is closed")
	err := l.file.Sync()
	if cerr := l.file.Close(); err == nil {
		err = cerr
	}
	return err
}

// Segments lists the files of the log in dir, oldest first; none when the folder does not exist.
func Segments(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the event log's folder: %w", err)
	}
	var out []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".jsonl") && !e.IsDir() {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	sort.Strings(out)
	return out, nil
}

func decode(line []byte) (Event, error) {
	var e Event
	err := json.Unmarshal(bytes.TrimRight(line, "\n"), &e)
	return e, err
}
