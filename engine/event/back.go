package event

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
)

// Pick chooses among events. Both functions are asked beforehand about more lines than are needed in the end; Event is
// asked on several cores at a time.
type Pick struct {
	Text  func(line []byte) bool // passes over lines by their text, which takes a hundredth of the time of reading them
	Event func(Event) bool
	After uint64 // files whose events have at most this number are not read
}

// Back calls fn with the events that are in dir now, the newest first, until fn returns an error, which Back returns.
func Back(dir string, pick Pick, fn func(Event) error) error {
	segments, err := Segments(dir)
	if err != nil {
		return err
	}
	b := &back{pick: pick, fn: fn, batch: 32}
	for i, path := range slices.Backward(segments) {
		if i+1 < len(segments) && endsBefore(segments[i+1], pick.After) {
			return nil
		}
		if err := b.load(path); errors.Is(err, os.ErrNotExist) {
			continue // deleted since it was listed
		} else if err != nil {
			return err
		}
		if err := b.lines(path, i == 0); err != nil {
			return err
		}
	}
	return nil
}

// Last is the number of the newest event in dir; 0: there is none.
func Last(dir string) (seq uint64, err error) {
	found := errors.New("found")
	every := Pick{Text: func([]byte) bool { return true }}
	err = Back(dir, every, func(e Event) error { seq = e.Seq; return found })
	if errors.Is(err, found) {
		err = nil
	}
	return seq, err
}

type back struct {
	pick  Pick
	fn    func(Event) error
	text  bytes.Buffer // of one file
	batch int          // lines that are decoded at a time: few first, as most often few are needed
}

func (b *back) load(path string) error {
	f, err := openSegment(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	b.text.Reset()
	if _, err := b.text.ReadFrom(f); err != nil {
		return fmt.Errorf("reading the event log %s: %w", path, err)
	}
	return nil
}

// lines goes through the whole lines of the file that is loaded. The first line of a file repeats the number of the
// event before it, which Read leaves out, too, unless the file is the oldest.
func (b *back) lines(path string, oldest bool) error {
	text := b.text.Bytes()
	for end := bytes.LastIndexByte(text, '\n'); end >= 0; {
		var lines [][]byte
		var ends []int
		for end >= 0 && len(lines) < b.batch {
			start := bytes.LastIndexByte(text[:end], '\n')
			if line := text[start+1 : end]; b.pick.Text(line) {
				lines, ends = append(lines, line), append(ends, end)
			}
			end = start
		}
		for i, d := range decodeAll(lines, Pick{Event: b.pick.Event}) {
			if d.err != nil {
				return damagedLine(path, bytes.Count(text[:ends[i]], []byte{'\n'})+1, d.err)
			}
			if d.kept && d.event.V <= FormatVersion && (d.event.Type != LogFile || oldest) {
				if err := b.fn(d.event); err != nil {
					return err
				}
			}
		}
		b.batch = min(2*b.batch, ahead)
	}
	return nil
}
