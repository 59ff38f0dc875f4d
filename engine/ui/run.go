package ui

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/event/logcache"
	"github.com/recipe-rl/recipe/engine/lineage"
	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/engine/transcript"
	"github.com/recipe-rl/recipe/internal/samples"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
)

// run is what the server knows of one run: its event log, folded.
type run struct {
	name string
	dir  state.Dir

	follows sync.Once
	mu      sync.RWMutex
	*fold
	failed   error         // why the log cannot be read on
	moved    chan struct{} // closed when something has changed
	caughtUp chan struct{} // closed when the log was read to its end once

	samplesMu sync.Mutex
	records   map[string]*samples.Reader
	pieces    transcript.Tokenizers
}

// run finds a run whose log has been read, and goes on reading it.
func (s *Server) run(name string) (*run, error) {
	r, err := s.find(name)
	if err != nil {
		return nil, err
	}
	r.follows.Do(func() { s.wait.Go(func() { r.follow(s.ctx) }) })
	select {
	case <-r.caughtUp:
	case <-s.ctx.Done():
	}
	return r, nil
}

// find finds a run. Its log may not have been read.
func (s *Server) find(name string) (*run, error) {
	dirs, err := s.opts.Runs()
	if err != nil {
		return nil, err
	}
	dir, ok := dirs[name]
	if !ok {
		return nil, missing("there is no run %.100q", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[name]
	if r == nil || r.dir != dir {
		r = &run{name: name, dir: dir, fold: newFold(), moved: make(chan struct{}), caughtUp: make(chan struct{}),
			records: map[string]*samples.Reader{}}
		s.runs[name] = r
		s.wait.Go(func() { <-s.ctx.Done(); r.closeSamples() })
	}
	return r, nil
}

// follow reads the log until ctx ends. It first reads what is there at once, without telling anyone.
func (r *run) follow(ctx context.Context) {
	fold, save, err := logcache.Read(ctx, r.dir.Events(), cacheFile, newFold)
	r.mu.Lock()
	r.fold, r.failed = fold, err
	r.mu.Unlock()
	close(r.caughtUp)
	_ = save() // the log is read the next time
	if err != nil {
		return
	}
	err = event.Follow(ctx, r.dir.Events(), fold.snap.Last, func(e event.Event) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.Apply(e)
		close(r.moved)
		r.moved = make(chan struct{})
		return nil
	})
	r.mu.Lock()
	r.failed = err
	r.mu.Unlock()
}

// metric is one curve that there is.
type metric struct {
	Name string  `json:"name"` // ADDRESS METRIC
	Last *number `json:"last"`
	N    int     `json:"n"`
}

// block is a block of the summary.
type block struct {
	Address  string             `json:"address"`
	Kind     string             `json:"kind"`
	Phase    string             `json:"phase"`
	Message  string             `json:"message,omitempty"`
	Remedy   string             `json:"remedy,omitempty"`
	Doing    string             `json:"doing,omitempty"`
	Since    time.Time          `json:"since,omitzero"`
	Silent   time.Time          `json:"silent_since,omitzero"` // since when its process does not answer
	Starts   int                `json:"starts"`
	Restarts int                `json:"restarts"`
	Step     int64              `json:"step,omitempty"`
	Total    int64              `json:"total,omitempty"`
	Unit     string             `json:"unit,omitempty"`
	Left     float64            `json:"left,omitempty"` // seconds for the rest of its steps; 0: unknown
	Version  int64              `json:"version,omitempty"`
	Needs    []string           `json:"needs"` // blocks that its configuration refers to
	Best     *state.Best        `json:"best_checkpoint,omitempty"`
	Metrics  map[string]*number `json:"metrics"`
}

// stall is a part of the run that makes no progress.
type stall struct {
	Address string  `json:"address"`
	Message string  `json:"message"`
	Remedy  string  `json:"remedy"`
	Seconds float64 `json:"seconds"`
}

// summary is the state of the run.
type summary struct {
	Name    string         `json:"name"`
	Recipe  string         `json:"recipe"`
	File    string         `json:"file"`
	ID      string         `json:"id"`
	Status  string         `json:"status"`
	Message string         `json:"message,omitempty"`
	Started time.Time      `json:"started,omitzero"`
	Ended   time.Time      `json:"ended,omitzero"`
	Engine  bool           `json:"engine"` // one works on it now
	Version int64          `json:"version"`
	Seq     uint64         `json:"seq"`
	Blocks  []block        `json:"blocks"`
	Stalls  []stall        `json:"stalls"`
	Outputs map[string]any `json:"outputs"`
	Metrics []metric       `json:"metrics"`
	Error   string         `json:"error,omitempty"` // of reading the log
	Samples int            `json:"samples"`         // groups in the record
	Now     time.Time      `json:"now"`
}

const shortText = 4 << 10 // bytes of a message on the page

func (r *run) summary(http.ResponseWriter, *http.Request) (any, error) {
	rec, err := state.Read(r.dir)
	if err != nil {
		return nil, err
	}
	groups := r.groupsKnown()
	alive := state.Holder(r.dir) != nil
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := &summary{Name: r.name, Recipe: rec.Recipe, File: filepath.Base(rec.File), ID: rec.ID, Status: r.snap.Status,
		Message: printable.Text(printable.Limit(r.snap.Message, shortText)), Started: r.snap.Started, Ended: r.snap.Ended,
		Engine:  alive,
		Version: r.snap.Version, Seq: r.snap.Last, Blocks: []block{}, Stalls: []stall{}, Outputs: map[string]any{},
		Metrics: []metric{}, Samples: groups, Now: time.Now().UTC()}
	for name, e := range r.snap.Outputs {
		if out.Outputs[name] = e.Value; e.Sensitive {
			out.Outputs[name] = "(sensitive)"
		}
	}
	if r.failed != nil {
		out.Error = r.failed.Error()
	}
	if out.Status == "" {
		out.Status = string(rec.Status)
	}
	out.Status = standing(out.Status, rec, alive)
	for _, address := range r.snap.Addresses() {
		out.Blocks = append(out.Blocks, r.block(address, rec))
	}
	for _, e := range r.snap.Stalls {
		out.Stalls = append(out.Stalls, stall{e.Address, printable.Text(printable.Limit(e.Message, shortText)),
			printable.Text(printable.Limit(e.Remedy, shortText)), e.Seconds})
	}
	for name, s := range r.series {
		if n := len(s.values); n > 0 {
			last := number(s.values[n-1])
			out.Metrics = append(out.Metrics, metric{name, &last, n})
		}
	}
	sort.Slice(out.Metrics, func(i, j int) bool { return out.Metrics[i].Name < out.Metrics[j].Name })
	sort.Slice(out.Stalls, func(i, j int) bool { return out.Stalls[i].Address < out.Stalls[j].Address })
	return out, nil
}

// standing is the status of a run with what only its record and its engine tell.
func standing(status string, rec *state.Run, alive bool) string {
	switch {
	case status != string(state.Running):
		return status
	case !alive:
		return "interrupted"
	case !rec.Paused.IsZero():
		return "paused"
	}
	return status
}

func (r *run) block(address string, rec *state.Run) block {
	b := r.snap.Blocks[address]
	out := block{Address: address, Phase: b.Phase, Message: printable.Text(printable.Limit(b.Message, shortText)),
		Remedy: printable.Text(printable.Limit(b.Remedy, shortText)), Since: b.Since, Silent: b.Silent,
		Starts: b.Attempt, Restarts: b.Restarts,
		Step:  b.Step,
		Total: b.Total, Unit: b.Unit, Version: b.Version, Needs: append([]string{}, b.Needs...),
		Metrics: map[string]*number{}}
	if left, ok := r.snap.TimeLeft(b, time.Now()); ok {
		out.Left = left.Seconds()
	}
	for name, v := range b.Metrics {
		n := number(v)
		out.Metrics[name] = &n
	}
	if !sdk.Phase(b.Phase).Over() {
		out.Doing = r.lanes.does(address)
	}
	if a, err := addr.Parse(address); err == nil {
		out.Kind = string(a.Kind)
		if recorded := rec.Blocks[a]; recorded != nil && recorded.Config != nil { // it has been started
			out.Needs, out.Best = recorded.References(), recorded.Best
		}
	}
	return out
}

// configuration is what the run was told to be: the plan that was applied, and the configuration of its blocks, in
// which sensitive values are fingerprints.
func (r *run) configuration(http.ResponseWriter, *http.Request) (any, error) {
	rec, err := state.Read(r.dir)
	if err != nil {
		return nil, err
	}
	type entry struct {
		Address    string                     `json:"address"`
		Config     map[string]json.RawMessage `json:"config"`
		Plugin     string                     `json:"plugin,omitempty"`
		Devices    []string                   `json:"devices,omitempty"`
		Checkpoint *state.Checkpoint          `json:"checkpoint,omitempty"`
	}
	out := struct {
		Digest  string            `json:"digest"`
		File    string            `json:"file"`
		Lineage *lineage.Lineage  `json:"lineage,omitempty"` // as recipe lineage prints it
		Plan    []operation       `json:"plan"`
		Blocks  []entry           `json:"blocks"`
		Output  map[string]string `json:"outputs"`
	}{Digest: rec.Digest, File: rec.File, Plan: []operation{}, Blocks: []entry{}, Output: map[string]string{}}
	if out.Lineage, err = lineage.Read(filepath.Join(string(r.dir), lineage.FileName)); err != nil {
		out.Lineage = nil // a run of an earlier version has none
	}
	r.mu.RLock()
	out.Plan = append(out.Plan, r.plans...)
	r.mu.RUnlock()
	for a, b := range rec.Blocks {
		out.Blocks = append(out.Blocks, entry{a.String(), b.Config, b.Plugin, b.Devices, b.Checkpoint})
	}
	sort.Slice(out.Blocks, func(i, j int) bool { return out.Blocks[i].Address < out.Blocks[j].Address })
	for name, o := range rec.Outputs {
		if o.Sensitive {
			out.Output[name] = "(sensitive)"
		} else {
			out.Output[name] = string(o.Value)
		}
	}
	return out, nil
}

// list are all runs.
func (s *Server) list(w http.ResponseWriter, _ *http.Request) {
	type entry struct {
		Name    string    `json:"name"`
		Recipe  string    `json:"recipe"`
		Status  string    `json:"status"`
		Started time.Time `json:"started,omitzero"`
		Ended   time.Time `json:"ended,omitzero"`
		Step    int64     `json:"step"`
		Total   int64     `json:"total"`
		Version int64     `json:"version"`
		Path    string    `json:"path"`
	}
	dirs, err := s.opts.Runs()
	out := []entry{}
	for name, dir := range dirs {
		rec, rerr := state.Read(dir)
		if rerr != nil {
			out = append(out, entry{Name: name, Status: "unreadable: " + rerr.Error(), Path: string(dir)})
			continue
		}
		e := entry{Name: name, Recipe: rec.Recipe, Started: rec.Started, Ended: rec.Ended,
			Status: standing(string(rec.Status), rec, state.Holder(dir) != nil), Version: rec.Policy.Version, Path: string(dir)}
		for _, b := range rec.Blocks {
			if b.Total > e.Total {
				e.Step, e.Total = b.Step, b.Total
			}
		}
		out = append(out, e)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	answer(w, out, err)
}

// mostStreams is how many streams are open at a time: each keeps a connection, also where its client reads nothing.
const mostStreams = 256

// enter begins a stream, and ends the oldest where there are too many: its page, if there is one, opens another. leave
// is called when the stream ends.
func (s *Server) enter() (ended <-chan struct{}, leave func()) {
	own := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams = append(s.streams, own); len(s.streams) > mostStreams {
		close(s.streams[0])
		s.streams = s.streams[1:]
	}
	return own, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.streams = slices.DeleteFunc(s.streams, func(c chan struct{}) bool { return c == own })
	}
}

// stream sends a line when the run has changed, at most twice a second, and one every 15 seconds otherwise: server-sent
// events, whose data is the number of the newest event. The page then asks for what it shows.
func (s *Server) stream(w http.ResponseWriter, req *http.Request) {
	r, err := s.run(req.PathValue("run"))
	if err != nil {
		answer(w, nil, err)
		return
	}
	ended, leave := s.enter()
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w).Flush
	for {
		r.mu.RLock()
		moved, seq := r.moved, r.snap.Last
		r.mu.RUnlock()
		if _, err := w.Write([]byte("data: " + strconv.FormatUint(seq, 10) + "\n\n")); err != nil || flush() != nil {
			return
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ended:
			return
		case <-req.Context().Done():
			return
		case <-s.ctx.Done():
			return
		}
		select {
		case <-moved:
		case <-time.After(15 * time.Second):
		case <-ended:
			return
		case <-req.Context().Done():
			return
		case <-s.ctx.Done():
			return
		}
	}
}

func appendNumber(b []byte, v float64) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, v, 'g', 8, 64)
}
