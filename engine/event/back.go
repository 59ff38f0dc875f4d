package event

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/recipe-rl/recipe/engine/private"
)

// Back calls fn with the events that are in dir now, the newest first, until fn returns an error, which Back returns.
// Lines that wanted rejects by their text are passed over, which takes a hundredth of the time of reading them.
func Back(dir string, wanted func(line []byte) bool, fn func(Event) error) error {
	segments, err := Segments(dir)
	if err != nil {
		return err
	}
	b := &back{wanted: wanted, fn: fn}
	for i, path := range slices.Backward(segments) {
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

type back struct {
	wanted func(line []byte) bool
	fn     func(Event) error
	text   bytes.Buffer // of one file
}

func (b *back) load(path string) error {
	f, err := private.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return fmt.Errorf("opening the event log: %w", err)
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
		start := bytes.LastIndexByte(text[:end], '\n')
		if line := text[start+1 : end]; b.wanted(line) {
			e, err := decode(line)
			if err != nil {
				return damagedLine(path, bytes.Count(text[:end], []byte{'\n'})+1, err)
			}
			if e.V <= FormatVersion && (e.Type != LogFile || oldest) {
				if err := b.fn(e); err != nil {
					return err
				}
			}
		}
		end = start
	}
	return nil
}
