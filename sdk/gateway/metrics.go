package gateway

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are the gateway's counters, in a registry of their own.
type metrics struct {
	handler       http.Handler
	requests      *prometheus.CounterVec
	seconds       *prometheus.HistogramVec
	waits         prometheus.Histogram
	tokens        prometheus.Counter
	recorded      prometheus.Counter
	together      prometheus.Counter
	retries       prometheus.Counter
	expired       prometheus.Counter
	mismatches    prometheus.Counter
	mistranslated prometheus.Counter
	unauthorized  prometheus.Counter
	updates       *prometheus.HistogramVec
}

// latency buckets reach from a one-token answer of a tiny model to a long generation on a busy machine.
var latencyBuckets = []float64{.001, .005, .02, .1, .5, 1, 2, 5, 10, 30, 60, 120, 300, 600}

func newMetrics(g *Gateway) *metrics {
	reg := prometheus.NewRegistry()
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "recipe_gateway_" + name, Help: help})
		reg.MustRegister(c)
		return c
	}
	gauge := func(name, help string, f func() float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "recipe_gateway_" + name, Help: help},
			func() float64 {
				g.mu.Lock()
				defer g.mu.Unlock()
				return f()
			}))
	}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "recipe_gateway_requests_total",
			Help: "Requests answered, by route and HTTP status."}, []string{"route", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "recipe_gateway_request_seconds",
			Help:    "Time from a request's last byte in to its answer's last byte out, waiting included.",
			Buckets: latencyBuckets}, []string{"route"}),
		waits: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "recipe_gateway_wait_seconds",
			Help: "Time that requests which had to wait for a hold or a replica waited.", Buckets: latencyBuckets}),
		updates: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "recipe_gateway_update_seconds",
			Help: "Time of each phase of a weight update.", Buckets: latencyBuckets}, []string{"phase"}),
		tokens:   counter("output_tokens_total", "Tokens generated, as the engine's answers say."),
		recorded: counter("recorded_completions_total", "Completions recorded for look-up."),
		together: counter("put_together_total", "Answers of /generate put together from streams, because "+
			"updates let requests live on."),
		retries: counter("retries_total", "Requests sent again after a replica failed."),
		expired: counter("holds_expired_total", "Holds that ended because their owner did not renew "+
			"or resume them within the lease."),
		mismatches: counter("mismatches_total", "Replicas whose log-probabilities differed from those expected."),
		mistranslated: counter("unusable_answers_total", "Engine answers in which tokens and log-probabilities "+
			"did not match."),
		unauthorized: counter("unauthorized_total", "Requests without a valid token."),
	}
	reg.MustRegister(m.requests, m.seconds, m.waits, m.updates)
	gauge("policy_version", "Current policy version.", func() float64 { return float64(g.version) })
	gauge("in_flight", "Requests at the engines.", func() float64 { return float64(len(g.inFlight)) })
	gauge("waiting", "Requests that wait for a hold to end or a replica to come up.",
		func() float64 { return float64(g.waiting) })
	gauge("held", "1 while requests are held.", func() float64 {
		if g.hold != nil {
			return 1
		}
		return 0
	})
	gauge("replicas", "Replicas known.", func() float64 { return float64(len(g.replicas)) })
	gauge("replicas_ready", "Replicas that may get requests.", func() float64 {
		n, now := 0, g.cfg.Clock.Now()
		for _, r := range g.replicas {
			if g.eligibleLocked(r, now) {
				n++
			}
		}
		return float64(n)
	})
	m.handler = promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
	return m
}

// done counts an answered request.
func (m *metrics) done(route string, status, tokens int, took time.Duration) {
	route = routeLabel(route)
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
	m.tokens.Add(float64(tokens))
}

// routeLabel bounds the number of labels, whatever clients ask for.
func routeLabel(route string) string {
	switch route {
	case "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/generate",
		"/tokenize", "/detokenize":
		return route
	}
	if strings.HasPrefix(route, "/v1/") {
		return "/v1/other"
	}
	return "other"
}
