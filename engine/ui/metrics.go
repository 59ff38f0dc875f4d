package ui

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/recipe-rl/recipe/engine/state"
)

// families are what one scrape answers with, by name. The zero value is none.
type families map[string]*dto.MetricFamily

// gauge adds a value. labels are pairs of name and value.
func (f families) gauge(name, help string, value float64, labels ...string) {
	family := f[name]
	if family == nil {
		kind := dto.MetricType_GAUGE
		family = &dto.MetricFamily{Name: &name, Help: &help, Type: &kind}
		f[name] = family
	}
	m := &dto.Metric{Gauge: &dto.Gauge{Value: &value}}
	for i := 0; i+1 < len(labels); i += 2 {
		text := strings.ToValidUTF8(labels[i+1], "?")
		m.Label = append(m.Label, &dto.LabelPair{Name: &labels[i], Value: &text})
	}
	family.Metric = append(family.Metric, m)
}

// merge adds the families of a block, with labels that say whose they are.
func (f families) merge(other families, labels ...*dto.LabelPair) {
	for name, family := range other {
		for _, m := range family.Metric {
			m.Label = append(slices.Clone(labels), m.Label...)
		}
		if have := f[name]; have == nil {
			f[name] = family
		} else if have.GetType() == family.GetType() {
			have.Metric = append(have.Metric, family.Metric...)
		}
	}
}

// prometheus answers a scrape: the state of every run, and of a run with a live engine what its blocks serve
// themselves. It is documented in docs/metrics.md.
func (s *Server) prometheus(w http.ResponseWriter, req *http.Request) {
	dirs, err := s.opts.Runs()
	if err != nil {
		answer(w, nil, err)
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), scrapeTimeout)
	defer cancel()
	all := families{}
	var mu sync.Mutex
	var wait sync.WaitGroup
	for name, dir := range dirs {
		rec, err := state.Read(dir)
		if err != nil {
			continue // the list of runs says so
		}
		alive := state.Holder(dir) != nil
		status := standing(string(rec.Status), rec, alive)
		mu.Lock()
		all.gauge("recipe_run_info", "1 for each run.", 1, "run", name, "recipe", rec.Recipe, "status", status)
		mu.Unlock()
		if !alive {
			continue
		}
		run, err := s.run(name)
		if err != nil {
			continue
		}
		mu.Lock()
		run.families(all)
		mu.Unlock()
		for _, e := range endpoints(dir, rec) {
			wait.Go(func() {
				found, err := s.scrape(ctx, e)
				mu.Lock()
				defer mu.Unlock()
				up := 1.0
				if err != nil {
					up = 0
				}
				all.gauge("recipe_block_up", "1 when the block answered this scrape.", up, "run", name, "block", e.address)
				all.merge(found, pair("run", name), pair("block", e.address))
			})
		}
	}
	wait.Wait()
	var out bytes.Buffer
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	encoder := expfmt.NewEncoder(&out, format)
	for _, name := range sortedKeys(all) {
		if err := encoder.Encode(all[name]); err != nil {
			answer(w, nil, err)
			return
		}
	}
	w.Header().Set("Content-Type", string(format))
	_, _ = w.Write(out.Bytes())
}

func pair(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

func sortedKeys(f families) []string {
	out := make([]string, 0, len(f))
	for name := range f {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// families adds what the event log says of a run.
func (r *run) families(f families) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	f.gauge("recipe_run_started_seconds", "Time of the newest start of the run, since 1970.",
		float64(r.snap.Started.UnixNano())/1e9, "run", r.name)
	f.gauge("recipe_run_policy_version", "Policy version that inference serves.", float64(r.snap.Version), "run", r.name)
	for _, address := range r.snap.Addresses() {
		b := r.snap.Blocks[address]
		of := []string{"run", r.name, "block", address}
		with := func(more ...string) []string { return append(slices.Clone(of), more...) }
		f.gauge("recipe_block_phase", "1 for the phase that the block is in.", 1, with("phase", b.Phase)...)
		f.gauge("recipe_block_restarts", "Restarts of the block in this run.", float64(b.Restarts), of...)
		if b.Total > 0 {
			f.gauge("recipe_block_step", "Steps done by a job.", float64(b.Step), of...)
			f.gauge("recipe_block_steps", "Steps that a job has to do.", float64(b.Total), of...)
		}
		for name, value := range b.Metrics {
			f.gauge("recipe_block_metric", "Newest value of a metric that the block reports, by its name.", value,
				with("metric", name)...)
		}
		if state := r.lanes.state(address); state != "" {
			f.gauge("recipe_block_activity", "1 for what the block does: work, wait or rest.", 1, with("state", state)...)
		}
		if e, stalled := r.snap.Stalls[address]; stalled {
			f.gauge("recipe_block_stalled_seconds", "How long the block has held up the run, as last reported.", e.Seconds,
				of...)
		}
	}
	for name, s := range r.series {
		if rest, ok := strings.CutPrefix(name, machine+" "); ok && len(s.values) > 0 {
			labels := []string{"run", r.name}
			if of := strings.Fields(rest); len(of) == 3 { // the machine of a job
				labels, rest = append(labels, "host", of[0], "block", of[1]), of[2]
			}
			if gpu, metric, ok := strings.Cut(strings.TrimPrefix(rest, "gpu/"), "/"); ok {
				labels, rest = append(labels, "gpu", gpu), "gpu_"+metric
			}
			f.gauge("recipe_machine_"+rest, "Use of the engine's machine, or with a host of that one; cpu and utilization "+
				"from 0 to 1.",
				s.values[len(s.values)-1], labels...)
		}
	}
}

// state is the kind of what a block does now; empty when it has not said so.
func (t *timeline) state(address string) string {
	list := t.Doing[address]
	if n := len(list); n > 0 && list[n-1].To == 0 {
		return list[n-1].What
	}
	return ""
}

const scrapeTimeout = 5 * time.Second
