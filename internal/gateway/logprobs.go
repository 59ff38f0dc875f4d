package gateway

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/tidwall/gjson"
)

// ReplicaLogprobs are one replica's log-probabilities of a text.
type ReplicaLogprobs struct {
	ID       string    `json:"id"`
	Version  int       `json:"policy_version"`
	Logprobs []float64 `json:"logprobs,omitempty"`
	Error    string    `json:"error,omitempty"`
}

// Logprobs asks every healthy replica for the log-probability of each token given those before it (the first is 0),
// whether or not requests are held. A sync block verifies with it that the weights arrived everywhere. The error joins
// those of the replicas.
func (g *Gateway) Logprobs(ctx context.Context, tokens []int) ([]ReplicaLogprobs, error) {
	if len(tokens) < 2 {
		return nil, fmt.Errorf("gateway: log-probabilities of %d tokens; want at least 2, since nothing precedes the first",
			len(tokens))
	}
	g.mu.Lock()
	var list []*replica
	var out []ReplicaLogprobs
	for _, r := range g.replicas {
		if r.healthy {
			list = append(list, r)
			out = append(out, ReplicaLogprobs{ID: r.ID, Version: r.version})
		}
	}
	g.mu.Unlock()
	if len(list) == 0 {
		return nil, errors.New("gateway: log-probabilities: no replica is up")
	}
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i, r := range list {
		wg.Go(func() {
			out[i].Logprobs, errs[i] = g.logprobsOf(ctx, r.Replica, tokens)
			if errs[i] != nil {
				out[i].Error = errs[i].Error()
			}
		})
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

func (g *Gateway) logprobsOf(ctx context.Context, r Replica, tokens []int) ([]float64, error) {
	ask := g.cfg.Logprobs
	if ask == nil {
		ask = g.promptLogprobs
	}
	got, err := ask(ctx, r, tokens)
	if err != nil {
		return nil, fmt.Errorf("log-probabilities from replica %s: %w", r.ID, err)
	}
	if len(got) != len(tokens) {
		return nil, fmt.Errorf("log-probabilities from replica %s: %d for %d tokens", r.ID, len(got), len(tokens))
	}
	return got, nil
}

// promptLogprobs asks the engine's /v1/completions, as vLLM knows it: prompt_logprobs 0 gives the prompt's own tokens
// only.
func (g *Gateway) promptLogprobs(ctx context.Context, r Replica, tokens []int) ([]float64, error) {
	answer, err := g.complete(ctx, r, tokens, `,"prompt_logprobs":0`)
	if err != nil {
		return nil, err
	}
	positions := gjson.GetBytes(answer, "choices.0.prompt_logprobs").Array()
	if len(positions) != len(tokens) {
		return nil, fmt.Errorf("prompt_logprobs has %d positions for %d tokens; does this engine offer prompt_logprobs?",
			len(positions), len(tokens))
	}
	out := make([]float64, len(tokens))
	for i := 1; i < len(tokens); i++ {
		x := positions[i].Get(strconv.Itoa(tokens[i]))
		if x.IsObject() {
			x = x.Get("logprob")
		}
		if x.Type != gjson.Number {
			return nil, fmt.Errorf("prompt_logprobs has no entry for token %d at position %d", tokens[i], i)
		}
		out[i] = x.Num
	}
	return out, nil
}
