package atropos

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/trace"
)

// TestRealEnvironmentBeginsTraces reads the header of a rollout's requests and of its post, and the span that it is.
func TestRealEnvironmentBeginsTraces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	req := request(t, w, func(*Config) {})
	req.Environment = map[string]string{trace.SamplerVariable: trace.Sampler, trace.SamplerArgVariable: "1"}
	h := newHost()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- (&Environment{}).Run(ctx, req, h) }()
	posted := func() (spans []trace.Span) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, s := range h.spans {
			if slices.Contains(w.traces["/scored_data"], s.String()) {
				spans = append(spans, s)
			}
		}
		return spans
	}
	h.await(t, "spans of groups that were posted", func() bool { return len(posted()) > 1 })
	cancel()
	if err := <-ended; err != nil {
		t.Fatalf("Run: %v", err)
	}
	for _, s := range posted() {
		if s.Name != "rollout" || s.ParentID != "" || s.Error != "" || s.Numbers["recipe.completions"] != 8 ||
			!s.Ended.After(s.Began) || time.Since(s.Ended) > patience {
			t.Errorf("the span of a rollout is %+v", s)
		}
		if !slices.Contains(w.traces["/generate"], s.String()) {
			t.Errorf("no request for completions carries %s: %v", s, w.traces)
		}
	}
}

// TestTheHeaderGoesToInferenceOnly: openai's client uses httpx; a tool's server is not told of the trace, nor are
// requests outside a rollout traced.
func TestTheHeaderGoesToInferenceOnly(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]string{}
	server := func() *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			seen[r.Method+" "+r.URL.Path] = r.Header.Get(trace.Header)
		}))
		t.Cleanup(s.Close)
		return s
	}
	const program = `
import asyncio, sys
sys.path.insert(0, "launcher")
import httpx
import recipe_trace
class Events:
    def write(self, event, **fields):
        print(fields["trace_id"], end="")
tracer = recipe_trace.Tracer(Events(), {"openai": [{"base_url": sys.argv[1] + "/v1"}]})
tracer.install()
tracer.install_httpx(httpx.AsyncClient)
async def main():
    async with httpx.AsyncClient(trust_env=False) as client:
        await client.post(sys.argv[1] + "/before")
        tracer.begin()
        await client.post(sys.argv[1] + "/inference")
        await client.get(sys.argv[1] + "/health")
        await client.post(sys.argv[2] + "/tool")
        tracer.end()
        tracer.end()
asyncio.run(main())`
	cmd := exec.CommandContext(t.Context(), python(t), "-c", program, server().URL, server().URL)
	cmd.Env = append(cmd.Environ(), trace.SamplerVariable+"="+trace.Sampler, trace.SamplerArgVariable+"=1")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	sent, ok := trace.Parse(seen["POST /inference"])
	if !ok || !sent.Sampled || sent.TraceID != string(out) {
		t.Errorf("the request to inference carries %q, the rollout's trace is %q", seen["POST /inference"], out)
	}
	for _, other := range []string{"POST /before", "GET /health", "POST /tool"} {
		if header, asked := seen[other]; !asked || header != "" {
			t.Errorf("%s: asked %t with header %q, expected none", other, asked, header)
		}
	}
}
