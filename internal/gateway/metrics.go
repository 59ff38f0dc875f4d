package gateway

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/recipe-rl/recipe/internal/promtext"
)

// metrics are the gateway's counters.
type metrics struct {
	seconds, waits, updates *promtext.Histogram

	tokens, recorded, together, retries, expired, mismatches, mistranslated, unauthorized, clamped atomic.Int64

	mu       sync.Mutex
	requests map[answered]int64
}

type answered struct {
	route  string
	status int
}

// latencies are the upper ends of the latency buckets in seconds: from a one-token answer of a tiny model to a long
// generation on a busy machine.
var latencies = []float64{.001, .005, .02, .1, .5, 1, 2, 5, 10, 30, 60, 120, 300, 600}

func newMetrics() *metrics {
	return &metrics{
		seconds:  promtext.NewHistogram("route", latencies),
		waits:    promtext.NewHistogram("", latencies),
		updates:  promtext.NewHistogram("phase", latencies),
		requests: map[answered]int64{},
	}
}

// done counts an answered request.
func (m *metrics) done(route string, status, tokens int, took time.Duration) {
	route = routeLabel(route)
	m.seconds.Observe(route, took.Seconds())
	m.tokens.Add(int64(tokens))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests[answered{route, status}]++
}

// metrics answers GET /metrics.
func (g *Gateway) metrics(w http.ResponseWriter) {
	p := promtext.NewPage("recipe_gateway_")
	g.met.write(p)
	g.gauges(p)
	p.Answer(w)
}

func (m *metrics) write(p *promtext.Page) {
	p.Histogram("request_seconds", "Time from a request's last byte in to its answer's last byte out, waiting included.",
		m.seconds)
	p.Histogram("wait_seconds", "Time that requests which had to wait for a hold or a replica waited.", m.waits)
	p.Histogram("update_seconds", "Time of each phase of a weight update.", m.updates)
	counter := func(name, help string, n *atomic.Int64) { p.Single(name, "counter", help, float64(n.Load())) }
	counter("output_tokens_total", "Tokens generated, as the engine's answers say.", &m.tokens)
	counter("recorded_completions_total", "Completions recorded for look-up.", &m.recorded)
	counter("put_together_total", "Answers of /generate put together from streams, because updates let requests live on.",
		&m.together)
	counter("retries_total", "Requests sent again after a replica failed.", &m.retries)
	counter("holds_expired_total", "Holds that ended because their owner did not renew or resume them within the lease.",
		&m.expired)
	counter("mismatches_total", "Replicas whose log-probabilities differed from those expected.", &m.mismatches)
	counter("unusable_answers_total", "Engine answers in which tokens and log-probabilities did not match.",
		&m.mistranslated)
	counter("clamped_total", "Requests for more tokens than the context holds, sent with as many as fit.", &m.clamped)
	counter("unauthorized_total", "Requests without a valid token.", &m.unauthorized)
	m.mu.Lock()
	defer m.mu.Unlock()
	p.Family("requests_total", "counter", "Requests answered, by route and HTTP status.")
	for a, n := range m.requests {
		p.Sample("requests_total", float64(n), "code", strconv.Itoa(a.status), "route", a.route)
	}
}

func (g *Gateway) gauges(p *promtext.Page) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ready, now := 0, g.cfg.Clock.Now()
	for _, r := range g.replicas {
		if g.eligibleLocked(r, now) {
			ready++
		}
	}
	held := 0
	if g.hold != nil {
		held = 1
	}
	gauge := func(name, help string, value int) { p.Single(name, "gauge", help, float64(value)) }
	gauge("policy_version", "Current policy version.", int(g.version))
	gauge("in_flight", "Requests at the engines.", len(g.inFlight))
	gauge("waiting", "Requests that wait for a hold to end, a replica to come up, or room at one.", g.waiting)
	gauge("held", "1 while requests are held.", held)
	gauge("replicas", "Replicas known.", len(g.replicas))
	gauge("replicas_ready", "Replicas that may get requests.", ready)
	each := func(name, help string, value func(*replica) float64) {
		p.Family(name, "gauge", help)
		for _, r := range g.replicas {
			p.Sample(name, value(r), "replica", r.ID)
		}
	}
	each("sequences", "Sequences at a replica.", func(r *replica) float64 { return float64(r.limit.sequences) })
	each("concurrency", "Sequences that a replica may have at once; 0: any number.",
		func(r *replica) float64 { return float64(g.limitLocked(r)) })
	each("kv_cache_used", "Share of a replica's KV cache in use, as it last reported.",
		func(r *replica) float64 { return r.limit.usage.Cache })
	each("engine_tokens", "Tokens that a replica has computed since it was started, as it last reported.",
		func(r *replica) float64 { return r.limit.usage.Tokens })
	each("preemptions", "Sequences that a replica had to compute again, since it was started.",
		func(r *replica) float64 { return r.limit.usage.Preemptions })
}

// routeLabel bounds the number of labels, whatever clients ask for.
func routeLabel(route string) string {
	switch route {
	case "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens",
		"/v1/models", "/v1/embeddings", "/generate",
		"/tokenize", "/detokenize":
		return route
	}
	if strings.HasPrefix(route, "/v1/") {
		return "/v1/other"
	}
	return "other"
}
