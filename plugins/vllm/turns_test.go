package vllm

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/engine/enginetest"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// sleepy starts the plugin as a block, gateway included, over a server that can sleep.
func sleepy(t *testing.T, environment map[string]string) (*plugintest.Block, *gateway.Client) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := plugintest.Harness(t, Plugin())
	config := map[string]cty.Value{"model": cty.StringVal(enginetest.Model(t, 0)), "enable_sleep_mode": cty.True,
		"served_model_name": cty.StringVal("policy")}
	b.Start(cty.ObjectVal(config), func(r *pluginpb.StartRequest) {
		r.Runtime = &pluginpb.Runtime{Python: exe}
		r.Environment = map[string]string{fakeMark: "1"}
		for name, value := range environment {
			r.Environment[name] = value
		}
	})
	b.Ready()
	g := gateway.NewClient(b.Output("control_url"), b.Output("control_token"))
	t.Cleanup(g.Close)
	return b, g
}

func lull(t *testing.T, g *gateway.Client, level int) string {
	t.Helper()
	h, err := g.Hold(t.Context(), gateway.HoldRequest{Lease: time.Minute, Reason: "the trainer works"})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Sleep(t.Context(), h.ID, level); err != nil {
		t.Fatal(err)
	}
	return h.ID
}

// verified is an update whose weights are one number, with the log-probabilities of the fake as its check.
func verified(t *testing.T, version int, weight float64, hold string) gateway.WeightUpdate {
	t.Helper()
	w := sdk.Weights{Version: int64(version), Path: enginetest.Model(t, weight), Format: "hf", Transport: "reload"}
	value := -1 - 2*weight
	return gateway.WeightUpdate{Weights: w, Hold: hold, Check: &gateway.Check{Tokens: []int{1, 2, 3},
		Logprobs: []float64{0, value, value}, Tolerance: 1e-9}}
}

// answered requests a completion through the gateway; the channel gets the answer's status.
func answered(t *testing.T, b *plugintest.Block) <-chan int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.Output("base_url")+"/completions",
		bytes.NewReader([]byte(`{"model":"policy","prompt":[1,2],"max_tokens":1}`)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+b.Output("api_key"))
	request.Header.Set("Content-Type", "application/json")
	status := make(chan int, 1)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	go func() {
		response, err := client.Do(request)
		if err != nil {
			status <- 0
			return
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		status <- response.StatusCode
	}()
	return status
}

// A whole turn: asleep under a hold, awake for the new weights; a request that arrived meanwhile is answered after it.
func TestATurnBehindTheGateway(t *testing.T) {
	t.Parallel()
	b, g := sleepy(t, nil)
	for version := 1; version <= 2; version++ {
		hold := lull(t, g, version)
		waiting := answered(t, b)
		if s, err := g.Status(t.Context()); err != nil || s.Asleep != version {
			t.Fatalf("status %+v, %v", s, err)
		}
		if _, err := g.UpdateWeights(t.Context(), verified(t, version, float64(version), hold)); err != nil {
			t.Fatal(err)
		}
		if err := g.Resume(t.Context(), hold); err != nil {
			t.Fatal(err)
		}
		if code := <-waiting; code != http.StatusOK {
			t.Errorf("the request that waited got HTTP %d", code)
		}
	}
	// A turn without new weights: the previous weights are served again.
	if err := g.Resume(t.Context(), lull(t, g, 2)); err != nil {
		t.Fatal(err)
	}
	list, err := g.Logprobs(t.Context(), []int{1, 2, 3})
	if err != nil || list[0].Logprobs[1] != -5 {
		t.Errorf("it gives %+v (%v), want those of version 2", list, err)
	}
}

// Waking fails during the update of a sync block: its second attempt finds the server that was started instead, and no
// request is answered before its weights are verified.
func TestAFailedWakeUpBehindTheGateway(t *testing.T) {
	t.Parallel()
	b, g := sleepy(t, map[string]string{fakeWake: filepath.Join(t.TempDir(), "failed")})
	hold := lull(t, g, 1)
	waiting := answered(t, b)
	update := verified(t, 1, 3, hold)
	_, err := g.UpdateWeights(t.Context(), update)
	if err == nil || !strings.Contains(err.Error(), "out of memory at wake-up") {
		t.Fatalf("got %v, want the reason", err)
	}
	if s, err := g.Status(t.Context()); err != nil || s.Version != 0 || !s.Held {
		t.Fatalf("status %+v, %v", s, err)
	}
	if _, err := g.UpdateWeights(t.Context(), update); err != nil {
		t.Fatalf("the second attempt: %v", err)
	}
	select {
	case code := <-waiting:
		t.Fatalf("a request was answered (HTTP %d) before the hold ended", code)
	default:
	}
	if err := g.Resume(t.Context(), hold); err != nil {
		t.Fatal(err)
	}
	if code := <-waiting; code != http.StatusOK {
		t.Errorf("the request that waited got HTTP %d", code)
	}
}

// Waking fails when the hold ends without an update: the server is started again with its previous weights, and answers
// then.
func TestAHoldThatEndsWithoutWakingEndsInAFreshServer(t *testing.T) {
	t.Parallel()
	b, g := sleepy(t, map[string]string{fakeWake: filepath.Join(t.TempDir(), "failed")})
	hold := lull(t, g, 1)
	waiting := answered(t, b)
	if err := g.Resume(t.Context(), hold); err != nil {
		t.Fatal(err)
	}
	if code := <-waiting; code != http.StatusOK {
		t.Errorf("the request that waited got HTTP %d", code)
	}
}
