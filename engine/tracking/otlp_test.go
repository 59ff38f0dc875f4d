package tracking_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/tracking"
	"github.com/recipe-rl/recipe/engine/tracking/otlptest"
	"github.com/recipe-rl/recipe/schema/decode"
)

const (
	queue  = "trajectories.builtin.default"
	syncer = "sync.weights.policy"
)

func (r *ran) append(list ...event.Event) {
	r.t.Helper()
	for _, e := range list {
		if _, err := r.log.Append(e); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := r.log.Flush(); err != nil {
		r.t.Fatal(err)
	}
}

// group is the event of a group that a trainer gets for a step.
func group(trace, step int, at time.Time) event.Event {
	began := at.Add(-time.Second)
	return event.Event{Type: event.Span, Address: queue, Name: "queue", TraceID: fmt.Sprintf("%032x", trace),
		SpanID: fmt.Sprintf("%016x", 16*trace), ParentID: fmt.Sprintf("%016x", 16*trace+1), Time: at, Began: &began,
		Seconds: 1, Metrics: map[string]float64{"recipe.step": float64(step)}}
}

func report(address string, step int, at time.Time) event.Event {
	return event.Event{Type: event.Metrics, Address: address, Step: int64(step), Time: at,
		Metrics: map[string]float64{"sync_seconds": 2}}
}

// export passes a run on to a collector, as one engine does.
func (r *ran) export(tr decode.Tracking) (notices []string) {
	r.t.Helper()
	o := r.options(tr, func(e event.Event) { notices = append(notices, e.Message) })
	o.Needs = map[string][]string{trainer: {queue}, syncer: {trainer}, "trainer.tiny.other": {"trajectories.builtin.b"}}
	followed, err := tracking.Start(r.t.Context(), o)
	if err != nil {
		r.t.Fatal(err)
	}
	followed.Stop()
	return notices
}

// The spans of steps and weight updates are in the traces of the groups that were trained, each once, whichever event
// comes first and whichever engine sees it; a step that is trained again after a resume is another one.
func TestStepsAndUpdatesInTraces(t *testing.T) {
	t.Parallel()
	r, c := newRan(t), otlptest.New(t)
	tr := decode.Tracking{Tracker: "otlp", Endpoint: c.URL}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r.append(group(1, 7, at), group(2, 7, at), report("trainer.tiny.other", 7, at.Add(time.Second)),
		report(syncer, 7, at.Add(4*time.Second)))
	if said := r.export(tr); len(said) > 0 {
		t.Fatalf("it said %q", said)
	}
	r.append(report(trainer, 7, at.Add(5*time.Second)), report(trainer, 7, at.Add(6*time.Second)),
		report(trainer, 8, at.Add(9*time.Second)), group(3, 8, at.Add(8*time.Second)), // late
		group(4, 7, at.Add(20*time.Second)), report(trainer, 7, at.Add(22*time.Second)))
	if said := r.export(tr); len(said) > 0 {
		t.Fatalf("it said %q", said)
	}
	spans, _ := c.Spans()
	got, ids := map[string]string{}, map[string]bool{}
	for _, s := range spans {
		if ids[s.Trace()+s.ID()] {
			t.Errorf("span %s of %s came twice", s.Name, s.Trace())
		}
		ids[s.Trace()+s.ID()] = true
		n := 0
		_, _ = fmt.Sscanf(s.Trace(), "%x", &n)
		got[fmt.Sprintf("%s %d", s.Name, n)] += fmt.Sprintf("%s %d-%d", s.Service,
			seconds(s.StartTimeUnixNano, at), seconds(s.EndTimeUnixNano, at))
	}
	want := map[string]string{
		"queue 1": queue + " -1-0", "queue 2": queue + " -1-0", "queue 3": queue + " 7-8", "queue 4": queue + " 19-20",
		"train step 1": trainer + " 0-5", "train step 2": trainer + " 0-5", "train step 3": trainer + " 8-9",
		"train step 4": trainer + " 20-22", "weight update 1": syncer + " 2-4", "weight update 2": syncer + " 2-4",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("spans\n%v\nexpected\n%v", got, want)
	}
	for _, s := range spans {
		if s.Name == "weight update" && !ids[s.Trace()+s.Parent()] {
			t.Errorf("the parent of the update in %s is no span", s.Trace())
		}
	}
}

func seconds(nano uint64, since time.Time) int64 {
	return int64(time.Unix(0, int64(nano)).Sub(since) / time.Second)
}

// Attributes, errors and headers arrive; what a collector refuses comes when it takes it again, and secrets never.
func TestSpansAreSent(t *testing.T) {
	const secret = "3aYtoken-of-the-collector"
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key="+secret)
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
	c := otlptest.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	r := newRan(t)
	tr := decode.Tracking{Tracker: "otlp"}
	began := time.Now()
	r.append(event.Event{Type: event.Span, Address: "inference.tiny.policy", Name: "POST /v1/completions",
		TraceID: strings.Repeat("a", 32), SpanID: strings.Repeat("b", 16), Began: &began, Seconds: 0.5, Message: "HTTP 502",
		Attributes: map[string]string{"http.request.method": "POST", "bad": "\xff"},
		Metrics:    map[string]float64{"http.response.status_code": 502, "recipe.wait_seconds": 0.25}})
	c.Fail(true)
	said := strings.Join(r.export(tr), "\n")
	if !strings.Contains(said, "tracking.otlp.x is degraded: send traces:") || !strings.Contains(said, "full") ||
		strings.Contains(said, secret) {
		t.Errorf("it said %q", said)
	}
	c.Fail(false)
	if said := r.export(tr); len(said) > 0 {
		t.Errorf("it said %q", said)
	}
	spans, headers := c.Spans()
	if len(spans) != 1 || headers.Get("x-key") != secret || headers.Get("Content-Encoding") != "gzip" {
		t.Fatalf("spans %v, headers %v", spans, headers)
	}
	s := spans[0]
	if s.Kind != tracepb.Span_SPAN_KIND_SERVER || s.Status.GetMessage() != "HTTP 502" || s.Parent() != "" ||
		s.Number("http.response.status_code") != 502 || s.Attribute("bad") != "�" ||
		s.EndTimeUnixNano-s.StartTimeUnixNano != 500_000_000 {
		t.Errorf("the span is %v", s)
	}
	r.holdsNot(secret)
}

func TestTracesVariables(t *testing.T) {
	t.Parallel()
	own := func(string) string { return "0.25" }
	none := func(string) string { return "" }
	for _, c := range []struct {
		tracking decode.Tracking
		getenv   func(string) string
		want     string
	}{
		{decode.Tracking{Tracker: "wandb"}, own, ""},
		{decode.Tracking{Tracker: "otlp", Sample: -1}, none, "0.1"},
		{decode.Tracking{Tracker: "otlp", Sample: -1}, own, "0.25"},
		{decode.Tracking{Tracker: "otlp", Sample: 0.5}, own, "0.5"},
	} {
		if got := tracking.Traces([]decode.Tracking{c.tracking}, c.getenv)["OTEL_TRACES_SAMPLER_ARG"]; got != c.want {
			t.Errorf("%+v: %q, expected %q", c.tracking, got, c.want)
		}
	}
}
