package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// cachingEngine is an engine with one number as weights, and a prefix cache of what it has computed of prompts.
type cachingEngine struct {
	mu      sync.Mutex
	weight  float64
	cache   map[string]float64 // by salt and prompt: the weights that computed it
	unsalty bool               // ignores cache_salt, as early versions of vLLM do
}

func (c *cachingEngine) become(weight float64, empty bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.weight = weight
	if empty || c.cache == nil {
		c.cache = map[string]float64{}
	}
}

func (c *cachingEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var q struct {
		Prompt []int  `json:"prompt"`
		Salt   string `json:"cache_salt"`
		PLP    *int   `json:"prompt_logprobs"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := fmt.Sprint(q.Salt, q.Prompt)
	if c.unsalty {
		key = fmt.Sprint(q.Prompt)
	}
	by, found := c.cache[key]
	if !found || q.PLP != nil { // vLLM reads no cache for log-probabilities of the prompt
		by = c.weight
	}
	if _, found := c.cache[key]; !found {
		c.cache[key] = by
	}
	plp := []any{nil}
	for _, id := range q.Prompt[1:] {
		plp = append(plp, map[string]any{fmt.Sprint(id): map[string]any{"logprob": -1 - c.weight}})
	}
	choice := map[string]any{"index": 0, "text": "x", "token_ids": []int{7}, "finish_reason": "length",
		"logprobs": map[string]any{"token_logprobs": []float64{-2 - by}}}
	if q.PLP != nil {
		choice["prompt_logprobs"] = plp
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{choice}})
}

// startCaching runs a gateway before such an engine. Each update makes its version the weight.
func startCaching(t *testing.T, c *cachingEngine, empties bool, change func(*Config)) *Gateway {
	t.Helper()
	c.become(0, true)
	e := newEngine(t)
	e.set(nil, c.ServeHTTP)
	cfg := Config{
		CacheSalt: func() bool { return true }, CachedPrompt: func() int { return 40 },
		Update: each(func(_ context.Context, _ Replica, u WeightUpdate) error {
			c.become(float64(u.Version), empties)
			return nil
		}),
	}
	if change != nil {
		change(&cfg)
	}
	return start(t, cfg, e)
}

// checkOf is a text with the trainer's log-probabilities at a version.
func checkOf(version int) *Check {
	return &Check{Tokens: []int{4, 5, 6}, Logprobs: []float64{0, float64(-1 - version), float64(-1 - version)},
		Tolerance: 0.1}
}

//docs:troubleshooting.md Old cache entries answer under new weights
//docs:weights.md Tests
func TestAPrefixCacheOfOlderWeightsIsNoticed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		unsalty, empties, unasked bool
		want                      string
	}{
		"salted, never emptied":     {want: ""},
		"without salt, but emptied": {unsalty: true, empties: true, want: ""},
		"neither": {unsalty: true, want: "continues a text of 40 tokens with log-probability -3 through " +
			"its prefix cache and -4 without"},
		"neither, and not asked": {unsalty: true, unasked: true, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startCaching(t, &cachingEngine{unsalty: c.unsalty}, c.empties, func(cfg *Config) {
				if c.unasked {
					cfg.CachedPrompt = nil
				}
			})
			if _, err := g.UpdateWeights(t.Context(), WeightUpdate{Weights: sdk.Weights{Version: 1},
				Check: checkOf(1)}); err != nil {
				t.Fatal(err)
			}
			_, err := g.UpdateWeights(t.Context(), WeightUpdate{Weights: sdk.Weights{Version: 2}, Check: checkOf(2)})
			s := g.Status()
			switch {
			case c.want == "" && (err != nil || !s.Replicas[0].Ready):
				t.Errorf("%v, %+v", err, s.Replicas)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || s.Replicas[0].Ready):
				t.Errorf("error %v, want one with %q; %+v", err, c.want, s.Replicas)
			}
		})
	}
}

// Engines that wake without new weights are checked, too: their memory may not have been restored.
//
//docs:troubleshooting.md An engine wakes with other weights than before it slept
//docs:weights.md Tests
func TestWakingIsVerified(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		updates int                    // before they sleep
		wake    func(c *cachingEngine) // what the engine serves after it woke
		want    string                 // in the reason why it is excluded; empty: it serves
	}{
		"as it was":                   {2, func(*cachingEngine) {}, ""},
		"as it was, before an update": {0, func(*cachingEngine) {}, ""},
		"other weights": {2, func(c *cachingEngine) { c.become(77, true) },
			"after it woke: served weights differ"},
		"other weights, no update": {0, func(c *cachingEngine) { c.become(77, true) },
			"after it woke: served weights differ"},
		"a cache of lent memory": {2, func(c *cachingEngine) {
			c.mu.Lock()
			defer c.mu.Unlock()
			for key := range c.cache {
				c.cache[key] = 1e6
			}
		}, "through its prefix cache"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine, seen := &cachingEngine{}, &events{}
			g := startCaching(t, engine, true, func(cfg *Config) {
				cfg.Sleep = func(context.Context, int) error { return nil }
				cfg.Recover = func(context.Context, []Replica) error { c.wake(engine); return nil }
				cfg.Events = seen.add
			})
			for v := 1; v <= c.updates; v++ {
				if _, err := g.UpdateWeights(t.Context(), WeightUpdate{Weights: sdk.Weights{Version: int64(v)},
					Check: checkOf(v)}); err != nil {
					t.Fatal(err)
				}
			}
			h := holdAsleep(t, g, time.Minute)
			if err := g.Resume(h.ID); err != nil {
				t.Fatal(err)
			}
			s := g.Status()
			if ready := s.Replicas[0].Ready; ready != (c.want == "") || !strings.Contains(s.Replicas[0].Reason, c.want) ||
				s.Held {
				t.Errorf("status %+v, want %q", s, c.want)
			}
			if awake, mismatch := seen.count(EventAwake), seen.count(EventMismatch); (awake == 1) != (c.want == "") ||
				(mismatch == 1) != (c.want != "") {
				t.Errorf("%d awake, %d mismatches", awake, mismatch)
			}
		})
	}
}

func TestTextsAreRepeatedAndEndBackwards(t *testing.T) {
	t.Parallel()
	if got := repeated([]int{1, 2, 3}, 7); !slices.Equal(got, []int{1, 2, 3, 1, 3, 2, 1}) {
		t.Errorf("%v", got)
	}
	if got := repeated([]int{1, 2, 3}, 2); !slices.Equal(got, []int{3, 2}) {
		t.Errorf("%v", got)
	}
}
