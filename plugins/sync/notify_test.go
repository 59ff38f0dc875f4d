package sync_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

func TestTheTrajectoryAPILearnsTheVersion(t *testing.T) {
	t.Parallel()
	var reported atomic.Value
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 100)
		n, _ := r.Body.Read(body)
		reported.Store(r.URL.Path + string(body[:n]) + r.Header.Get("Authorization"))
		_, _ = w.Write([]byte(`{"status":"success"}`))
	}))
	defer api.Close()
	server := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1})
	b := plugintest.Harness(t, sync.Definition())
	c := config(train, server)
	book := plugintest.Ref("trajectories.x.y", kind.Trajectories, outputs.Trajectories{URL: api.URL, Token: "secret"})
	limit := int64(4)
	c.Trajectories, c.MaxStaleness = &book, &limit
	b.Start(c)
	train.WaitPhase(sdk.Completed)
	if got := reported.Load(); got != `/policy_version{"version":1,"max_staleness":4,"in_flight":"drain"}Bearer secret` {
		t.Errorf("the trajectory API got %v", got)
	}
	http.DefaultClient.CloseIdleConnections()
}

// Environments sample further ahead where answers go on during an update, so the API is told before the first.
func TestTheTrajectoryAPILearnsThatAnswersGoOn(t *testing.T) {
	t.Parallel()
	var first atomic.Value
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		first.CompareAndSwap(nil, string(body))
		_, _ = w.Write([]byte(`{"status":"success"}`))
	}))
	defer api.Close()
	server := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1})
	b := plugintest.Harness(t, sync.Definition())
	c := config(train, server)
	book := plugintest.Ref("trajectories.x.y", kind.Trajectories, outputs.Trajectories{URL: api.URL, Token: "secret"})
	c.Trajectories, c.InFlight = &book, "keep"
	b.Start(c)
	train.WaitPhase(sdk.Completed)
	if got := first.Load(); got != `{"version":0,"in_flight":"keep"}` {
		t.Errorf("the trajectory API was told first %v", got)
	}
	http.DefaultClient.CloseIdleConnections()
}

// Posting to a trajectory API that does not answer is retried, and reported once.
func TestATrajectoryAPIThatFailsIsReportedOnce(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer api.Close()
	server := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1})
	b := plugintest.Harness(t, sync.Definition())
	c := config(train, server)
	book := plugintest.Ref("trajectories.x.y", kind.Trajectories, outputs.Trajectories{URL: api.URL, Token: "secret"})
	c.Trajectories = &book
	b.Start(c)
	for deadline := time.Now().Add(plugintest.Deadline); asked.Load() < 4; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it was asked %d times", asked.Load())
		}
	}
	reported := 0
	for _, e := range b.Events() {
		if strings.Contains(e.GetLog().GetMessage(), "post the policy version to trajectories.x.y") {
			reported++
		}
	}
	if reported != 1 {
		t.Errorf("it was reported %d times, want once", reported)
	}
	http.DefaultClient.CloseIdleConnections()
}
