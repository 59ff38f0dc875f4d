package gateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/trace"
)

// A request that is traced gets a span of its own, and the engine that span as its parent; another one gets none.
func TestTracedRequests(t *testing.T) {
	t.Parallel()
	spans := make(chan trace.Span, 8)
	e := newEngine(t)
	g := start(t, Config{Version: 7, Trace: trace.NewRecorder(
		map[string]string{trace.SamplerVariable: trace.Sampler, trace.SamplerArgVariable: "1"},
		func(s trace.Span) { spans <- s })}, e)
	sent := trace.New(true)
	for _, header := range []string{"", trace.New(false).String(), sent.String()} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL()+"/v1/completions",
			strings.NewReader(`{"model":"policy","prompt":[1,2,3],"logprobs":0,"return_token_ids":true}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+dataToken)
		if header != "" {
			r.Header.Set(trace.Header, header)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
	}
	s := <-spans
	if s.TraceID != sent.TraceID || s.ParentID != sent.SpanID || s.Name != "POST /v1/completions" || s.Error != "" ||
		s.Numbers["http.response.status_code"] != 200 || s.Numbers["recipe.policy_version"] != 7 ||
		s.Numbers["gen_ai.usage.output_tokens"] != 3 || s.Ended.Before(s.Began) {
		t.Errorf("the span is %+v", s)
	}
	if len(spans) > 0 {
		t.Errorf("there is another span: %+v", <-spans)
	}
	seen := e.seen()
	if got := seen[len(seen)-1].header.Get(trace.Header); got != s.Context.String() {
		t.Errorf("the engine got %q, expected %q", got, s.Context)
	}
}
