package ui

import (
	"net/http"
	"sort"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/engine/usage"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
)

// span is a stretch of a lane.
type span struct {
	From  float64 `json:"from"` // seconds since 1970
	To    float64 `json:"to"`   // 0: it goes on
	What  string  `json:"what"` // work, wait, sync, or a phase
	Label string  `json:"label"`
}

// maxSpans bounds a lane. Beyond it the oldest are forgotten.
const maxSpans = 100_000

// timeline is who did what when.
type timeline struct {
	Phases map[string][]span // by block
	Doing  map[string][]span // by block: what it said that it did
	Work   map[string][]span // by block: steps of a trainer, weight updates
	Marks  []span            // restarts, checkpoints, stalls
	// Distant are the GPUs of each block's jobs on other machines
	Distant map[string]map[onHost]bool
}

func (t *timeline) take(e event.Event) {
	at := float64(e.Time.UnixNano()) / 1e9
	switch e.Type {
	case event.Phase:
		t.Phases[e.Address] = next(t.Phases[e.Address], span{From: at, What: e.Phase, Label: e.Phase})
		if sdk.Phase(e.Phase).Over() {
			t.Doing[e.Address] = end(t.Doing[e.Address], at)
		}
	case event.Activity:
		t.Doing[e.Address] = next(t.Doing[e.Address], span{From: at - e.Seconds, What: e.State, Label: activity(e)})
	case event.Machine:
		for name := range e.Metrics {
			if card, ok := usage.CardOf(name); ok && e.Host != "" {
				if t.Distant[e.Address] == nil {
					t.Distant[e.Address] = map[onHost]bool{}
				}
				t.Distant[e.Address][onHost{e.Host, card}] = true
			}
		}
	case event.Metrics:
		if list := steps(e, at); len(list) > 0 {
			t.Work[e.Address] = bound(append(t.Work[e.Address], list...))
		}
	case event.Weights:
		t.Work[e.Address] = bound(append(t.Work[e.Address], span{at - e.Seconds, at, "sync",
			"policy version " + itoa(e.Version)}))
	case event.Checkpoint, event.Restart, event.Stalled:
		t.Marks = bound(append(t.Marks, span{at, at, string(e.Type), e.Address}))
	case event.RunEnded:
		for a, list := range t.Phases {
			t.Phases[a] = end(list, at)
		}
		for a, list := range t.Doing {
			t.Doing[a] = end(list, at)
		}
	}
}

// activity is an activity in words.
func activity(e event.Event) string {
	switch {
	case e.Message == "":
		return "idle"
	case e.On != "":
		return printable.Text(printable.Limit("waits for "+waitedFor(e.On)+": "+e.Message, shortText))
	}
	return printable.Text(printable.Limit(e.Message, shortText))
}

// waitedFor names a block by its kind and name, as the page does elsewhere. Plugins write KIND.*.* for any block of a
// kind, and KIND.*.NAME.
func waitedFor(on string) string {
	kind, rest, _ := strings.Cut(on, ".")
	_, name, whole := strings.Cut(rest, ".")
	switch {
	case !whole:
		return on
	case name == "*":
		return "any " + kind
	}
	return kind + " " + name
}

// does is what a block does now; empty when it has not said so.
func (t *timeline) does(address string) string {
	list := t.Doing[address]
	if n := len(list); n > 0 && list[n-1].To == 0 {
		return list[n-1].Label
	}
	return ""
}

// next ends the last span of a lane and begins another, unless it is the same.
func next(lane []span, s span) []span {
	if n := len(lane); n > 0 && lane[n-1].To == 0 {
		if lane[n-1].What == s.What && lane[n-1].Label == s.Label {
			return lane
		}
		lane[n-1].To = s.From
	}
	return bound(append(lane, s))
}

func end(lane []span, at float64) []span {
	if n := len(lane); n > 0 && lane[n-1].To == 0 {
		lane[n-1].To = at
	}
	return lane
}

func bound(lane []span) []span {
	if len(lane) > maxSpans+maxSpans/8 {
		return append([]span(nil), lane[maxSpans/8:]...)
	}
	return lane
}

// parts are the metrics that say how a trainer's step was spent, in order.
var parts = []struct{ metric, what, label string }{
	{"seconds_waiting", "wait", "waits for a batch"},
	{"time/wait", "wait", "waits for a batch"}, // of workers in Python
	{"seconds_training", "work", "trains"},
	{"time/step", "work", "trains"},
	{"seconds_syncing", "sync", "hands weights over"},
}

// steps are the spans that the metrics of a step tell. The step has just ended.
func steps(e event.Event, at float64) (out []span) {
	total := 0.0
	for _, p := range parts {
		total += e.Metrics[p.metric]
	}
	if total <= 0 {
		return nil
	}
	from := at - total
	for _, p := range parts {
		if seconds := e.Metrics[p.metric]; seconds > 0 {
			out = append(out, span{from, from + seconds, p.what, p.label + ", step " + itoa(e.Step)})
			from += seconds
		}
	}
	return out
}

// lane is one row of the chart.
type lane struct {
	Name    string   `json:"name"`
	Devices []string `json:"devices,omitempty"` // GPUs of its block
	Block   string   `json:"block,omitempty"`   // whose job has that GPU of another machine
	Spans   []span   `json:"spans"`
}

// timelineOf answers with the lanes between two times. Spans too short to see are merged.
func (r *run) timelineOf(_ http.ResponseWriter, req *http.Request) (any, error) {
	q := parameters(req)
	rec, err := state.Read(r.dir)
	if err != nil {
		return nil, err
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	start, now := float64(r.snap.Started.UnixNano())/1e9, float64(time.Now().UnixNano())/1e9
	if !r.snap.Ended.IsZero() {
		now = float64(r.snap.Ended.UnixNano()) / 1e9
	}
	if r.snap.Started.IsZero() {
		start = now
	}
	from, to := q.number("from", start, 0, now), q.number("to", now, 0, now)
	pixels := q.whole("points", 1000, 10, 10_000)
	if q.err != nil {
		return nil, q.err
	}
	out := struct {
		Start float64 `json:"start"`
		End   float64 `json:"end"`
		From  float64 `json:"from"`
		To    float64 `json:"to"`
		Lanes []lane  `json:"lanes"`
		Marks []span  `json:"marks"`
	}{start, now, from, to, []lane{}, visible(r.lanes.Marks, from, to, now, 0)}
	shortest := (to - from) / float64(pixels)
	for _, gpu := range r.lanes.gpus(rec, now) {
		gpu.Spans = visible(gpu.Spans, from, to, now, shortest)
		out.Lanes = append(out.Lanes, gpu)
	}
	for _, address := range r.snap.Addresses() {
		var devices []string
		if a, err := addr.Parse(address); err == nil && rec.Blocks[a] != nil {
			devices = rec.Blocks[a].Devices
		}
		for _, part := range []struct {
			suffix string
			spans  []span
		}{{"", r.lanes.Phases[address]}, {" activity", r.lanes.Doing[address]}, {" steps", r.lanes.Work[address]}} {
			if part.suffix == "" || len(part.spans) > 0 {
				out.Lanes = append(out.Lanes, lane{Name: address + part.suffix, Devices: devices,
					Spans: visible(part.spans, from, to, now, shortest)})
			}
		}
	}
	return out, nil
}

// visible are the spans of a lane between two times. Neighbors that are shorter than shortest become one span, of what
// took the longest.
func visible(list []span, from, to, now, shortest float64) []span {
	first := sort.Search(len(list), func(i int) bool { return list[i].To == 0 || list[i].To >= from })
	out := []span{}
	var seconds map[string]float64 // of the spans that were merged into the last one
	for _, s := range list[first:] {
		if s.From > to {
			break
		}
		if s.To == 0 {
			s.To = now
		}
		n := len(out)
		if n > 0 && s.To-out[n-1].From < shortest {
			last := &out[n-1]
			if seconds == nil {
				seconds = map[string]float64{last.What: last.To - last.From}
			}
			seconds[s.What] += s.To - s.From
			last.To = s.To
			for what, t := range seconds {
				if t > seconds[last.What] || t == seconds[last.What] && strings.Compare(what, last.What) < 0 {
					last.What, last.Label = what, what+" (several)"
				}
			}
			continue
		}
		seconds = nil
		out = append(out, s)
	}
	return out
}
