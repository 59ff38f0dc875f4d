package vllm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
)

// client speaks to one vLLM server on loopback. It implements engine.Client.
type client struct {
	*engine.HTTP
	config Config
	model  string // name that the policy has there
	offers offers // what Probe has found

	tools, reasoning string // names of the parsers that the server has; empty: none
}

var (
	_ engine.Client       = (*client)(nil)
	_ engine.Preparer     = (*client)(nil)
	_ engine.Sleeper      = (*client)(nil)
	_ engine.TokenCounter = (*client)(nil)
)

func newClient(a engine.Address, c Config) *client {
	return &client{HTTP: engine.NewHTTP(title, a), config: c, model: c.servedName()}
}

// offers is what a server can do.
type offers struct {
	version string
	routes  map[string]bool
}

// lacks reports that the server is known not to have a route.
func (o offers) lacks(route string) bool { return len(o.routes) > 0 && !o.routes[route] }

// require explains a missing route.
func (o offers) require(route, purpose string) error {
	if !o.lacks(route) {
		return nil
	}
	return &sdk.Error{
		Summary: fmt.Sprintf("vLLM %s has no route %s, which is needed to %s", o.version, route, purpose),
		Detail:  "the server's /openapi.json does not list it",
		Remedy:  "use vLLM " + oldestVersion + " or newer; or move weights with transport = \"restart\" in the sync block",
	}
}

// Healthy implements engine.Client. vLLM answers 503 when its engine is dead.
func (c *client) Healthy(ctx context.Context) error { return c.Get(ctx, "/health", nil) }

// Ready implements engine.Client: it resumes a paused server, and asks the base model for one token.
func (c *client) Ready(ctx context.Context) error {
	if err := c.Healthy(ctx); err != nil { // cheap, and shows that the socket is open
		return err
	}
	paused, err := c.is(ctx, "paused")
	if err != nil {
		return err
	}
	if paused { // the process that paused it has died
		if err := c.Post(ctx, "/resume", nil, nil); err != nil {
			return err
		}
	}
	return c.Complete(ctx, c.config.baseName(), []int{1})
}

// is asks about a state of the server, and takes "no such route" for no.
func (c *client) is(ctx context.Context, state string) (bool, error) {
	out := map[string]any{}
	err := c.Get(ctx, "/is_"+state, &out)
	if status := (*engine.StatusError)(nil); errors.As(err, &status) && status.Status == http.StatusNotFound {
		return false, nil
	}
	yes, _ := out["is_"+state].(bool)
	return yes, err
}

// Probe implements engine.Client: version, routes, the length that the server settled on, and what its workers can
// reach.
func (c *client) Probe(ctx context.Context) (engine.Facts, error) {
	var version struct {
		Version string `json:"version"`
	}
	var api page
	var longest int64
	var workers engine.WorkerFacts
	var undocumented, unreachable error
	// Side by side: vLLM takes a good part of a second to write the page of its routes for the first time.
	group, asking := errgroup.WithContext(ctx)
	group.Go(func() error { return c.Get(asking, "/version", &version) })
	group.Go(func() (err error) { longest, err = c.MaxModelLen(asking); return err })
	group.Go(func() error { undocumented = c.Get(asking, "/openapi.json", &api); return nil })
	group.Go(func() error { workers, unreachable = c.workers(asking); return nil })
	if err := group.Wait(); err != nil {
		return engine.Facts{}, err
	}
	c.offers = offers{version: version.Version, routes: map[string]bool{}}
	// A server started with --disable-fastapi-docs has no such page; then nothing is known to be missing.
	if undocumented == nil {
		for path := range api.Paths {
			c.offers.routes[path] = true
		}
	}
	if odd := supported.Warning(version.Version); odd != "" {
		c.Address.Warn(odd)
	}
	facts := engine.Facts{Version: version.Version, MaxModelLen: longest, Salted: api.salted()}
	if !c.offers.lacks("/collective_rpc") {
		if facts.WorkerFacts = workers; unreachable != nil {
			c.Address.Warn("weights cannot reach it through memory: " + unreachable.Error())
		}
	}
	facts.Transports = c.transports(facts)
	// Without a GPU vLLM answers well and gives nothing back.
	facts.Sleeps = c.config.EnableSleepMode && !c.offers.lacks("/sleep") && !c.offers.lacks("/wake_up") &&
		facts.Device != "cpu"
	return facts, nil
}

// Prepare implements engine.Preparer.
func (c *client) Prepare(ctx context.Context) error { return c.plainAdapter(ctx) }

// Answer implements engine.Client: a token shows what /health does not, that front end, engine and weights work. That
// route stays at 200 while the engine is broken.
func (c *client) Answer(ctx context.Context) error { return c.Complete(ctx, c.model, []int{1}) }

// Logprobs implements engine.Client; it returns log p(token[i] | token[:i]) for i ≥ 1.
func (c *client) Logprobs(ctx context.Context, tokens []int) ([]float64, error) {
	if len(tokens) < 2 {
		return nil, fmt.Errorf("log-probabilities of %d tokens: at least 2 are needed, since nothing precedes the first",
			len(tokens))
	}
	body := map[string]any{"model": c.model, "prompt": tokens, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
	var out struct {
		Choices []struct {
			PromptLogprobs []map[string]struct {
				Logprob *float64 `json:"logprob"`
			} `json:"prompt_logprobs"`
		} `json:"choices"`
	}
	if err := c.Post(ctx, "/v1/completions", body, &out); err != nil {
		return nil, err
	}
	if len(out.Choices) != 1 || len(out.Choices[0].PromptLogprobs) != len(tokens) {
		return nil, fmt.Errorf("POST /v1/completions: expected log-probabilities of %d prompt tokens, got another number; "+
			"this vLLM may not offer prompt_logprobs", len(tokens))
	}
	values := make([]float64, 0, len(tokens)-1)
	for i, at := range out.Choices[0].PromptLogprobs[1:] {
		entry, ok := at[strconv.Itoa(tokens[i+1])]
		if !ok || entry.Logprob == nil {
			return nil, fmt.Errorf("POST /v1/completions: prompt position %d has no log-probability of token %d", i+1,
				tokens[i+1])
		}
		values = append(values, *entry.Logprob)
	}
	return values, nil
}

// call runs a method of the worker extension on every worker of the server. Results, if any, is a list with one element
// for each worker.
func (c *client) call(ctx context.Context, method string, kwargs map[string]any, results any) error {
	body := map[string]any{"method": method}
	if len(kwargs) > 0 {
		body["kwargs"] = kwargs
	}
	var out struct {
		Results json.RawMessage `json:"results"`
	}
	if err := c.Post(ctx, "/collective_rpc", body, &out); err != nil || results == nil {
		return err
	}
	if err := json.Unmarshal(out.Results, results); err != nil {
		return fmt.Errorf("read the workers' answer to %s: %s: %w", method, engine.Brief(string(out.Results)), err)
	}
	return nil
}

// tokensMetric is vLLM's counter of generated tokens, one sample an engine.
const tokensMetric = "vllm:generation_tokens_total"

// GeneratedTokens implements engine.TokenCounter.
func (c *client) GeneratedTokens(ctx context.Context) (float64, error) {
	return c.Metric(ctx, tokensMetric)
}

// Usage implements engine.UsageReporter. Older releases call the share of the cache gpu_cache_usage_perc.
func (c *client) Usage(ctx context.Context) (inference.Usage, error) {
	const (
		used, usedBefore = "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"
		running, queued  = "vllm:num_requests_running", "vllm:num_requests_waiting"
		preempted, cache = "vllm:num_preemptions_total", "vllm:cache_config_info"
	)
	m, err := c.Metrics(ctx, used, usedBefore, running, queued, preempted, cache, tokensMetric)
	if err != nil {
		return inference.Usage{}, err
	}
	share := m[used]
	if len(share) == 0 {
		share = m[usedBefore]
	}
	if len(share) == 0 || len(m[running]) == 0 {
		return inference.Usage{}, fmt.Errorf("GET /metrics: there is no %s or no %s", used, running)
	}
	usage := inference.Usage{Cache: share.Mean(), Running: int(m[running].Sum()), Queued: int(m[queued].Sum()),
		Preemptions: m[preempted].Sum(), Tokens: m[tokensMetric].Sum()}
	for _, s := range m[cache] {
		usage.Capacity += s.Label("num_gpu_blocks") * s.Label("block_size")
	}
	return usage, nil
}

// Sleep implements engine.Sleeper. Requests in flight are frozen and computed again after wake-up.
func (c *client) Sleep(ctx context.Context, level inference.SleepLevel) error {
	query := url.Values{"level": {strconv.Itoa(int(level))}, "mode": {"keep"}}
	if err := c.Post(ctx, "/sleep?"+query.Encode(), nil, nil); err != nil {
		return fmt.Errorf("put the server to sleep: %w", err)
	}
	return nil
}

// Wake implements engine.Sleeper; the kit's names of the parts are vLLM's tags.
func (c *client) Wake(ctx context.Context, part engine.Part) error {
	path := "/wake_up"
	if part != engine.AllOfIt {
		path += "?" + url.Values{"tags": {string(part)}}.Encode()
	}
	if err := c.Post(ctx, path, nil, nil); err != nil {
		return fmt.Errorf("wake the server's %s: %w", part, err)
	}
	return nil
}

// Asleep implements engine.Sleeper.
func (c *client) Asleep(ctx context.Context) (bool, error) { return c.is(ctx, "sleeping") }
