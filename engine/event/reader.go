package event

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// pollEvery is how often a follower of another process's log looks for new lines.
const pollEvery = 100 * time.Millisecond

// Read calls fn with every event after the given number that is in dir now, in order.
func Read(dir string, after uint64, fn func(Event) error) error {
	return ReadLines(dir, after, nil, fn)
}

// ReadLines is Read that passes over lines by their text, which takes a fraction of the time of reading them. text is
// asked on several cores at a time; nil: all lines are read.
func ReadLines(dir string, after uint64, text func(line []byte) bool, fn func(Event) error) error {
	r := &reader{dir: dir, after: after, text: text}
	defer r.close()
	_, err := r.drain(fn)
	return err
}

// ErrRemoved reports that the log was removed while it was followed: its run was destroyed.
var ErrRemoved = errors.New("the run was removed")

// Follow calls fn with every event after the given number, existing and future ones, until ctx ends
// (which is not an error), fn returns an error (which Follow returns), or the log is removed (ErrRemoved). A log that
// does not exist yet is waited for.
func Follow(ctx context.Context, dir string, after uint64, fn func(Event) error) error {
	return FollowUntil(ctx, dir, after, fn, func() bool { return false })
}

// FollowUntil is Follow that also ends, without an error, once over says that nothing more is written. over is asked
// whenever there is no new event; what was written before its answer is still read.
func FollowUntil(ctx context.Context, dir string, after uint64, fn func(Event) error, over func() bool) error {
	r := &reader{dir: dir, after: after}
	defer r.close()
	r.seen, _ = os.Stat(dir) // nothing yet: it is noted when it comes
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if _, err := r.drain(fn); err != nil {
			return err
		}
		if r.removed() {
			if r.file != nil { // what was written last
				if _, err := r.lines(fn); err != nil {
					return err
				}
			}
			if !r.restored(ctx) {
				return fmt.Errorf("%w: its events in %s are gone", ErrRemoved, dir)
			}
			continue
		}
		if over() {
			_, err := r.drain(fn)
			return err
		}
		select {
		case <-ctx.Done():
			_, err := r.drain(fn)
			return err
		case <-tick.C:
		}
	}
}

// reader keeps its position in the newest segment between drains: after the last whole line. A partial line is read
// again, since the writer may have cut it off meanwhile.
type reader struct {
	dir   string
	after uint64
	text  func(line []byte) bool
	path  string
	file  *os.File
	buf   *bufio.Reader
	whole int64       // bytes of whole lines
	line  int         // number of whole lines
	seen  os.FileInfo // of the folder, when it was first there
}

// removed says whether the folder that was there is gone, or another one is in its place. A new folder may have the
// inode of the old one, but a new segment cannot have that of one that is open here.
func (r *reader) removed() bool {
	now, err := os.Stat(r.dir)
	switch {
	case err != nil:
		return r.seen != nil && errors.Is(err, os.ErrNotExist)
	case r.seen == nil:
		r.seen = now
	case !os.SameFile(r.seen, now):
		return true
	}
	if r.file == nil {
		return false
	}
	read, err := r.file.Stat()
	if err != nil {
		return false
	}
	now, err = os.Stat(r.path)
	return err == nil && !os.SameFile(read, now)
}

// restoredWithin is how long a removed log may take to be there again: the engine of a live run restores it.
const restoredWithin = 4 * time.Second

// restored waits for the same log to be there again. The reader then continues in it after the last event it has read.
func (r *reader) restored(ctx context.Context) bool {
	if r.file == nil {
		return false
	}
	head := make([]byte, min(r.whole, 4096))
	if _, err := r.file.ReadAt(head, 0); err != nil || len(head) == 0 {
		return false
	}
	for deadline := time.Now().Add(restoredWithin); ; {
		if again, err := openSegment(r.path); err == nil {
			same := make([]byte, len(head))
			_, err := again.ReadAt(same, 0)
			_ = again.Close()
			if err == nil && !bytes.Equal(head, same) {
				return false // another run has taken its place
			}
			if err == nil {
				r.close()
				r.path = ""
				r.seen, _ = os.Stat(r.dir)
				return true
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pollEvery):
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

func (r *reader) close() {
	if r.file != nil {
		_ = r.file.Close()
		r.file = nil
	}
}

func (r *reader) drain(fn func(Event) error) (int, error) {
	segments, err := Segments(r.dir)
	if err != nil {
		return 0, err
	}
	n := 0
	for i, path := range segments {
		if path < r.path || (i+1 < len(segments) && endsBefore(segments[i+1], r.after)) {
			continue
		}
		if path != r.path {
			err := r.open(path)
			if errors.Is(err, os.ErrNotExist) {
				continue // deleted since it was listed
			}
			if err != nil {
				return n, err
			}
		}
		m, err := r.lines(fn)
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// endsBefore reports that every event before segment next has at most the number after.
func endsBefore(next string, after uint64) bool {
	first, err := FirstOf(next)
	return err == nil && first <= after+1
}

// FirstOf is the number of the first event of a segment, which its name says.
func FirstOf(segment string) (uint64, error) {
	return strconv.ParseUint(strings.TrimSuffix(filepath.Base(segment), ".jsonl"), 10, 64)
}

// WrittenBefore is the number of the newest event in the oldest files of a log, those to which nothing was added since
// a time; 0: there are none.
func WrittenBefore(dir string, at time.Time) (seq uint64, err error) {
	segments, err := Segments(dir)
	if err != nil {
		return 0, err
	}
	for i := range len(segments) - 1 {
		info, err := os.Stat(segments[i])
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted since it was listed
		}
		if err != nil {
			return 0, fmt.Errorf("reading the event log: %w", err)
		}
		first, err := FirstOf(segments[i+1])
		if err != nil || !info.ModTime().Before(at) {
			break
		}
		seq = max(first, 1) - 1
	}
	return seq, nil
}

func (r *reader) open(path string) error {
	r.close()
	f, err := openSegment(path)
	if err != nil {
		return err
	}
	r.path, r.file, r.buf, r.whole, r.line = path, f, bufio.NewReaderSize(f, 1<<16), 0, 0
	return nil
}

func (r *reader) lines(fn func(Event) error) (int, error) {
	n := 0
	for {
		lines, partial, err := r.some()
		for i, d := range decodeAll(lines, Pick{Text: r.text}) {
			r.whole += int64(len(lines[i]))
			r.line++
			switch e := d.event; {
			case d.err != nil:
				return n, damagedLine(r.path, r.line, d.err)
			case r.text != nil && e.Type == LogFile: // the event before it, whose number it has, may have been passed over
			case e.Seq > r.after && e.V <= FormatVersion:
				r.after = e.Seq
				n++
				if err := fn(e); err != nil {
					return n, err
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return n, r.back(partial)
		}
		if err != nil {
			return n, fmt.Errorf("reading the event log %s: %w", r.path, err)
		}
	}
}

// some reads the next whole lines, not all that there are. Partial is the length of a line whose end is not there yet.
func (r *reader) some() (lines [][]byte, partial int, err error) {
	for len(lines) < ahead {
		line, err := r.buf.ReadBytes('\n')
		if err != nil {
			return lines, len(line), err
		}
		lines = append(lines, line)
	}
	return lines, 0, nil
}

func damagedLine(path string, line int, err error) error {
	return fmt.Errorf(
		"the event log %s is damaged at line %d: %w; move the file away to continue without its events", path,
		line, err)
}

// back returns to the end of the whole lines.
func (r *reader) back(partial int) error {
	if partial == 0 {
		return nil
	}
	if _, err := r.file.Seek(r.whole, io.SeekStart); err != nil {
		return fmt.Errorf("reading the event log %s: %w", r.path, err)
	}
	r.buf.Reset(r.file)
	return nil
}
