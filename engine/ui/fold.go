package ui

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/event/kept"
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

// Seen implements kept.Fold.
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
	case event.RunStarted:
		f.plans = nil
	case event.Operation:
		f.plans = append(f.plans, operation{e.Time, e.Address, e.Action, e.Message})
	}
}

func (f *fold) add(name string, step, at, value float64) {
	s := f.series[name]
	if s == nil {
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

// keptFile has 60 MB for a run with a log of a million events (515 MB).
var keptFile = kept.File{Name: "ui.kept", Limit: 256 << 20}

// keptFold is a fold in the file.
type keptFold struct {
	Snapshot []byte // JSON
	// Columns are lists of numbers of 8 bytes. The metrics of a block have the same steps and times.
	Columns [][]byte
	Series  map[string][3]int // the columns of steps, times and values
	Lanes   timeline
	Lines   []logLine
	Plans   []operation
}

// MarshalBinary implements kept.Fold.
func (f *fold) MarshalBinary() ([]byte, error) {
	k := keptFold{Series: map[string][3]int{}, Lanes: f.lanes, Lines: f.lines.list, Plans: f.plans}
	var err error
	if k.Snapshot, err = json.Marshal(&f.snap); err != nil {
		return nil, err
	}
	known := map[string]int{}
	var raw []byte
	for name, s := range f.series {
		var columns [3]int
		for i, list := range [][]float64{s.steps, s.times, s.values} {
			raw = raw[:0]
			for _, v := range list {
				raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(v))
			}
			n, ok := known[string(raw)]
			if !ok {
				n = len(k.Columns)
				k.Columns, known[string(raw)] = append(k.Columns, bytes.Clone(raw)), n
			}
			columns[i] = n
		}
		k.Series[name] = columns
	}
	var out bytes.Buffer
	err = gob.NewEncoder(&out).Encode(&k)
	return out.Bytes(), err
}

// UnmarshalBinary implements kept.Fold.
func (f *fold) UnmarshalBinary(content []byte) error {
	k := keptFold{Lanes: f.lanes}
	if err := gob.NewDecoder(bytes.NewReader(content)).Decode(&k); err != nil {
		return err
	}
	if err := json.Unmarshal(k.Snapshot, &f.snap); err != nil {
		return err
	}
	columns := make([][]float64, len(k.Columns))
	for i, raw := range k.Columns {
		columns[i] = make([]float64, len(raw)/8) // without room for more: several series share it
		for j := range columns[i] {
			columns[i][j] = math.Float64frombits(binary.LittleEndian.Uint64(raw[8*j:]))
		}
	}
	for name, c := range k.Series {
		if slices.Min(c[:]) < 0 || slices.Max(c[:]) >= len(columns) {
			return fmt.Errorf("the series %s has columns %d, expected some of %d", name, c, len(columns))
		}
		s := &series{columns[c[0]], columns[c[1]], columns[c[2]]}
		if len(s.steps) != len(s.values) || len(s.times) != len(s.values) {
			return fmt.Errorf("the series %s has columns of different lengths", name)
		}
		f.series[name] = s
	}
	f.lanes, f.lines.list, f.plans = k.Lanes, k.Lines, k.Plans
	return nil
}
