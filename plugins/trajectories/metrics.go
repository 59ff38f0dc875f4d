package trajectories

import (
	"net/http"
	"slices"

	"github.com/recipe-rl/recipe/internal/promtext"
	"github.com/recipe-rl/recipe/plugins/trajectories/group"
	"github.com/recipe-rl/recipe/plugins/trajectories/queue"
)

// latencies are the upper ends of the latency buckets in seconds.
var latencies = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120, 300}

func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) error {
	p := promtext.NewPage("recipe_trajectories_")
	s.state.mu.Lock()
	s.state.queueMetrics(p)
	s.state.envMetrics(p)
	s.state.mu.Unlock()
	p.Histogram("request_seconds", "How long requests took, by route.", s.timings)
	p.Answer(w)
	return nil
}

func (b *state) queueMetrics(p *promtext.Page) {
	waiting, buffered := b.queue.Total(), queue.Totals{}
	for _, buffer := range b.buffers {
		t := buffer.Total()
		buffered.Groups += t.Groups
		buffered.Rollouts += t.Rollouts
	}
	leased := 0
	for _, out := range b.batches {
		if !out.deadline.IsZero() {
			leased++
		}
	}
	p.Single("queue_groups", "gauge", "Groups that wait for a batch.", float64(waiting.Groups))
	p.Single("queue_sequences", "gauge", "Rollouts that wait for a batch.", float64(waiting.Rollouts))
	p.Single(
		"buffered_sequences",
		"gauge",
		"Rollouts that wait for others of their environment to complete a group.",
		float64(buffered.Rollouts),
	)
	p.Single("parked_groups", "gauge", "Groups that are larger than the trainer's batch.", float64(len(b.parked)))
	p.Single(
		"held_groups",
		"gauge",
		"Groups that the bounds count: arriving, buffered, waiting and leased.",
		float64(b.held.Groups),
	)
	p.Single("held_bytes", "gauge", "Bytes of those groups.", float64(b.held.Bytes))
	p.Single("max_groups", "gauge", "The bound on groups.", float64(b.cfg.MaxQueueGroups))
	p.Single("max_bytes", "gauge", "The bound on bytes.", float64(b.cfg.MaxQueueBytes))
	p.Single("leased_batches", "gauge", "Batches that a trainer has and has not acknowledged.", float64(leased))
	p.Single("expired_leases_total", "counter", "Leases that ran out.", float64(b.counts.expired))
	p.Single("step", "gauge", "Batches delivered, plus the trainer's first step.", float64(b.doc.Step))
	p.Single(
		"policy_version",
		"gauge",
		"The trainer's policy version; -1 when it has not reported one.",
		float64(b.doc.Version),
	)
	p.Single(
		"filled_logprobs_total",
		"counter",
		"Groups whose log-probabilities came from the gateway's record.",
		float64(b.counts.filled),
	)
	p.Single(
		"repeated_posts_total",
		"counter",
		"Posts that had been stored before and were not stored again.",
		float64(b.counts.repeated),
	)
	p.Family("rejected_total", "counter", "Posts that were refused.")
	for _, reason := range sortedKeys(b.counts.rejected) {
		p.Sample("rejected_total", float64(b.counts.rejected[reason]), "reason", reason)
	}
}

func (b *state) envMetrics(p *promtext.Page) {
	names := map[int]string{group.NoEnv: "anonymous"}
	for id := range b.doc.Envs {
		names[id] = b.doc.Envs[id].RealName
	}
	known := sortedKeys(names)
	each := func(name, kind, help string, value func(id int, f *flow) (float64, bool)) {
		p.Family(name, kind, help)
		for _, id := range known {
			if v, ok := value(id, b.counts.env(id)); ok {
				p.Sample(name, v, "env", names[id])
			}
		}
	}
	counter := func(name, help string, value func(f *flow) int64) {
		each(name, "counter", help, func(_ int, f *flow) (float64, bool) { return float64(value(f)), true })
	}
	counter("groups_in_total", "Groups that arrived.", func(f *flow) int64 { return f.groupsIn })
	counter("sequences_in_total", "Rollouts that arrived.", func(f *flow) int64 { return f.sequencesIn })
	counter("tokens_in_total", "Tokens that arrived.", func(f *flow) int64 { return f.tokensIn })
	counter("groups_out_total", "Groups that were delivered and acknowledged.", func(f *flow) int64 { return f.groupsOut })
	counter(
		"sequences_out_total",
		"Rollouts that were delivered and acknowledged.",
		func(f *flow) int64 { return f.sequencesOut },
	)
	counter("tokens_out_total", "Tokens that were delivered and acknowledged.", func(f *flow) int64 { return f.tokensOut })
	p.Family("staleness", "summary", "Staleness, in policy versions, of delivered groups that know their policy version.")
	for _, id := range known {
		f := b.counts.env(id)
		p.Sample("staleness_sum", float64(f.staleness), "env", names[id])
		p.Sample("staleness_count", float64(f.versioned), "env", names[id])
	}
	each(
		"staleness_last",
		"gauge",
		"Staleness of the last delivered group, in policy versions.",
		func(_ int, f *flow) (float64, bool) {
			return float64(f.lastStaleness), f.versioned > 0
		},
	)
	p.Family("dropped_total", "counter", "Groups that were dropped after they had arrived.")
	for _, id := range known {
		dropped := b.counts.env(id).dropped
		for _, reason := range sortedKeys(dropped) {
			p.Sample("dropped_total", float64(dropped[reason]), "env", names[id], "reason", reason)
		}
	}
	each("waiting_sequences", "gauge", "Rollouts that wait for a batch.", func(id int, _ *flow) (float64, bool) {
		return float64(b.queue.Env(id).Rollouts), true
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
		unmet[m.Env] = float64(max(0, m.Rollouts-b.queue.Env(m.Env).Rollouts))
	}
	each(
		"minimum_missing_sequences",
		"gauge",
		"Rollouts that the environment's minimum lacks for the next batch.",
		func(id int, _ *flow) (float64, bool) {
			missing, claims := unmet[id]
			return missing, claims
		},
	)
}

func sortedKeys[K int | string, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
