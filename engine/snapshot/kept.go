package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/private"
)

const (
	keptName  = "snapshot.kept"
	keptLimit = 256 << 20 // bytes; far above that of a run with a thousand metrics
)

// Read folds the log in dir. What its complete files come to is kept in a file beside them, so that only the newest
// file is read each time: a log of a million events takes seconds. That file is no record. Without it, or when it does
// not fit the log or this program, the whole log is read; when it cannot be written, that changes nothing.
func Read(dir string) (*Snapshot, error) {
	done, next, err := complete(dir)
	program := thisProgram()
	if err != nil || len(done) == 0 || program == "" {
		snap := &Snapshot{}
		return snap, errors.Join(err, event.Read(dir, 0, func(e event.Event) error { snap.Apply(e); return nil }))
	}
	snap, to := recall(dir, program, done)
	keep := func() {
		if to != done[len(done)-1] {
			to = done[len(done)-1]
			_ = keep(dir, kept{program, done, snap})
		}
	}
	err = event.Read(dir, snap.Last, func(e event.Event) error {
		if e.Seq >= next {
			keep()
		}
		snap.Apply(e)
		return nil
	})
	if err == nil {
		keep() // the newest file had no event yet
	}
	return snap, err
}

// file is one file of the log as it was folded.
type file struct {
	Name     string
	Bytes    int64
	Modified int64 // nanoseconds since 1970
}

// complete lists the files of a log to which nothing is added any more, and the number of the first event after them.
func complete(dir string) (done []file, next uint64, err error) {
	segments, err := event.Segments(dir)
	if err != nil || len(segments) < 2 {
		return nil, 0, err
	}
	for _, path := range segments[:len(segments)-1] {
		info, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted since it was listed
		}
		if err != nil {
			return nil, 0, fmt.Errorf("reading the event log: %w", err)
		}
		done = append(done, file{filepath.Base(path), info.Size(), info.ModTime().UnixNano()})
	}
	if next, err := event.FirstOf(segments[len(segments)-1]); err == nil {
		return done, next, nil
	}
	return nil, 0, nil // it is no file of the engine's: nothing is known of what is complete
}

// kept is what the complete files of a log come to.
type kept struct {
	Program  string // another program may fold in another way
	Files    []file
	Snapshot *Snapshot
}

// recall returns what is kept of a log, and the last file in it; an empty snapshot when that does not fit.
func recall(dir, program string, done []file) (*Snapshot, file) {
	content, err := private.ReadFile(filepath.Join(dir, keptName), keptLimit)
	if err != nil {
		return &Snapshot{}, file{}
	}
	sum, text, _ := bytes.Cut(content, []byte("\n"))
	var k kept
	if string(sum) != digest(text) || json.Unmarshal(text, &k) != nil || k.Program != program || k.Snapshot == nil {
		return &Snapshot{}, file{}
	}
	// The oldest files of a long log are deleted, and so may be those of this one since.
	k.Files = slices.DeleteFunc(k.Files, func(f file) bool { return f.Name < done[0].Name })
	if n := len(k.Files); n == 0 || n > len(done) || !slices.Equal(k.Files, done[:n]) {
		return &Snapshot{}, file{}
	}
	return k.Snapshot, k.Files[len(k.Files)-1]
}

func keep(dir string, k kept) error {
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return private.WriteFile(filepath.Join(dir, keptName), append([]byte(digest(text)+"\n"), text...))
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// thisProgram tells programs apart that were built from different sources; empty: it cannot.
func thisProgram() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d bytes, %s", info.Size(), info.ModTime().UTC().Format(time.RFC3339Nano))
}

// keptSeries is a Series in the file. Its points are most of that file, and numbers in JSON are slow to read.
type keptSeries struct {
	Points       []byte // pairs of 8 bytes: step and value
	Stride, Held int
	First, Last  float64
	Count        int
}

// MarshalJSON implements json.Marshaler.
func (s *Series) MarshalJSON() ([]byte, error) {
	k := keptSeries{Stride: s.stride, Held: s.held, First: s.First, Last: s.Last, Count: s.Count}
	for _, p := range s.Points {
		k.Points = binary.LittleEndian.AppendUint64(k.Points, uint64(p.Step))
		k.Points = binary.LittleEndian.AppendUint64(k.Points, math.Float64bits(p.Value))
	}
	return json.Marshal(k)
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Series) UnmarshalJSON(text []byte) error {
	var k keptSeries
	if err := json.Unmarshal(text, &k); err != nil {
		return err
	}
	*s = Series{stride: k.Stride, held: k.Held, First: k.First, Last: k.Last, Count: k.Count}
	for pair := range slices.Chunk(k.Points, 16) {
		if len(pair) < 16 {
			return errors.New("a series ends within a point")
		}
		s.Points = append(s.Points, Point{int64(binary.LittleEndian.Uint64(pair)),
			math.Float64frombits(binary.LittleEndian.Uint64(pair[8:]))})
	}
	return nil
}
