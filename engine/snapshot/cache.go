package snapshot

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/event/logcache"
)

var cacheFile = logcache.File{Name: "snapshot.kept", Limit: 256 << 20} // far above a run with a thousand metrics

// Read folds the log in dir. What its complete files come to is kept beside them.
func Read(dir string) (*Snapshot, error) {
	f, save, err := logcache.Read(context.Background(), dir, cacheFile, newCachedSnapshot)
	_ = save() // the log is read the next time
	return &f.Snapshot, err
}

// Before folds what was complete in the log in dir at a time, for who shows what comes after it: nothing that happened
// since is in it.
func Before(dir string, at time.Time) (*Snapshot, error) {
	f, save, err := logcache.Complete(context.Background(), dir, cacheFile, newCachedSnapshot)
	if err != nil {
		return &Snapshot{}, err
	}
	_ = save() // the log is read the next time
	if then, err := event.WrittenBefore(dir, at); err != nil || f.Last > then {
		return &Snapshot{}, err
	}
	return &f.Snapshot, nil
}

// cachedSnapshot is a Snapshot that is kept.
type cachedSnapshot struct{ Snapshot }

func newCachedSnapshot() *cachedSnapshot { return &cachedSnapshot{} }

func (f *cachedSnapshot) Seen() uint64                      { return f.Last }
func (f *cachedSnapshot) MarshalBinary() ([]byte, error)    { return json.Marshal(&f.Snapshot) }
func (f *cachedSnapshot) UnmarshalBinary(text []byte) error { return json.Unmarshal(text, &f.Snapshot) }

// cachedSeries is a Series in the file. Its points are most of that file, and numbers in JSON are slow to read.
type cachedSeries struct {
	Points       []byte // pairs of 8 bytes: step and value
	Stride, Held int
	First, Last  float64
	Count        int
	Sum          float64
}

// MarshalJSON implements json.Marshaler.
func (s *Series) MarshalJSON() ([]byte, error) {
	k := cachedSeries{Stride: s.stride, Held: s.held, First: s.First, Last: s.Last, Count: s.Count, Sum: s.Sum}
	for _, p := range s.Points {
		k.Points = binary.LittleEndian.AppendUint64(k.Points, uint64(p.Step))
		k.Points = binary.LittleEndian.AppendUint64(k.Points, math.Float64bits(p.Value))
	}
	return json.Marshal(k)
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Series) UnmarshalJSON(text []byte) error {
	var k cachedSeries
	if err := json.Unmarshal(text, &k); err != nil {
		return err
	}
	*s = Series{stride: k.Stride, held: k.Held, First: k.First, Last: k.Last, Count: k.Count, Sum: k.Sum}
	for pair := range slices.Chunk(k.Points, 16) {
		if len(pair) < 16 {
			return errors.New("a series ends within a point")
		}
		s.Points = append(s.Points, Point{int64(binary.LittleEndian.Uint64(pair)),
			math.Float64frombits(binary.LittleEndian.Uint64(pair[8:]))})
	}
	return nil
}
