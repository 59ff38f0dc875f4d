package sglang

import (
	"context"
	"fmt"

	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
)

// client speaks to one SGLang server on loopback. It implements engine.Client.
type client struct {
	*engine.HTTP
	config Config

	tools, reasoning string // names of the parsers that the server has; empty: none
}

var (
	_ engine.Client       = (*client)(nil)
	_ engine.Preparer     = (*client)(nil)
	_ engine.Sleeper      = (*client)(nil)
	_ engine.TokenCounter = (*client)(nil)
)

func newClient(a engine.Address, c Config) *client {
	return &client{HTTP: engine.NewHTTP(title, a), config: c}
}

// Healthy implements engine.Client. A server whose scheduler has died ends by itself.
func (c *client) Healthy(ctx context.Context) error { return c.Get(ctx, "/health", nil) }

// Ready implements engine.Client: it resumes a server that a process which has died may have paused, and asks the model
// for a token.
func (c *client) Ready(ctx context.Context) error {
	if err := c.Healthy(ctx); err != nil { // cheap, and shows that the socket is open
		return err
	}
	if err := c.resume(ctx); err != nil {
		return err
	}
	return c.Complete(ctx, c.config.baseName(), "1")
}

// Probe implements engine.Client: version, the length that the server settled on, and what its workers can reach.
func (c *client) Probe(ctx context.Context) (engine.Facts, error) {
	var loads struct {
		Version string `json:"version"`
	}
	if err := c.Get(ctx, "/v1/loads", &loads); err != nil {
		return engine.Facts{}, err
	}
	longest, err := c.MaxModelLen(ctx)
	if err != nil {
		return engine.Facts{}, err
	}
	if odd := supported.Warning(loads.Version); odd != "" {
		c.Address.Warn(odd)
	}
	// Of /v1/messages SGLang takes no salt, in any supported version.
	facts := engine.Facts{Version: loads.Version, MaxModelLen: longest, Salted: []string{"/v1/responses"}}
	if c.config.DpSize <= 1 { // with several copies inside one server the route is refused
		workers, err := call[engine.WorkerFacts](ctx, c, request{Do: "facts"})
		if err != nil {
			return engine.Facts{}, err
		}
		facts.WorkerFacts = workers[0]
	}
	facts.Transports = c.config.spec().TransportsWithin(facts.Reach)
	facts.Sleeps = c.config.EnableMemorySaver && facts.Device != "cpu"
	return facts, nil
}

// Prepare implements engine.Preparer.
func (c *client) Prepare(ctx context.Context) error { return c.plainAdapter(ctx) }

// Answer implements engine.Client: a token shows that front end, scheduler and weights work.
func (c *client) Answer(ctx context.Context) error {
	return c.Complete(ctx, c.config.policyName(), "1")
}

// Logprobs implements engine.Client.
func (c *client) Logprobs(ctx context.Context, tokens []int) ([]float64, error) {
	body := map[string]any{
		"input_ids": tokens, "return_logprob": true, "logprob_start_len": 0,
		"sampling_params": map[string]any{"max_new_tokens": 1, "temperature": 0},
	}
	if c.config.EnableLora {
		body["lora_path"] = adapter
	}
	var out struct {
		Meta struct {
			Prompt [][]*float64 `json:"input_token_logprobs"` // log-probability, token, null
		} `json:"meta_info"`
	}
	if err := c.Post(ctx, "/generate", body, &out); err != nil {
		return nil, err
	}
	if len(out.Meta.Prompt) != len(tokens) {
		return nil, fmt.Errorf("POST /generate: expected log-probabilities of %d prompt tokens, got %d", len(tokens),
			len(out.Meta.Prompt))
	}
	values := make([]float64, 0, len(tokens)-1)
	for i, at := range out.Meta.Prompt[1:] {
		if len(at) < 2 || at[0] == nil || at[1] == nil || int(*at[1]) != tokens[i+1] {
			return nil, fmt.Errorf("POST /generate: prompt position %d has no log-probability of token %d", i+1, tokens[i+1])
		}
		values = append(values, *at[0])
	}
	return values, nil
}

// tokensMetric is SGLang's count of computed tokens, those of prompts too, which it raises as they come (every 40
// steps); its count of generated tokens is raised when a request ends.
const tokensMetric = "sglang:realtime_tokens_total"

// GeneratedTokens implements engine.TokenCounter.
func (c *client) GeneratedTokens(ctx context.Context) (float64, error) {
	return c.Metric(ctx, tokensMetric)
}

// Usage implements engine.UsageReporter. A request that SGLang retracts is computed again later.
func (c *client) Usage(ctx context.Context) (inference.Usage, error) {
	const (
		used, running, queued = "sglang:token_usage", "sglang:num_running_reqs", "sglang:num_queue_reqs"
		retracted, capacity   = "sglang:num_retracted_requests_total", "sglang:max_total_num_tokens"
	)
	m, err := c.Metrics(ctx, used, running, queued, retracted, capacity, tokensMetric)
	if err != nil {
		return inference.Usage{}, err
	}
	if len(m[used]) == 0 || len(m[running]) == 0 {
		return inference.Usage{}, fmt.Errorf("GET /metrics: there is no %s or no %s", used, running)
	}
	return inference.Usage{Cache: m[used].Mean(), Running: int(m[running].Sum()), Queued: int(m[queued].Sum()),
		Preemptions: m[retracted].Sum(), Capacity: m[capacity].Sum(), Tokens: m[tokensMetric].Sum(), Reserves: true}, nil
}

// busy is the number of requests that the server computes or queues.
func (c *client) busy(ctx context.Context) (int, error) {
	var out struct {
		Loads []struct {
			Running int `json:"num_running_reqs"`
			Waiting int `json:"num_waiting_reqs"`
		} `json:"loads"`
	}
	if err := c.Get(ctx, "/v1/loads", &out); err != nil {
		return 0, err
	}
	n := 0
	for _, l := range out.Loads {
		n += l.Running + l.Waiting
	}
	return n, nil
}
