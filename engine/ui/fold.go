package ui

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/event/logcache"
	"github.com/recipe-rl/recipe/engine/snapshot"
)

// fold is what the page shows of an event log.
type fold struct {
	snap   snapshot.Snapshot
	series map[string]*series // by address and metric, with a space between
	lanes  timeline
	lines  logLines
	plans  []operation
}

func newFold() *fold {
	return &fold{series: map[string]*series{}, lanes: timeline{Phases: map[string][]span{}, Doing: map[string][]span{},
		Work: map[string][]span{}, Distant: map[string]map[onHost]bool{}}}
}

// operation is one line of the plan that was applied.
type operation struct {
	Time    time.Time `json:"time"`
	Address string    `json:"address"`
	Action  string    `json:"action"`
	Reason  string    `json:"reason"`
}

// Seen implements logcache.Fold.
func (f *fold) Seen() uint64 { return f.snap.Last }

// Apply folds one event.
func (f *fold) Apply(e event.Event) {
	f.snap.Apply(e)
	f.lanes.take(e)
	f.lines.take(e)
	at := float64(e.Time.UnixNano()) / 1e9
	switch e.Type {
	case event.Metrics:
		for name, value := range e.Metrics {
			f.add(e.Address+" "+name, float64(e.Step), at, value)
		}
	case event.Machine:
		for name, value := range e.Metrics {
			f.add(machineOf(e)+" "+name, max(0, e.Time.Sub(f.snap.Started).Seconds()), at, value)
		}
	case event.Weights:
		f.add(e.Address+" seconds", float64(e.Version), at, e.Seconds)
	case event.Moved:
		f.move(e.From, e.Address)
	case event.RunStarted:
		f.plans = nil
	case event.Operation:
		f.plans = append(f.plans, operation{e.Time, e.Address, e.Action, e.Message})
	}
}

// move gives a block another address.
func (f *fold) move(from, to string) {
	for name, s := range f.series {
		if metric, ok := strings.CutPrefix(name, from+" "); ok {
			f.series[to+" "+metric] = s
			delete(f.series, name)
		}
	}
	moveKey(f.lanes.Phases, from, to)
	moveKey(f.lanes.Doing, from, to)
	moveKey(f.lanes.Work, from, to)
	moveKey(f.lanes.Distant, from, to)
}

func moveKey[V any](m map[string]V, from, to string) {
	if v, ok := m[from]; ok {
		m[to] = v
		delete(m, from)
	}
}

const (
	maxSeries     = 16384
	maxSeriesName = 2 << 10 // bytes
)

func (f *fold) add(name string, step, at, value float64) {
	s := f.series[name]
	if s == nil {
		if len(f.series) >= maxSeries || len(name) > maxSeriesName {
			return // a block that reports without end fills no memory
		}
		s = &series{}
		f.series[name] = s
	}
	s.add(step, at, value)
}

// machine stands before the metrics of a machine, where others have the address of a block: alone of the engine's,
// with the host and the block of a job's.
const machine = "machine"

func machineOf(e event.Event) string {
	if e.Host == "" {
		return machine
	}
	return machine + " " + e.Host + " " + e.Address
}

// cacheFile has 60 MB for a run with a log of a million events (515 MB).
var cacheFile = logcache.File{Name: "ui.kept", Limit: 256 << 20}

// cachedFold is a fold in the file, but for its columns, which follow it one after another: lists of numbers of 8
// bytes. The metrics of a block have the same steps and times.
type cachedFold struct {
	Snapshot []byte // JSON
	Columns  int
	Series   map[string][3]int // the columns of steps, times and values
	Lanes    timeline
	Lines    []logLine
	Plans    []operation
}

// MarshalBinary implements logcache.Fold.
func (f *fold) MarshalBinary() ([]byte, error) {
	k := cachedFold{Series: map[string][3]int{}, Lanes: f.lanes, Lines: f.lines.list, Plans: f.plans}
	var err error
	if k.Snapshot, err = json.Marshal(&f.snap); err != nil {
		return nil, err
	}
	var columns [][]float64
	var raw []byte
	known, seed, size := map[uint64]int{}, maphash.MakeSeed(), 0
	for name, s := range f.series {
		var of [3]int
		for i, list := range [][]float64{s.steps, s.times, s.values} {
			raw = appendFloats(raw[:0], list)
			hash := maphash.Bytes(seed, raw)
			n, ok := known[hash]
			if !ok || !slices.Equal(columns[n], list) {
				n, size = len(columns), size+len(raw)
				columns, known[hash] = append(columns, list), n
			}
			of[i] = n
		}
		k.Series[name] = of
	}
	k.Columns = len(columns)
	var out bytes.Buffer
	out.Grow(size + size/16)
	enc := gob.NewEncoder(&out)
	err = enc.Encode(&k)
	for _, list := range columns {
		raw = appendFloats(raw[:0], list)
		err = errors.Join(err, enc.Encode(raw))
	}
	return out.Bytes(), err
}

func appendFloats(to []byte, list []float64) []byte {
	for _, v := range list {
		to = binary.LittleEndian.AppendUint64(to, math.Float64bits(v))
	}
	return to
}

// UnmarshalBinary implements logcache.Fold.
func (f *fold) UnmarshalBinary(content []byte) error {
	k, dec := cachedFold{Lanes: f.lanes}, gob.NewDecoder(bytes.NewReader(content))
	if err := dec.Decode(&k); err != nil {
		return err
	}
	if err := json.Unmarshal(k.Snapshot, &f.snap); err != nil {
		return err
	}
	var columns [][]float64
	var raw []byte
	for range k.Columns {
		raw = raw[:0]
		if err := dec.Decode(&raw); err != nil {
			return err
		}
		list := make([]float64, len(raw)/8) // without room for more: several series share it
		for i := range list {
			list[i] = math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:]))
		}
		columns = append(columns, list)
	}
	for name, of := range k.Series {
		if slices.Min(of[:]) < 0 || slices.Max(of[:]) >= len(columns) {
			return fmt.Errorf("the series %s has columns %d, expected some of %d", name, of, len(columns))
		}
		s := &series{columns[of[0]], columns[of[1]], columns[of[2]]}
		if len(s.steps) != len(s.values) || len(s.times) != len(s.values) {
			return fmt.Errorf("the series %s has columns of different lengths", name)
		}
		f.series[name] = s
	}
	f.lanes, f.lines.list, f.plans = k.Lanes, k.Lines, k.Plans
	return nil
}
