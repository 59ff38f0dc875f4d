package trajectories

import (
	"fmt"
	"sync"
	"testing"

	"github.com/recipe-rl/recipe/sdk/trace"
)

// A group continues the trace of its post until a trainer gets it or it is dropped; one without a trace begins one, and
// one whose trace is not sampled is not followed.
func TestPostsContinueTraces(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var spans []trace.Span
	f := newFixture(t, Config{LimitStaleness: true, MaxStaleness: 1, Trace: trace.NewRecorder(
		map[string]string{trace.SamplerVariable: trace.Sampler, trace.SamplerArgVariable: "1"}, func(s trace.Span) {
			mu.Lock()
			defer mu.Unlock()
			spans = append(spans, s)
		})})
	f.trainer(2)
	env := f.env("sums", 2, `"weight":1`)
	post := func(version int, headers ...string) {
		t.Helper()
		code, out := f.call("POST", "/scored_data", fmt.Sprintf(`{"tokens":[[5,6],[5,7]],"masks":[[-100,6],[-100,7]],`+
			`"scores":[1,0],"env_id":%d,"policy_version":%d}`, env, version), headers...)
		if code != 200 {
			t.Fatalf("the post was answered with %d %v", code, out)
		}
	}
	sent := trace.New(true)
	post(0, trace.Header, sent.String())
	f.ok("GET", "/batch?lease=60s", "")
	post(0, trace.Header, trace.New(false).String())
	post(0, trace.Header, "no context")
	f.ok("POST", "/policy_version", `{"version":5}`) // the last two are too old now
	mu.Lock()
	defer mu.Unlock()
	if len(spans) != 4 {
		t.Fatalf("spans %+v", spans)
	}
	posted, queued, own, dropped := spans[0], spans[1], spans[2], spans[3]
	if posted.TraceID != sent.TraceID || posted.ParentID != sent.SpanID || posted.Name != "POST /scored_data" {
		t.Errorf("the post's span is %+v", posted)
	}
	if queued.TraceID != sent.TraceID || queued.ParentID != posted.SpanID || queued.Numbers["recipe.step"] != 1 ||
		queued.Numbers["recipe.sequences"] != 2 || queued.Attributes["recipe.environment"] != "sums_0" {
		t.Errorf("the wait's span is %+v", queued)
	}
	if own.TraceID == sent.TraceID || own.ParentID != "" {
		t.Errorf("the span of a post without a trace is %+v", own)
	}
	if dropped.ParentID != own.SpanID || dropped.Error != "the group was dropped: stale" || len(f.state.traced) != 0 {
		t.Errorf("the dropped group's span is %+v, and %d wait", dropped, len(f.state.traced))
	}
}
