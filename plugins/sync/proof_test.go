package sync_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// through has a block's control endpoint answered by handle, which passes on what it does not answer itself.
func through(t *testing.T, r *spec.Ref, handle func(route string, w http.ResponseWriter) (answered bool)) {
	t.Helper()
	values := r.Values.AsValueMap()
	target, err := url.Parse(values["control_url"].AsString())
	if err != nil {
		t.Fatal(err)
	}
	pass := httputil.NewSingleHostReverseProxy(target)
	transport := &http.Transport{}
	pass.Transport = transport
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, route, _ := strings.Cut(r.URL.Path, "/recipe/v1/"); !handle(route, w) {
			pass.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() { s.Close(); transport.CloseIdleConnections() })
	values["control_url"] = cty.StringVal(s.URL)
	r.Values = cty.ObjectVal(values)
}

// The trainer computes its half of the check while inference loads: here it cannot answer before the gateway has been
// told to load.
func TestTheCheckRunsWhileInferenceLoads(t *testing.T) {
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 2})
	b := plugintest.Harness(t, sync.Definition())
	c := config(train, server)
	loading := make(chan struct{}, 8)
	through(t, &c.Inference[0], func(route string, _ http.ResponseWriter) bool {
		if route == "weights" {
			loading <- struct{}{}
		}
		return false
	})
	through(t, &c.Trainer, func(route string, _ http.ResponseWriter) bool {
		if route == "logprobs" {
			select {
			case <-loading:
			case <-time.After(plugintest.Deadline):
				t.Error("inference is told to load only after the trainer's answer")
			}
		}
		return false
	})
	b.Start(c)
	train.WaitPhase(sdk.Completed)
	if got, want := serves(t, server, 2), plugintest.FakeLogprobs(2, []int{1, 2, 3}); got[0] != want[0] {
		t.Errorf("it gives %v, want %v", got, want)
	}
	for _, e := range b.Events() {
		if w := e.GetWeights(); w != nil && (w.GetPhases()["proof"] <= 0 || w.GetPhases()["verify"] <= 0) {
			t.Errorf("the phases lack those of the check: %v", w.GetPhases())
		}
	}
}

// A gateway of an earlier build is sent the whole check, as before.
func TestAGatewayThatCannotWaitIsSentTheWholeCheck(t *testing.T) {
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 2})
	c := config(train, server)
	through(t, &c.Inference[0], func(route string, w http.ResponseWriter) bool {
		if route == "expect" {
			t.Error("it was sent what it does not know")
		}
		if route != "status" {
			return false
		}
		g := client(server)
		defer g.Close()
		status, err := g.Status(t.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return true
		}
		status.Expects = false
		_ = json.NewEncoder(w).Encode(status)
		return true
	})
	plugintest.Harness(t, sync.Definition()).Start(c)
	train.WaitPhase(sdk.Completed)
	serves(t, server, 2)
}

// Weights that the trainer says nothing of are not served, although inference has loaded them.
func TestUncheckedWeightsAreNotServed(t *testing.T) {
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 2})
	b := plugintest.Harness(t, sync.Definition())
	c := config(train, server)
	through(t, &c.Trainer, func(route string, w http.ResponseWriter) bool {
		if route != "logprobs" {
			return false
		}
		http.Error(w, `{"error":"the GPU is on fire"}`, http.StatusConflict)
		return true
	})
	b.Start(c)
	over := func(e *pluginpb.Event) bool { return e.GetPhase().GetPhase() == string(sdk.Failed) }
	said := b.Wait("failure", over).GetPhase().GetMessage()
	if !strings.Contains(said, "log-probabilities of the fixed text") || !strings.Contains(said, "the GPU is on fire") {
		t.Errorf("the failure says %q", said)
	}
	g := client(server)
	defer g.Close()
	if s, err := g.Status(t.Context()); err != nil || s.Version != 0 {
		t.Errorf("the version has risen: %+v %v", s, err)
	}
}
