// Package tail follows the log file of a program that runs, line by line.
package tail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/recipe-rl/recipe/internal/regular"
)

// Options say how a file is followed. The zero value follows from the start.
type Options struct {
	From int64         // offset of the first byte to read
	Poll time.Duration // how often to look for more; default 200 ms
	// Trim, in bytes: a file of which so much has been read is emptied, so that one which is written for days does not
	// fill the disk. Whoever writes must append (O_APPEND), and what it writes in that very instant is lost. 0: never.
	Trim int64
	Done <-chan struct{}
	// Done, when it is closed, says that nothing more will be written: what is there is read and Follow returns.
}

// maxLine bounds a line; a longer one is handed on in pieces.
const maxLine = 1 << 20

// Follow calls line for every whole line that the file holds and that is added to it, without its line end, until the
// context ends or Options.Done is closed. Progress bars, which end their lines with a carriage return, count as lines.
// A file that does not exist yet is waited for; one that is cut short (a rotated log) is read again from its start. The
// slice given to line is valid only during the call. The error is the context's, or that of reading.
func Follow(ctx context.Context, path string, o Options, line func([]byte)) error {
	if o.Poll <= 0 {
		o.Poll = 200 * time.Millisecond
	}
	f := follower{path: path, offset: o.From, trim: o.Trim, line: line}
	defer f.close()
	for {
		done := isClosed(o.Done) // asked before reading, so that the last words are not missed
		if err := f.read(); err != nil {
			return fmt.Errorf("follow %s: %w", path, err)
		}
		if done {
			f.flush()
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-o.Done:
		case <-time.After(o.Poll):
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

type follower struct {
	path   string
	f      *os.File
	offset int64
	trim   int64
	rest   []byte // of a line that has no end yet
	line   func([]byte)
}

// read hands on what is there now.
func (t *follower) read() error {
	if t.f == nil {
		f, _, err := regular.Open(t.path)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		t.f = f
	}
	info, err := t.f.Stat()
	if err != nil {
		return err
	}
	if info.Size() < t.offset {
		t.offset, t.rest = 0, nil
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := t.f.ReadAt(buf, t.offset)
		t.offset += int64(n)
		t.take(buf[:n])
		if errors.Is(err, io.EOF) {
			return t.empty()
		}
		if err != nil {
			return err
		}
	}
}

// empty cuts the file to nothing once enough of it has been read. What has been read of an unfinished line is kept.
func (t *follower) empty() error {
	if t.trim <= 0 || t.offset < t.trim {
		return nil
	}
	f, err := os.OpenFile(t.path, os.O_WRONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	t.offset = 0
	return errors.Join(f.Truncate(0), f.Close())
}

func (t *follower) take(data []byte) {
	for len(data) > 0 {
		i := bytes.IndexAny(data, "\r\n")
		if i < 0 {
			t.rest = append(t.rest, data...)
			if len(t.rest) >= maxLine {
				t.flush()
			}
			return
		}
		t.rest = append(t.rest, data[:i]...)
		t.flush()
		data = data[i+1:]
	}
}

// flush hands on the line collected so far, unless it is empty.
func (t *follower) flush() {
	if len(t.rest) > 0 {
		t.line(t.rest)
		t.rest = t.rest[:0]
	}
}

func (t *follower) close() {
	if t.f != nil {
		_ = t.f.Close()
	}
}
