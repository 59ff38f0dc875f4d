package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// An earlier client puts attributes of the weights into options.
func TestAnUpdateInItsEarlierForm(t *testing.T) {
	t.Parallel()
	reported := make(chan sdk.Weights, 1)
	g := start(t, Config{Update: func(_ context.Context, _ []Replica, u WeightUpdate) error {
		reported <- u.Weights
		return nil
	}}, newEngine(t))
	body := `{"version":1,"path":"/w","transport":"live","options":{"format":"hf","precision":"bfloat16","handles":"{}"}}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL()+"/recipe/v1/weights",
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%+v, %v", resp, err)
	}
	_ = resp.Body.Close()
	want := sdk.Weights{Version: 1, Path: "/w", Transport: "live", Format: "hf", Precision: "bfloat16", Handles: "{}"}
	if got := <-reported; got != want {
		t.Errorf("the engine got %+v, want %+v", got, want)
	}
}

// All calls of a sync block, over HTTP as from another process.
func TestClientDrivesAnUpdate(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t), newEngine(t)
	fail := map[string]bool{"1": true}
	g := start(t, Config{Version: 1, Update: each(func(_ context.Context, r Replica, u WeightUpdate) error {
		if u.Format != "lora" || u.Handles != "{}" || u.Path != "/w" {
			return fmt.Errorf("format, handles or path got lost: %+v", u.Weights)
		}
		if fail[r.ID] {
			return errors.New("engine answered 500")
		}
		return nil
	})}, a, b)
	ctx := context.Background()
	c := NewClient(g.URL()+"/v1", adminToken)
	defer c.Close()
	if r := post(t, g, "/c/env.a/v1/completions", prompt); r.status != 200 {
		t.Fatal(r.body)
	}
	h, err := c.Hold(ctx, HoldRequest{Mode: ModeDrain, Lease: time.Minute, Reason: "step 2"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Hold(ctx, HoldRequest{}); !errors.Is(err, ErrHeld) {
		t.Errorf("second hold: %v, want ErrHeld", err)
	}
	s, err := c.Status(ctx)
	if err != nil || !s.Held || s.Hold.Reason != "step 2" || s.Hold.ID != h.ID || s.Clients["env.a"].Requests != 1 ||
		s.LastRequest.IsZero() || s.Clients["env.a"].OutputTokens != 3 {
		t.Errorf("status %+v, %v", s, err)
	}
	u := WeightUpdate{Weights: sdk.Weights{Version: 2, Path: "/w", Transport: "reload", Format: "lora", Handles: "{}"},
		Hold: h.ID, Check: &Check{Tokens: []int{5, 6}, Logprobs: []float64{0, -1.5}, Tolerance: 0.001}}
	res, err := c.UpdateWeights(ctx, u)
	if err != nil || res.Version != 2 || !strings.Contains(res.Replicas[1].Error, "500") {
		t.Errorf("update: %+v, %v", res, err)
	}
	list, err := c.Logprobs(ctx, []int{5, 6})
	if err != nil || len(list) != 2 || list[0].Version != 2 || list[0].Logprobs[1] != -1.5 || list[1].Version != -1 {
		t.Errorf("log-probabilities: %+v, %v", list, err)
	}
	if err := c.Resume(ctx, h.ID); err != nil {
		t.Fatal(err)
	}
	if err := c.Resume(ctx, h.ID); !errors.Is(err, ErrNotHeld) {
		t.Errorf("second resume: %v, want ErrNotHeld", err)
	}
	fail["1"] = false
	if err := c.Admit(ctx, "1", -1); err != nil {
		t.Errorf("admit: %v", err)
	}
	if err := c.SetReplicaHealthy(ctx, "0", false, "test"); err != nil {
		t.Error(err)
	}
	u.Hold, u.Version, u.Check.Logprobs[1] = "", 3, -7
	if res, err = c.UpdateWeights(ctx, u); !errors.Is(err, ErrMismatch) || len(res.Replicas) != 1 ||
		res.Replicas[0].Difference != 5.5 {
		t.Errorf("mismatch: %+v, %v; want ErrMismatch and the difference", res, err)
	}
	got, err := c.Lookup(ctx, []int{1, 2, 3, 10, 20, 2})
	if err != nil || !got.Found || got.Ambiguous || got.Record.Version != 1 || len(got.Record.Output) != 3 {
		t.Errorf("lookup: %+v %v", got, err)
	}
	all, err := c.LookupAll(ctx, [][]int{{9}, {1, 2, 3, 10, 20, 2}})
	if err != nil || all[0].Found || !all[1].Found || all[1].Record.Logprobs[2] != -0.125 {
		t.Errorf("lookup of two: %+v, %v; want the second found", all, err)
	}
	if err := c.SetVersion(ctx, 8); err != nil || g.Version() != 8 {
		t.Errorf("version: %v, %d", err, g.Version())
	}
	var remote *RemoteError
	if _, err := NewClient(g.URL(), dataToken).Status(ctx); !errors.As(err, &remote) || remote.Status != 403 {
		t.Errorf("status with the data token: %v, want 403", err)
	}
	if err := c.SetReplicaHealthy(ctx, "7", true, ""); !errors.As(err, &remote) || remote.Status != 422 {
		t.Errorf("unknown replica: %v, want 422", err)
	}
}

// The hold of a trainer that dies while it waits for draining ends.
func TestClientGoneWhileHolding(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{}, e)
	entered, release := blocking(e)
	first := background(t, g, "/v1/completions", prompt)
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	c := NewClient(g.URL(), adminToken)
	defer c.Close()
	held := make(chan error, 1)
	go func() { _, err := c.Hold(ctx, HoldRequest{}); held <- err }()
	eventually(t, "the gate to close", func() bool { return g.Status().Held })
	cancel()
	if err := <-held; err == nil {
		t.Error("Hold succeeded with a request in flight")
	}
	eventually(t, "the gate to open", func() bool { return !g.Status().Held })
	close(release)
	<-first
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{Version: 3}, e)
	post(t, g, "/v1/completions", prompt)
	post(t, g, "/generate", `{"prompt":[1,2],"n":2,"logprobs":0}`)
	post(t, g, "/generate", `{}`)
	post(t, g, "/v1/some/path/of/a/client", `{}`)
	req, _ := http.NewRequest(http.MethodGet, g.URL()+"/metrics", nil)
	req.Header.Set("Authorization", "Bearer "+dataToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	for _, want := range []string{
		`recipe_gateway_requests_total{code="200",route="/v1/completions"} 1`,
		`recipe_gateway_requests_total{code="200",route="/generate"} 1`,
		`recipe_gateway_requests_total{code="400",route="/generate"} 1`,
		`recipe_gateway_requests_total{code="200",route="/v1/other"} 1`,
		`recipe_gateway_output_tokens_total 12`,
		`recipe_gateway_recorded_completions_total 3`,
		`recipe_gateway_policy_version 3`,
		`recipe_gateway_replicas_ready 1`,
		`recipe_gateway_in_flight 0`,
		`recipe_gateway_held 0`,
	} {
		if !strings.Contains(string(b), want+"\n") {
			t.Errorf("missing %q in:\n%s", want, b)
		}
	}
}
