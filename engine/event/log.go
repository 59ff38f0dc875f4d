package event

import (
	"bufio"
	"cmp"
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
	"github.com/recipe-rl/recipe/internal/disk"
)

const (
	segmentBytes = 16 << 20       // after which a new file is started
	segmentAge   = 24 * time.Hour // likewise
	keptBytes    = 1 << 30        // of all files; beyond it the oldest are deleted
	// syncWithin is how long a durable event may stay unsynced. Only a power failure can lose it in that time; it
	// survives a killed engine.
	syncWithin = 100 * time.Millisecond
)

// Log appends events to a folder of JSON-lines files. One process writes it at a time (the run's lock ensures that).
type Log struct {
	dir string

	mu      sync.Mutex
	file    *os.File
	size    int64
	limit   int64     // of one file
	kept    int64     // of all files
	began   time.Time // of the first event of this file
	torn    bool      // a part of a line may lie after size
	last    uint64
	cursors map[string]Cursor
	repeats repeats
	held    []Event // numbered, and not written because the disk has no room
	hold    bool    // they must not be written before Flush
	full    error   // why they could not be written
	timer   *time.Timer
	failed  error
	now     func() time.Time
}

// Cursor is how far the log has followed a block: which of its attempts, and the plugin's number of the last event.
type Cursor struct {
	Attempt int    `json:"life"`
	Seq     uint64 `json:"seq"`
}

// Open opens the log in dir for appending. A torn last line, left by a crash, is cut off; any other unreadable line is
// an error that names the file and the line.
func Open(dir string) (*Log, error) { return OpenAfter(dir, 0) }

// open is Open without a file when there is none yet.
func open(dir string) (*Log, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the event log's folder: %w", err)
	}
	l := &Log{dir: dir, limit: segmentBytes, kept: keptBytes, cursors: map[string]Cursor{},
		repeats: repeats{kinds: map[string]*repeated{}}, now: time.Now}
	segments, err := Segments(dir)
	if err != nil {
		return nil, err
	}
	if len(segments) > 0 {
		good, err := l.recall(segments)
		if err != nil {
			return nil, err
		}
		path := segments[len(segments)-1]
		if l.file, err = private.OpenFile(path, os.O_RDWR|os.O_APPEND); err != nil {
			return nil, fmt.Errorf("opening the event log: %w", err)
		}
		if err := l.file.Truncate(good); err != nil {
			return nil, fmt.Errorf("cutting a torn line off the event log %s: %w", path, err)
		}
		l.size = good
	}
	return l, nil
}

// recall reads the newest files, back to one that begins with the cursors of all blocks, and returns how many bytes of
// the last file are whole lines.
func (l *Log) recall(segments []string) (good int64, err error) {
	from := len(segments) - 1
	for ; from > 0; from-- {
		if complete, err := beginsWithCursors(segments[from]); err != nil {
			return 0, err
		} else if complete {
			break
		}
	}
	for _, path := range segments[from:] {
		l.began = time.Time{}
		if good, err = l.scan(path); err != nil {
			return 0, err
		}
	}
	return good, nil
}

func beginsWithCursors(path string) (bool, error) {
	f, err := openSegment(path)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	line, err := bufio.NewReader(f).ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("reading the event log %s: %w", path, err)
	}
	e, derr := newDecoder().decode(line)
	return err == nil && derr == nil && e.Type == LogFile, nil
}

// segmentLimit is the most that is read of one file of a log. The engine begins another one after segmentBytes, so a
// larger file is not the engine's: it would be read for ever, or into all memory.
const segmentLimit = 256 << 20

// openSegment opens a file of a log to be read.
func openSegment(path string) (*os.File, error) {
	f, err := private.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("opening the event log: %w", err)
	}
	info, err := f.Stat()
	if err == nil && info.Size() > segmentLimit {
		err = fmt.Errorf("%s has %d bytes, expected at most %d: it is damaged or was not written by recipe; move it away "+
			"to continue without its events", path, info.Size(), segmentLimit)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the event log: %w", err), f.Close())
	}
	return f, nil
}

// scan reads one segment into the cursors and returns how many bytes of it are whole lines.
func (l *Log) scan(path string) (int64, error) {
	f, err := openSegment(path)
	if err != nil {
		return 0, err
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
		err = fits(b)
		if err == nil {
			err = json.Unmarshal(b, &e)
		}
		if err != nil {
			return 0, damagedLine(path, line, err)
		}
		good += int64(len(b))
		l.note(e)
	}
}

func (l *Log) note(e Event) {
	l.last = max(l.last, e.Seq)
	if l.began.IsZero() {
		l.began = e.Time
	}
	for address, c := range e.Cursors {
		if c.Seq > l.cursors[address].Seq {
			l.cursors[address] = c
		}
	}
	if c, ok := l.cursors[e.From]; ok && e.Type == Moved {
		l.cursors[e.Address] = c
		delete(l.cursors, e.From)
	}
	// The events of a block are numbered over all of its attempts. Attempts start again at 1 when a block that was
	// removed from the run is added again.
	if e.Cursor > l.cursors[e.Address].Seq {
		l.cursors[e.Address] = Cursor{e.BlockAttempt, e.Cursor}
	}
}

// Append writes one event, sets its number, version and (when unset) time, and returns it as written. Repeated events
// are counted instead; see repeats. While the disk is full, events are held in memory and written later.
func (l *Log) Append(e Event) (Event, error) { return l.add(e, false) }

// Hold is Append for an event that must not be written yet: it and those after it wait for Flush.
func (l *Log) Hold(e Event) (Event, error) { return l.add(e, true) }

func (l *Log) add(e Event, hold bool) (Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return e, l.failed
	}
	if e.Time.IsZero() {
		e.Time = l.now().UTC()
	}
	e.V = FormatVersion
	due, counted := l.repeats.take(e)
	if e.Type == RunEnded { // views of the run read up to here, and show its last samples
		due = append(due, l.repeats.all()...)
	}
	for _, x := range due {
		if _, err := l.put(x, hold); err != nil {
			return e, err
		}
	}
	if counted {
		l.note(Event{Address: e.Address, BlockAttempt: e.BlockAttempt, Cursor: e.Cursor, Time: e.Time})
		return e, nil
	}
	return l.put(e, hold)
}

func (l *Log) put(e Event, hold bool) (Event, error) {
	e.Seq, l.hold = l.last+1, hold
	if hold || len(l.held) > 0 {
		l.held = append(l.held, e)
		l.note(e)
		if !hold {
			l.flush()
		}
		return e, nil
	}
	err := l.write(&e)
	if disk.Full(err) {
		l.held, l.full = append(l.held, e), err
		l.note(e)
		return e, nil
	}
	return e, err
}

// Held is how many events are in memory only.
func (l *Log) Held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}

// Full is why events are held; nil when none are, or because of Hold alone.
func (l *Log) Full() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.full
}

// Flush writes the held events and the counted repeats that are due. With an error, some events are still held.
func (l *Log) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return l.failed
	}
	l.hold = false
	l.flush()
	if len(l.held) > 0 {
		return l.full
	}
	for _, e := range l.repeats.due(l.now()) {
		if _, err := l.put(e, false); err != nil {
			return err
		}
	}
	return l.full
}

func (l *Log) flush() {
	for len(l.held) > 0 {
		if l.full = l.write(&l.held[0]); l.full != nil {
			return
		}
		l.held = l.held[1:]
	}
	l.held, l.full = nil, nil
}

// write puts one numbered event into the file.
func (l *Log) write(e *Event) error {
	if err := l.mend(); err != nil {
		return err
	}
	// Events may be old when they are written: those of a block that went on for days without an engine.
	if l.size > l.limit || !l.began.IsZero() && e.Time.Sub(l.began) > segmentAge && l.size > 0 {
		if err := l.rotate(e.Seq); err != nil {
			return err
		}
	}
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("writing a %s event of %s: %w", e.Type, e.Address, err)
	}
	n, err := l.file.Write(append(line, '\n'))
	if err != nil {
		l.torn = n > 0
		_ = l.mend() // if it fails: before the next line
		return fmt.Errorf("writing to the event log in %s: %w", l.dir, err)
	}
	l.size += int64(n)
	l.note(*e)
	if e.Type.durable() && l.timer == nil {
		l.timer = time.AfterFunc(syncWithin, l.syncLater)
	}
	return nil
}

func (l *Log) syncLater() {
	l.mu.Lock()
	l.timer = nil
	f, failed := l.file, l.failed
	l.mu.Unlock()
	if failed == nil {
		_ = f.Sync() // if the disk fails, so does the next write
	}
}

// mend cuts off a partial line left by a full disk, so that the lines after it are readable.
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

// rotate starts a new file whose first event has that number. When it fails, the old one is still open.
func (l *Log) rotate(first uint64) error {
	if l.file != nil {
		if err := l.file.Sync(); err != nil {
			return fmt.Errorf("syncing the event log: %w", err)
		}
	}
	path := filepath.Join(l.dir, fmt.Sprintf("%020d.jsonl", first))
	f, err := private.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND|os.O_TRUNC)
	if err != nil {
		return fmt.Errorf("starting a new file of the event log: %w", err)
	}
	size := int64(0)
	if len(l.cursors) > 0 { // so that the files before it can be deleted
		line, err := json.Marshal(Event{V: FormatVersion, Seq: first - 1, Time: l.now().UTC(), Type: LogFile,
			Cursors: l.cursors})
		if err == nil {
			_, err = f.Write(append(line, '\n'))
		}
		if err != nil {
			_ = f.Close()
			_ = os.Remove(path)
			return fmt.Errorf("starting a new file of the event log: %w", err)
		}
		size = int64(len(line)) + 1
	}
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file, l.size, l.began = f, size, time.Time{}
	l.prune()
	return nil
}

// prune deletes the oldest files beyond the limit.
func (l *Log) prune() {
	segments, err := Segments(l.dir)
	if err != nil {
		return // the next rotation tries again
	}
	total := int64(0)
	for i := len(segments) - 1; i >= 0; i-- {
		info, err := os.Stat(segments[i])
		if err != nil {
			continue
		}
		if total += info.Size(); total > l.kept && i < len(segments)-1 {
			_ = os.Remove(segments[i])
		}
	}
}

// Cursor returns how far the log has followed the block at address.
func (l *Log) Cursor(address string) Cursor {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cursors[address]
}

// Close writes the held and counted events if it can, syncs and closes the log.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return nil
	}
	if !l.hold {
		l.flush()
		for _, e := range l.repeats.all() {
			_, _ = l.put(e, false)
		}
	}
	l.failed = errors.New("the event log is closed")
	if l.timer != nil {
		l.timer.Stop()
	}
	return cmp.Or(l.full, l.file.Sync(), l.file.Close())
}

// Segments lists the files of the log in dir, oldest first; none when the folder does not exist.
func Segments(dir string) ([]string, error) {
	if info, err := os.Lstat(dir); err == nil && info.Mode().Type() == os.ModeSymlink {
		return nil, fmt.Errorf("reading the event log: %s is a link, which is not followed: replace it by the folder", dir)
	}
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
