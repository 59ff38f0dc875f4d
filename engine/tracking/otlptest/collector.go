// Package otlptest is a collector of traces for tests: it takes OTLP over HTTP and keeps the spans.
package otlptest

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is one that has arrived.
type Span struct {
	Service string // service.name
	*tracepb.Span
}

// Trace is the id of its trace, ID its own and Parent that of its parent.
func (s Span) Trace() string { return hex.EncodeToString(s.TraceId) }

// ID is the span's id.
func (s Span) ID() string { return hex.EncodeToString(s.SpanId) }

// Parent is the id of the span's parent; empty: it is a root.
func (s Span) Parent() string { return hex.EncodeToString(s.ParentSpanId) }

// Attribute is the value of a text.
func (s Span) Attribute(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// Number is the value of an integer.
func (s Span) Number(key string) int64 {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.GetIntValue()
		}
	}
	return 0
}

// Collector is a collector on loopback.
type Collector struct {
	URL string
	t   testing.TB

	mu      sync.Mutex
	spans   []Span
	headers http.Header // of the last request
	fail    bool
}

// New starts a collector, which ends with the test.
func New(t testing.TB) *Collector {
	c := &Collector{t: t}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

// Fail makes it refuse what is sent, or take it again.
func (c *Collector) Fail(fail bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail = fail
}

// Spans are those that have arrived, in their order, and the headers of the last request.
func (c *Collector) Spans() ([]Span, http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...), c.headers
}

// Has reports whether a span of that name has arrived.
func (c *Collector) Has(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.spans, func(s Span) bool { return s.Name == name })
}

// ServeHTTP takes spans.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail {
		http.Error(w, "full", http.StatusServiceUnavailable)
		return
	}
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			c.t.Errorf("a body that is not gzip: %v", err)
			return
		}
		body = z
	}
	data, err := io.ReadAll(body)
	var sent collectorpb.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(data, &sent)
	}
	if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
		c.t.Errorf("%s %s: %v", r.Method, r.URL, err)
	}
	c.headers = r.Header
	for _, resource := range sent.ResourceSpans {
		service := ""
		for _, a := range resource.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, Span{service, s})
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}
