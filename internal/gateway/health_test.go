package gateway

import (
	"context"
	"net/http"
	"testing"
)

// TestHealthMeansReady follows /health through the states of a replica: 200 exactly while a request would be answered,
// or held by an update in progress.
func TestHealthMeansReady(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	clock := newClock()
	g := start(t, Config{Clock: clock})
	health := func(when string, want int) {
		t.Helper()
		resp, err := http.Get(g.URL() + "/health")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s /health answers %d, want %d", when, resp.StatusCode, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	health("without a replica", http.StatusServiceUnavailable)
	must(g.SetReplicas([]Replica{{ID: "0", URL: e.URL}}))
	health("before the replica is admitted", http.StatusServiceUnavailable)
	must(g.Admit(context.Background(), "0", 0))
	health("while a replica serves", http.StatusOK)
	if r := post(t, g, "/v1/completions", prompt); r.status != http.StatusOK {
		t.Errorf("/health says ready, and a request is answered with %d %s", r.status, r.body)
	}
	must(g.SetReplicaHealthy("0", false, "the engine is being started again"))
	health("while the only replica is down", http.StatusServiceUnavailable)
	must(g.SetReplicaHealthy("0", true, ""))
	health("when the replica is back", http.StatusOK)
	must(g.SetReplicas(nil))
	health("when the last replica is gone", http.StatusServiceUnavailable)
}
