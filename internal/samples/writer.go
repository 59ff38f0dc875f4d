package samples

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/tidwall/gjson"

	"github.com/recipe-rl/recipe/internal/regular"
)

// queueBytes bounds the memory of bodies that wait to be written. A body beyond it is lost and counted.
const queueBytes = 64 << 20

// writeBytes bounds the compressed bodies of one write, but for its last, and so the memory that is kept for the next.
const writeBytes = 4 << 20

// Writer appends to a record. Its methods only queue: one goroutine compresses and writes. They may be called from any
// goroutine and on nil, which records nothing.
type Writer struct {
	dir    string
	limits Limits
	now    func() time.Time
	failed func(error)

	mu      sync.Mutex
	queue   []entry
	waiting int // bytes of queue
	lost    int64
	closed  bool
	wake    chan struct{}
	done    chan struct{}

	// Only the writing goroutine uses these.
	zstd    *zstd.Encoder
	index   *os.File
	bodies  *os.File
	segment int
	began   time.Time
	lines   int64  // bytes of index
	size    int64  // bytes of bodies
	packed  []byte // the bodies of the last write, compressed: memory for the next
	text    []byte // its lines, likewise
	broken  bool   // the last write failed, and it was reported
}

type entry struct {
	line Line
	body []byte
}

// NewWriter opens the record in dir, which is created. failed is told when it cannot be written, once until it can
// again: a record that fails must not fail the run.
func NewWriter(dir string, limits Limits, failed func(error)) (*Writer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of the record of samples: %w", err)
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(1<<20))
	if err != nil {
		return nil, fmt.Errorf("starting the compression of samples: %w", err)
	}
	have, err := segments(dir, ".")
	if err != nil {
		return nil, err
	}
	w := &Writer{dir: dir, limits: limits, now: time.Now, failed: failed, zstd: enc, wake: make(chan struct{}, 1),
		done: make(chan struct{})}
	if len(have) > 0 {
		w.segment = have[len(have)-1] // a new process starts new files: a torn line stays the last of its file
	}
	go w.run()
	return w, nil
}

// Post records a group. Its body, the parts one behind the other, is copied.
func (w *Writer) Post(line Line, parts ...[]byte) {
	line.Type = Posted
	if w != nil {
		w.add(line, slices.Concat(parts...))
	}
}

// Deliver records that a trainer received a group.
func (w *Writer) Deliver(line Line) {
	line.Type = Delivered
	w.add(line, nil)
}

// Train records what a trainer computed for a group.
func (w *Writer) Train(line Line, computed Computed) {
	line.Type = Trained
	body, _ := json.Marshal(computed) // byte slices always marshal
	w.add(line, body)
}

// Drop records that a group left the queue untrained.
func (w *Writer) Drop(line Line) {
	line.Type = Dropped
	w.add(line, nil)
}

// add queues an entry, which owns body from then on.
func (w *Writer) add(line Line, body []byte) {
	if w == nil {
		return
	}
	line.V = FormatVersion
	if line.Time.IsZero() {
		line.Time = w.now().UTC()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if w.waiting > 0 && w.waiting+len(body) > queueBytes {
		if line.Type == Posted {
			w.lost++
		}
		return
	}
	w.queue = append(w.queue, entry{line, body})
	w.waiting += len(body)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Close writes what is queued and closes the files.
func (w *Writer) Close() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.closed = true
	close(w.wake)
	w.mu.Unlock()
	<-w.done
	return w.closeFiles()
}

func (w *Writer) run() {
	defer close(w.done)
	for open := true; open; {
		_, open = <-w.wake
		w.mu.Lock()
		list, lost := w.queue, w.lost
		w.queue, w.waiting, w.lost = nil, 0, 0
		w.mu.Unlock()
		if lost > 0 {
			list = append(list, entry{line: Line{V: FormatVersion, Type: Lost, Time: w.now().UTC(), Groups: lost}})
		}
		if len(list) == 0 {
			continue
		}
		err := w.write(list)
		if err != nil {
			w.countLost(list)
			if !w.broken {
				w.failed(err)
			}
		}
		w.broken = err != nil
	}
}

// countLost counts the groups of a write that failed. Some of its groups may have been written.
func (w *Writer) countLost(list []entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range list {
		if e.line.Type == Posted {
			w.lost++
		}
		w.lost += e.line.Groups
	}
}

// write appends entries: first their bodies, then their lines, so that a line is never there without its body.
func (w *Writer) write(list []entry) error {
	for len(list) > 0 {
		if err := w.rotate(); err != nil {
			return err
		}
		n, offset := 0, w.size
		bodies, lines := w.packed[:0], w.text[:0]
		for ; n < len(list) && w.size < segmentBytes && len(bodies) < writeBytes; n++ {
			e := &list[n]
			if len(e.body) > 0 {
				before := len(bodies)
				bodies = w.zstd.EncodeAll(append(e.body, '\n'), bodies)
				e.line.Offset, e.line.Bytes = w.size, int64(len(bodies)-before)
				w.size += e.line.Bytes
			}
			if e.line.Type == Posted {
				e.line.Scores = scores(e.body)
			}
			text, err := json.Marshal(&e.line)
			if err != nil {
				return fmt.Errorf("recording group %d: %w", e.line.ID, err)
			}
			lines = append(append(lines, text...), '\n')
		}
		_, err := w.bodies.WriteAt(bodies, offset)
		if err == nil {
			_, err = w.index.Write(lines)
		}
		if err != nil {
			// The next write starts new files, so that neither a torn line nor a torn body lies before a whole one.
			_ = w.closeFiles()
			return fmt.Errorf("writing the record of samples in %s: %w", w.dir, err)
		}
		w.lines += int64(len(lines))
		w.packed, w.text = bodies, lines
		list = list[n:]
	}
	return nil
}

// scores reads the scores of a group's JSON.
func scores(group []byte) []float32 {
	var out []float32
	gjson.GetBytes(group, "scores").ForEach(func(_, v gjson.Result) bool {
		out = append(out, float32(v.Num))
		return true
	})
	return out
}

// rotate starts new files when there are none or the current ones are full, and deletes those beyond the limits.
func (w *Writer) rotate() error {
	if w.index != nil && w.size < segmentBytes && w.lines < indexBytes && w.now().Sub(w.began) < segmentAge {
		return nil
	}
	if err := w.closeFiles(); err != nil {
		return err
	}
	w.segment++
	w.size, w.lines, w.began = 0, 0, w.now()
	// A killed process may have left bodies without an index.
	bodies, err := regular.Create(file(w.dir, w.segment, bodySuffix), 0)
	if err != nil {
		return fmt.Errorf("starting a file of the record of samples: %w", err)
	}
	index, err := regular.Create(file(w.dir, w.segment, indexSuffix), 0)
	if err != nil {
		return errors.Join(fmt.Errorf("starting a file of the record of samples: %w", err), bodies.Close())
	}
	w.bodies, w.index = bodies, index
	return prune(w.dir, w.segment, w.limits, w.now())
}

func (w *Writer) closeFiles() error {
	if w.index == nil {
		return nil
	}
	err := errors.Join(w.index.Close(), w.bodies.Close())
	w.index, w.bodies = nil, nil
	return err
}

// prune deletes the oldest files beyond the limits, never those being written.
func prune(dir string, current int, limits Limits, now time.Time) error {
	have, err := segments(dir, ".")
	if err != nil {
		return err
	}
	total := int64(2 * segmentBytes) // what the current files may come to, and the last lines of a large write
	for i := len(have) - 1; i >= 0; i-- {
		if have[i] == current {
			continue
		}
		index, body := file(dir, have[i], indexSuffix), file(dir, have[i], bodySuffix)
		a, err := os.Stat(index)
		if err != nil {
			continue
		}
		total += a.Size()
		if b, err := os.Stat(body); err == nil {
			total += b.Size()
		}
		if total > limits.Bytes || limits.Age > 0 && now.Sub(a.ModTime()) > limits.Age {
			// The index goes first: without it nobody looks for the bodies.
			if err := errors.Join(os.Remove(index), os.Remove(body)); err != nil {
				return fmt.Errorf("deleting old samples: %w", err)
			}
		}
	}
	return nil
}
