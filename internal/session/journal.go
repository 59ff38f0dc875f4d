package session

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/recipe-rl/recipe/internal/regular"
)

// record is one line of a session's journal.
type record struct {
	Open    json.RawMessage `json:"open,omitempty"` // what the session was opened with; the first line
	Call    *storedCall     `json:"call,omitempty"`
	Deliver *int            `json:"deliver,omitempty"` // the number of a call
	State   json.RawMessage `json:"state,omitempty"`   // of the session, replacing the one before
}

type storedCall struct {
	Call
	Parent  int    `json:"parent"`
	Request []byte `json:"request"` // Key
	Said    []byte `json:"said"`    // Key
	Rest    []byte `json:"rest,omitempty"`
}

// maxLine bounds a line of a journal: a call of a million tokens with their log-probabilities fits.
const maxLine = 64 << 20

// maxJournal bounds a journal that is read: one that recipe writes has less, with all the tokens of a session.
const maxJournal = 1 << 30

// Journal is the file that a session lives in: what was acknowledged to a program is in it.
type Journal struct {
	file   *os.File
	size   int64 // of the whole lines
	broken error // a line could not be written, and its part not be removed
}

// Create begins a journal with what its session was opened with. The file must not exist.
func Create(path string, open any) (*Journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("begin the journal of a session: %w", err)
	}
	j := &Journal{file: f}
	body, err := json.Marshal(open)
	if err == nil {
		err = j.write(record{Open: body}, true)
	}
	if err == nil {
		err = syncFolder(filepath.Dir(path))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return j, nil
}

// write appends a line, and brings it to the disk if sync is set.
func (j *Journal) write(r record, sync bool) error {
	line, err := json.Marshal(r)
	if err == nil {
		err = j.broken
	}
	if err == nil && len(line) > maxLine { // it could not be read again
		err = fmt.Errorf("a line has %d bytes, want at most %d", len(line), maxLine)
	}
	if err != nil {
		return fmt.Errorf("write the journal of a session: %w", err)
	}
	if _, err = j.file.Write(append(line, '\n')); err == nil && sync {
		err = j.file.Sync()
	}
	if err != nil { // what follows must not be appended to a part of a line
		j.broken = j.file.Truncate(j.size)
		return fmt.Errorf("write the journal of a session: %w", err)
	}
	j.size += int64(len(line)) + 1
	return nil
}

// Call records a call that was put into the tree.
func (j *Journal) Call(t *Tree, n int) error {
	c := t.nodes[n]
	return j.write(record{Call: &storedCall{c.Call, c.parent, c.request[:], c.said[:], c.rest[:]}}, true)
}

// Deliver records that the answer of a call has arrived. It is not brought to the disk by itself: if it is lost, the
// call is not trained.
func (j *Journal) Deliver(n int) error { return j.write(record{Deliver: &n}, false) }

// State records the state of the session.
func (j *Journal) State(state any) error {
	body, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("write the journal of a session: %w", err)
	}
	return j.write(record{State: body}, true)
}

// Close ends writing; the file stays.
func (j *Journal) Close() error { return j.file.Close() }

// Remove deletes the file.
func (j *Journal) Remove() error { return errors.Join(j.file.Close(), os.Remove(j.file.Name())) }

// Resume reads a journal into a tree, and goes on writing it. A line that was cut off when the process was killed was
// never acknowledged: it is dropped.
func Resume(path string, opened, state any) (*Journal, *Tree, error) {
	in, info, err := regular.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read the journal of a session: %w", err)
	}
	defer func() { _ = in.Close() }()
	if info.Size() > maxJournal {
		return nil, nil, fmt.Errorf("read the journal %s: it has %d bytes, want at most %d", path, info.Size(), maxJournal)
	}
	tree, whole, err := replay(in, opened, state)
	if err != nil {
		return nil, nil, fmt.Errorf("read the journal %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("continue the journal of a session: %w", err)
	}
	now, err := f.Stat()
	if err == nil && !os.SameFile(info, now) {
		err = fmt.Errorf("%s was replaced while it was read", path)
	}
	if err == nil {
		err = f.Truncate(whole)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("continue the journal of a session: %w", err), f.Close())
	}
	return &Journal{file: f, size: whole}, tree, nil
}

// replay reads lines into a tree; whole is the length of those that are complete.
func replay(in io.Reader, opened, state any) (tree *Tree, whole int64, err error) {
	tree = &Tree{said: map[Key][]int{}}
	lines := bufio.NewReaderSize(in, 64<<10)
	for n := 0; ; n++ {
		line, err := readLine(lines)
		if errors.Is(err, io.EOF) {
			if n == 0 {
				return nil, 0, errors.New("it is empty")
			}
			return tree, whole, nil
		}
		if err != nil {
			return nil, 0, err
		}
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, 0, fmt.Errorf("line %d: %w", n+1, err)
		}
		if err := tree.apply(r, n == 0, opened, state); err != nil {
			return nil, 0, fmt.Errorf("line %d: %w", n+1, err)
		}
		whole += int64(len(line))
	}
}

// readLine returns a line with its end; what follows the last end of a line is io.EOF.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && len(line) <= maxLine:
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("a line is longer than %d bytes", maxLine)
		case err != nil:
			return nil, err
		default:
			return line, nil
		}
	}
}

func (t *Tree) apply(r record, first bool, opened, state any) error {
	switch {
	case first != (r.Open != nil):
		return errors.New("want what the session was opened with in the first line, and there alone")
	case r.Open != nil:
		return json.Unmarshal(r.Open, opened)
	case r.Call != nil:
		return t.restore(r.Call)
	case r.Deliver != nil:
		if *r.Deliver < 0 || *r.Deliver >= len(t.nodes) {
			return fmt.Errorf("call %d was delivered, there are %d", *r.Deliver, len(t.nodes))
		}
		t.Deliver(*r.Deliver)
		return nil
	case r.State != nil:
		return json.Unmarshal(r.State, state)
	}
	return errors.New("a line without a known member")
}

// restore puts a recorded call back.
func (t *Tree) restore(c *storedCall) error {
	n := node{Call: c.Call, parent: c.Parent}
	if copy(n.request[:], c.Request) != len(Key{}) || copy(n.said[:], c.Said) != len(Key{}) || c.Parent < -1 ||
		c.Parent >= len(t.nodes) || len(c.Logprobs) != len(c.Output) {
		return errors.New("a call whose parts do not fit together")
	}
	for _, v := range c.Versions {
		if v.Start < 0 || v.End < v.Start || v.End > len(c.Output) {
			return errors.New("a call whose versions do not fit its tokens")
		}
	}
	copy(n.rest[:], c.Rest) // journals of earlier versions have none: then nothing is equal to it
	t.insert(n)
	return nil
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
