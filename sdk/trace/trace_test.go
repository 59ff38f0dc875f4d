package trace_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/recipe-rl/recipe/sdk/trace"
)

func TestParse(t *testing.T) {
	t.Parallel()
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	for header, want := range map[string]bool{
		"00-" + id + "-00f067aa0ba902b7-01":                       true,
		"00-" + id + "-00f067aa0ba902b7-00":                       true,
		"cc-" + id + "-00f067aa0ba902b7-01-what-the-future-has":   true,
		"00-" + id + "-00f067aa0ba902b7-01-more":                  false,
		"ff-" + id + "-00f067aa0ba902b7-01":                       false,
		"00-" + id + "-0000000000000000-01":                       false,
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01": false,
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01": false,
		"00-" + id + "-00f067aa0ba902b7":                          false,
		"":                                                        false,
		"\x1b[31m":                                                false,
	} {
		c, ok := trace.Parse(header)
		if ok != want {
			t.Errorf("%q: ok is %v", header, ok)
		}
		if ok && header[:2] == "00" && c.String() != header {
			t.Errorf("%q comes back as %q", header, c)
		}
	}
}

// recorder returns one that traces a part of the traces, and what it was given.
func recorder(part string) (*trace.Recorder, *[]trace.Span) {
	var got []trace.Span
	return trace.NewRecorder(map[string]string{trace.SamplerVariable: trace.Sampler, trace.SamplerArgVariable: part},
		func(s trace.Span) { got = append(got, s) }), &got
}

func TestATraceGoesThroughRequests(t *testing.T) {
	t.Parallel()
	r, got := recorder("1")
	ctx, root := r.Root(t.Context(), "rollout")
	h := http.Header{}
	trace.Inject(ctx, h.Set)
	server, spans := recorder("0") // it traces what its caller traces
	server.Begin(h.Get(trace.Header), "POST /v1").End(errors.New("no"))
	trace.Start(trace.Carry(ctx, context.Background()), "score").End(nil)
	root.End(nil)
	if len(*got) != 2 || len(*spans) != 1 {
		t.Fatalf("spans %+v and %+v", *got, *spans)
	}
	score, all, request := (*got)[0], (*got)[1], (*spans)[0]
	if score.ParentID != all.SpanID || request.ParentID != all.SpanID || all.ParentID != "" ||
		score.TraceID != all.TraceID || request.TraceID != all.TraceID || request.Error != "no" {
		t.Errorf("spans %+v, %+v, %+v", all, score, request)
	}
}

func TestWhatIsNotSampledIsNotRecorded(t *testing.T) {
	t.Parallel()
	r, got := recorder("0")
	ctx, root := r.Root(t.Context(), "rollout")
	h := http.Header{}
	trace.Inject(ctx, h.Set)
	if c, ok := trace.Parse(h.Get(trace.Header)); !ok || c.Sampled {
		t.Errorf("the header is %q, expected a context that is not sampled", h.Get(trace.Header))
	}
	server, spans := recorder("1")
	server.Begin(h.Get(trace.Header), "POST /v1").End(nil)
	trace.Start(ctx, "score").End(nil)
	root.End(nil)
	if len(*got)+len(*spans) != 0 {
		t.Errorf("spans %+v and %+v", *got, *spans)
	}
}

// A run without tracing sends no header, and allocates nothing for it.
//
//docs:tracking.md OpenTelemetry traces
func TestOff(t *testing.T) { //nolint:paralleltest // it counts allocations
	r := trace.NewRecorder(map[string]string{"OTEL_TRACES_SAMPLER": "always_on"}, nil)
	if r != nil {
		t.Fatal("another sampler than the engine's turns tracing on")
	}
	header := trace.New(true).String()
	allocations := testing.AllocsPerRun(100, func() {
		ctx, span := r.Root(t.Context(), "rollout")
		trace.Inject(ctx, nil)
		trace.Start(ctx, "score").End(nil)
		r.Begin(header, "POST /v1").End(nil)
		span.End(nil)
	})
	if allocations > 0 {
		t.Errorf("%v allocations", allocations)
	}
}
