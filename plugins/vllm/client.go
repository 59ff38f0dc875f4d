package vllm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// client speaks to one vLLM server on loopback.
type client struct {
	base  string // http://127.0.0.1:port
	port  int
	key   string
	model string // name that the policy has there
	http  *http.Client
	warn  func(message string) // tells what is odd and does no harm; nil: nobody listens
}

func newClient(port int, key, model string) *client {
	return &client{
		base: "http://127.0.0.1:" + strconv.Itoa(port), port: port, key: key, model: model,
		// Its own transport: connections must end with the server, and nothing may go through a proxy.
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute}},
	}
}

// statusError is an answer other than 2xx.
type statusError struct {
	Method, Path string
	Status       int
	Body         string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("vLLM answered %d to %s %s: %s", e.Status, e.Method, e.Path, brief(e.Body))
}

// brief shortens an answer for an error message.
func brief(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 400 {
		return text[:400] + "…"
	}
	return text
}

// maxAnswer bounds what is read of one answer; log-probabilities of a long text are the largest.
const maxAnswer = 64 << 20

// do sends body, if any, as JSON and decodes the answer into out, if any.
func (c *client) do(ctx context.Context, method, path string, body, out any) error {
	var payload io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode the request for %s: %w", path, err)
		}
		payload = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, payload)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s %s: read the answer: %w", method, path, err)
	}
	if resp.StatusCode/100 != 2 {
		return &statusError{Method: method, Path: path, Status: resp.StatusCode, Body: string(data)}
	}
	if out == nil || len(data) == 0 {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%s %s: expected JSON, got %q: %w", method, path, brief(string(data)), err)
	}
	return nil
}

func (c *client) post(ctx context.Context, path string, body, out any) error {
	return c.do(ctx, http.MethodPost, path, body, out)
}

func (c *client) get(ctx context.Context, path string, out any) error {
	return c.do(ctx, http.MethodGet, path, nil, out)
}

func (c *client) close() { c.http.CloseIdleConnections() }

// offers is what a server says of itself.
type offers struct {
	Version     string
	Routes      map[string]bool
	MaxModelLen int64
	Reach       []string // memory that its worker can copy weights from; empty without the worker extension
	Machine     string   // where its worker runs; empty: not known
	Arithmetic  string   // how exactly it multiplies; empty: not known
	Device      string   // cuda, cpu, …; empty: not known
	Barred      []string // routes that must not be used now
}

// probe asks the server for its version, its routes and the length that it settled on.
func (c *client) probe(ctx context.Context) (offers, error) {
	var version struct {
		Version string `json:"version"`
	}
	if err := c.get(ctx, "/version", &version); err != nil {
		return offers{}, err
	}
	o := offers{Version: version.Version, Routes: map[string]bool{}}
	var api struct {
		Paths map[string]any `json:"paths"`
	}
	// A server started with --disable-fastapi-docs has no such page; then nothing is known to be missing.
	if err := c.get(ctx, "/openapi.json", &api); err == nil {
		for path := range api.Paths {
			o.Routes[path] = true
		}
	}
	var models struct {
		Data []struct {
			MaxModelLen int64 `json:"max_model_len"`
		} `json:"data"`
	}
	if err := c.get(ctx, "/v1/models", &models); err != nil {
		return offers{}, err
	}
	for _, m := range models.Data {
		o.MaxModelLen = max(o.MaxModelLen, m.MaxModelLen)
	}
	return o, nil
}

// lacks says that the server is known not to have a route.
func (o offers) lacks(route string) bool {
	return (len(o.Routes) > 0 && !o.Routes[route]) || slices.Contains(o.Barred, route)
}

// require explains a missing route.
func (o offers) require(route, purpose string) error {
	if !o.lacks(route) {
		return nil
	}
	return &sdk.Error{
		Summary: fmt.Sprintf("vLLM %s has no route %s, which is needed to %s", o.Version, route, purpose),
		Detail:  "the server's /openapi.json does not list it",
		Remedy:  "use vLLM 0.11 or newer; or move weights with transport = \"restart\" in the sync block",
	}
}

// answer asks for one token. It proves what /health does not: that the whole way from the front end through the engine to the
// weights works. It stays at 200 while the engine is broken.
func (c *client) answer(ctx context.Context) error {
	body := map[string]any{"model": c.model, "prompt": []int{1}, "max_tokens": 1, "temperature": 0}
	var out struct {
		Choices []json.RawMessage `json:"choices"`
	}
	if err := c.post(ctx, "/v1/completions", body, &out); err != nil {
		return err
	}
	if len(out.Choices) != 1 {
		return fmt.Errorf("POST /v1/completions: expected one choice, got %d", len(out.Choices))
	}
	return nil
}

// logprobs returns log p(token[i] | token[:i]) for i ≥ 1.
func (c *client) logprobs(ctx context.Context, tokens []int) ([]float64, error) {
	if len(tokens) < 2 {
		return nil, fmt.Errorf("log-probabilities of %d tokens: at least 2 are needed, since nothing precedes the first", len(tokens))
	}
	body := map[string]any{"model": c.model, "prompt": tokens, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
	var out struct {
		Choices []struct {
			PromptLogprobs []map[string]struct {
				Logprob *float64 `json:"logprob"`
			} `json:"prompt_logprobs"`
		} `json:"choices"`
	}
	if err := c.post(ctx, "/v1/completions", body, &out); err != nil {
		return nil, err
	}
	if len(out.Choices) != 1 || len(out.Choices[0].PromptLogprobs) != len(tokens) {
		return nil, fmt.Errorf("POST /v1/completions: expected log-probabilities of %d prompt tokens, got another number; this vLLM may not offer prompt_logprobs", len(tokens))
	}
	values := make([]float64, 0, len(tokens)-1)
	for i, at := range out.Choices[0].PromptLogprobs[1:] {
		entry, ok := at[strconv.Itoa(tokens[i+1])]
		if !ok || entry.Logprob == nil {
			return nil, fmt.Errorf("POST /v1/completions: prompt position %d has no log-probability of token %d", i+1, tokens[i+1])
		}
		values = append(values, *entry.Logprob)
	}
	return values, nil
}

// call runs a method on every worker of the server. A method that the worker does not have is errNoMethod.
func (c *client) call(ctx context.Context, method string, kwargs map[string]any) (json.RawMessage, error) {
	body := map[string]any{"method": method}
	if len(kwargs) > 0 {
		body["kwargs"] = kwargs
	}
	var out struct {
		Results json.RawMessage `json:"results"`
	}
	if err := c.post(ctx, "/collective_rpc", body, &out); err != nil {
		return nil, err
	}
	return out.Results, nil
}

// paused asks whether the server is paused, and takes "no such route" for no.
func (c *client) paused(ctx context.Context) (bool, error) {
	var out struct {
		Paused bool `json:"is_paused"`
	}
	err := c.get(ctx, "/is_paused", &out)
	if status := (*statusError)(nil); errors.As(err, &status) && status.Status == http.StatusNotFound {
		return false, nil
	}
	return out.Paused, err
}
