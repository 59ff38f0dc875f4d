// Package alert watches the events of a run for the conditions of its alert blocks, and tells someone when one begins
// to hold.
package alert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// rule is the state of one alert. It fires when its condition begins to hold, and can fire again once it has ceased to.
type rule struct {
	decode.Alert
	firing bool
	series map[string]*window // by block, for a condition on a metric
	since  map[string]bool    // blocks for which the condition holds
	absent map[string]int     // reports by block without the metric, while none has come
	told   bool               // and that was said
}

// absentAfter is how many reports of a block may come without a metric before that is worth a warning.
const absentAfter = 20

// missing takes an event and returns, once, what to say of a metric that does not come from a block that reports it.
func (r *rule) missing(e event.Event) string {
	if r.Metric == "" || e.Type != event.Metrics || len(r.series) > 0 || r.told ||
		!slices.Contains(r.Reporters, e.Address) {
		return ""
	}
	if r.absent == nil {
		r.absent = map[string]int{}
	}
	if r.absent[e.Address]++; r.absent[e.Address] < absentAfter {
		return ""
	}
	r.told = true
	return fmt.Sprintf("alert %s waits for the metric %s, which has not come in %d reports of %s%s: it cannot fire",
		r.Name, r.Metric, absentAfter, e.Address, spec.Reported(r.Since))
}

func newRule(a decode.Alert) *rule {
	return &rule{Alert: a, series: map[string]*window{}, since: map[string]bool{}}
}

// window is what a rule remembers of a metric of one block.
type window struct {
	newest []float64 // the last For values
	held   int       // comparisons in a row that held
	best   float64   // the best mean of For values so far
	full   bool      // there is a best
	step   int64
}

// change is an alert that begins to hold or ceases to.
type change struct {
	rule    *rule
	over    bool
	address string
	step    int64
	message string
}

// take folds one event.
func (r *rule) take(e event.Event) *change {
	if r.Disk > 0 { // an event says nothing of the disk, which may be full before the apply has started
		return nil
	}
	if e.Type == event.RunStarted { // what an earlier apply ended with is over
		clear(r.since)
		clear(r.series)
		return r.settle(e, "")
	}
	if r.Block != "" && e.Address != r.Block && r.State != "run_failed" && r.State != "run_ended" {
		return nil
	}
	switch {
	case r.Metric != "":
		return r.metric(e)
	case r.Stalled > 0:
		return r.stall(e)
	case r.State != "":
		return r.state(e)
	}
	return nil
}

func (r *rule) metric(e event.Event) *change {
	v, ok := spec.MetricValue(e.Metrics, r.Metric)
	if e.Type != event.Metrics || !ok {
		return nil
	}
	w := r.series[e.Address]
	if w == nil {
		w = &window{}
		r.series[e.Address] = w
	}
	if e.Step != 0 && e.Step == w.step {
		return nil // the same step again
	}
	w.step = e.Step
	holds, message := w.compare(r, v)
	return r.hold(e, holds, fmt.Sprintf("%s of %s %s at step %d", r.Metric, e.Address, message, e.Step))
}

// compare takes a value and says whether the condition holds.
func (w *window) compare(r *rule, v float64) (holds bool, message string) {
	switch r.Op {
	case ">", "<":
		if r.Op == ">" && v > r.Value || r.Op == "<" && v < r.Value {
			w.held++
		} else {
			w.held = 0
		}
		return w.held >= r.For, fmt.Sprintf("is %.4g (%s %g)", v, r.Op, r.Value)
	}
	if w.newest = append(w.newest, v); len(w.newest) > r.For {
		w.newest = w.newest[1:]
	}
	if len(w.newest) < r.For {
		return false, ""
	}
	mean := 0.0
	for _, x := range w.newest {
		mean += x / float64(r.For)
	}
	if !w.full || mean > w.best {
		w.full, w.best = true, mean
	}
	return w.best-mean >= r.Value, fmt.Sprintf("is %.4g, %.4g below its best", mean, w.best-mean)
}

func (r *rule) stall(e event.Event) *change {
	switch e.Type {
	case event.Stalled:
		return r.hold(e, e.Seconds >= r.Stalled.Seconds(), fmt.Sprintf("no progress for %s: %s",
			(time.Duration(e.Seconds)*time.Second), e.Message))
	case event.StallOver:
		return r.hold(e, false, "")
	case event.RunEnded:
		clear(r.since)
		return r.settle(e, "")
	}
	return nil
}

func (r *rule) state(e event.Event) *change {
	switch {
	case e.Type == event.RunEnded && r.State == "run_ended":
		return r.hold(e, true, "the run is "+e.Phase)
	case e.Type == event.RunEnded && r.State == "run_failed":
		return r.hold(e, e.Phase == string(sdk.Failed), "the run has failed: "+e.Message)
	case e.Type == event.Restart && r.State == "restarted":
		return r.hold(e, true, fmt.Sprintf("%s is restarted: %s", e.Address, e.Message))
	case e.Type == event.Phase && r.State == "restarted":
		return r.hold(e, e.Phase != string(sdk.Ready) && r.since[e.Address], "")
	case e.Type == event.Phase && (r.State == "failed" || r.State == "degraded"):
		return r.hold(e, e.Phase == r.State, fmt.Sprintf("%s is %s: %s", e.Address, e.Phase, e.Message))
	}
	return nil
}

// free takes the free bytes of the disk.
func (r *rule) free(bytes uint64) *change {
	gib := float64(bytes) / (1 << 30)
	return r.hold(event.Event{}, gib < r.Disk, fmt.Sprintf("%.1f GiB are free (less than %g)", gib, r.Disk))
}

// hold reports whether the condition holds for the block of an event.
func (r *rule) hold(e event.Event, holds bool, message string) *change {
	if holds {
		r.since[e.Address] = true
	} else {
		delete(r.since, e.Address)
	}
	return r.settle(e, message)
}

// settle returns the change when the alert begins to hold for a first block, or has ceased to for the last.
func (r *rule) settle(e event.Event, message string) *change {
	if now := len(r.since) > 0; now != r.firing {
		r.firing = now
		return &change{rule: r, over: !now, address: e.Address, step: e.Step, message: message}
	}
	return nil
}

// concerns makes a function that says of the JSON of an event whether rules may take something from it.
func concerns(rules []*rule) func(line []byte) bool {
	texts := []any{event.RunStarted, event.Alert}
	for _, r := range rules {
		switch {
		case r.Metric != "":
			texts = append(texts, r.Metric)
			if alias := spec.MetricAlias(r.Metric); alias != "" {
				texts = append(texts, alias)
			}
		case r.Stalled > 0:
			texts = append(texts, event.Stalled, event.StallOver, event.RunEnded)
		case r.State != "":
			texts = append(texts, event.RunEnded, event.Restart, event.Phase)
		}
	}
	var parts [][]byte
	for _, text := range texts {
		part, _ := json.Marshal(text) // as it stands in a line; a text has no error
		parts = append(parts, part)
	}
	return func(line []byte) bool {
		return slices.ContainsFunc(parts, func(part []byte) bool { return bytes.Contains(line, part) })
	}
}
