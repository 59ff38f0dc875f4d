package trajectories

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/plugins/trajectories/group"
	"github.com/recipe-rl/recipe/plugins/trajectories/queue"
)

// bounds are the upper ends of the latency buckets in seconds.
var bounds = [...]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120, 300}

// timing counts how long the requests of one route took.
type timing struct {
	buckets [len(bounds) + 1]uint64
	sum     float64
	count   uint64
}

// timings holds one timing a route.
type timings struct {
	mu     sync.Mutex
	routes map[string]*timing
}

func (t *timings) observe(route string, d time.Duration) {
	seconds := d.Seconds()
	i, _ := slices.BinarySearch(bounds[:], seconds)
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.routes[route]
	if r == nil {
		r = &timing{}
		t.routes[route] = r
	}
	r.buckets[i]++
	r.sum += seconds
	r.count++
}

// page writes the Prometheus text format.
type page struct{ strings.Builder }

func (p *page) family(name, kind, help string) {
	fmt.Fprintf(p, "# HELP recipe_trajectories_%s %s\n# TYPE recipe_trajectories_%s %s\n", name, help, name, kind)
}

// sample writes one value; labels are pairs of name and value.
func (p *page) sample(name string, value float64, labels ...string) {
	p.WriteString("recipe_trajectories_" + name)
	for i := 0; i+1 < len(labels); i += 2 {
		p.WriteByte("{,"[min(i/2, 1)])
		p.WriteString(labels[i] + "=" + quoteLabel(labels[i+1]))
	}
	if len(labels) > 0 {
		p.WriteByte('}')
	}
	p.WriteString(" " + strconv.FormatFloat(value, 'g', -1, 64) + "\n")
}

// single writes a family of one value.
func (p *page) single(name, kind, help string, value float64) {
	p.family(name, kind, help)
	p.sample(name, value)
}

func quoteLabel(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(s, "?")) + `"`
}

func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) error {
	p := &page{}
	s.state.mu.Lock()
	s.state.queueMetrics(p)
	s.state.envMetrics(p)
	s.state.mu.Unlock()
	s.timings.write(p)
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write([]byte(p.String()))
	return nil
}

func (b *state) queueMetrics(p *page) {
	waiting, buffered := b.queue.Total(), queue.Totals{}
	for _, buffer := range b.buffers {
		t := buffer.Total()
		buffered.Groups += t.Groups
		buffered.Sequences += t.Sequences
	}
	leased := 0
	for _, out := range b.batches {
		if !out.deadline.IsZero() {
			leased++
		}
	}
	p.single("queue_groups", "gauge", "Groups that wait for a batch.", float64(waiting.Groups))
	p.single("queue_sequences", "gauge", "Sequences that wait for a batch.", float64(waiting.Sequences))
	p.single(
		"buffered_sequences",
		"gauge",
		"Sequences that wait for others of their environment to complete a group.",
		float64(buffered.Sequences),
	)
	p.single("parked_groups", "gauge", "Groups that are larger than the trainer's batch.", float64(len(b.parked)))
	p.single(
		"held_groups",
		"gauge",
		"Groups that the bounds count: arriving, buffered, waiting and leased.",
		float64(b.held.Groups),
	)
	p.single("held_bytes", "gauge", "Bytes of those groups.", float64(b.held.Bytes))
	p.single("max_groups", "gauge", "The bound on groups.", float64(b.cfg.MaxQueueGroups))
	p.single("max_bytes", "gauge", "The bound on bytes.", float64(b.cfg.MaxQueueBytes))
	p.single("leased_batches", "gauge", "Batches that a trainer has and has not acknowledged.", float64(leased))
	p.single("expired_leases_total", "counter", "Leases that ran out.", float64(b.counts.expired))
	p.single("step", "gauge", "Batches delivered, plus the trainer's first step.", float64(b.doc.Step))
	p.single(
		"policy_version",
		"gauge",
		"The trainer's policy version; -1 when it has not reported one.",
		float64(b.doc.Version),
	)
	p.single(
		"filled_logprobs_total",
		"counter",
		"Groups whose log-probabilities came from the gateway's record.",
		float64(b.counts.filled),
	)
	p.single(
		"repeated_posts_total",
		"counter",
		"Posts that had been stored before and were not stored again.",
		float64(b.counts.repeated),
	)
	p.family("rejected_total", "counter", "Posts that were refused.")
	for _, reason := range sortedKeys(b.counts.rejected) {
		p.sample("rejected_total", float64(b.counts.rejected[reason]), "reason", reason)
	}
}

func (b *state) envMetrics(p *page) {
	names := map[int]string{group.NoEnv: "anonymous"}
	for id := range b.doc.Envs {
		names[id] = b.doc.Envs[id].RealName
	}
	known := sortedKeys(names)
	each := func(name, kind, help string, value func(id int, f *flow) (float64, bool)) {
		p.family(name, kind, help)
		for _, id := range known {
			if v, ok := value(id, b.counts.env(id)); ok {
				p.sample(name, v, "env", names[id])
			}
		}
	}
	counter := func(name, help string, value func(f *flow) int64) {
		each(name, "counter", help, func(_ int, f *flow) (float64, bool) { return float64(value(f)), true })
	}
	counter("groups_in_total", "Groups that arrived.", func(f *flow) int64 { return f.groupsIn })
	counter("sequences_in_total", "Sequences that arrived.", func(f *flow) int64 { return f.sequencesIn })
	counter("tokens_in_total", "Tokens that arrived.", func(f *flow) int64 { return f.tokensIn })
	counter("groups_out_total", "Groups that were delivered and acknowledged.", func(f *flow) int64 { return f.groupsOut })
	counter(
		"sequences_out_total",
		"Sequences that were delivered and acknowledged.",
		func(f *flow) int64 { return f.sequencesOut },
	)
	counter("tokens_out_total", "Tokens that were delivered and acknowledged.", func(f *flow) int64 { return f.tokensOut })
	counter(
		"staleness_sum",
		"Staleness in policy versions, summed over delivered groups that know theirs.",
		func(f *flow) int64 { return f.staleness },
	)
	counter(
		"staleness_count",
		"Delivered groups that know their policy version.",
		func(f *flow) int64 { return f.versioned },
	)
	each(
		"staleness_last",
		"gauge",
		"Staleness of the last delivered group, in policy versions.",
		func(_ int, f *flow) (float64, bool) {
			return float64(f.lastStaleness), f.versioned > 0
		},
	)
	p.family("dropped_total", "counter", "Groups that were dropped after they had arrived.")
	for _, id := range known {
		dropped := b.counts.env(id).dropped
		for _, reason := range sortedKeys(dropped) {
			p.sample("dropped_total", float64(dropped[reason]), "env", names[id], "reason", reason)
		}
	}
	each("waiting_sequences", "gauge", "Sequences that wait for a batch.", func(id int, _ *flow) (float64, bool) {
		return float64(b.queue.Env(id).Sequences), true
	})
	each("connected", "gauge", "1 while the environment counts.", func(id int, _ *flow) (float64, bool) {
		if id < 0 {
			return 0, false
		}
		return map[bool]float64{true: 1}[b.connected(id)], true
	})
	each(
		"last_seen_seconds",
		"gauge",
		"Seconds since the environment's last request.",
		func(id int, _ *flow) (float64, bool) {
			return b.now().Sub(b.seen[id]).Seconds(), id >= 0
		},
	)
	if b.doc.Trainer == nil {
		return
	}
	unmet := map[int]float64{}
	for _, m := range b.minimums() {
		unmet[m.Env] = float64(max(0, m.Sequences-b.queue.Env(m.Env).Sequences))
	}
	each(
		"minimum_missing_sequences",
		"gauge",
		"Sequences that the environment's minimum lacks for the next batch.",
		func(id int, _ *flow) (float64, bool) {
			missing, claims := unmet[id]
			return missing, claims
		},
	)
}

func (t *timings) write(p *page) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.family("request_seconds", "histogram", "How long requests took, by route.")
	for _, route := range sortedKeys(t.routes) {
		r := t.routes[route]
		sum := uint64(0)
		for i, bound := range bounds {
			sum += r.buckets[i]
			p.sample("request_seconds_bucket", float64(sum), "route", route, "le", strconv.FormatFloat(bound, 'g', -1, 64))
		}
		p.sample("request_seconds_bucket", float64(r.count), "route", route, "le", "+Inf")
		p.sample("request_seconds_sum", r.sum, "route", route)
		p.sample("request_seconds_count", float64(r.count), "route", route)
	}
}

func sortedKeys[K int | string, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
