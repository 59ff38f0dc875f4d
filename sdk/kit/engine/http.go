package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/recipe-rl/recipe/internal/errorbody"
	"github.com/recipe-rl/recipe/internal/peer"
)

// HTTP speaks JSON to one server on loopback. Clients of engines are made on it.
type HTTP struct {
	Title   string // of the engine, for errors
	Address Address
	client  *http.Client
}

// NewHTTP makes the transport of one client.
func NewHTTP(title string, a Address) *HTTP {
	// Its own transport: connections must end with the server, and nothing may go through a proxy.
	transport := peer.Transport(a.URL(), &http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute})
	return &HTTP{Title: title, Address: a, client: &http.Client{Transport: transport}}
}

// StatusError is an answer other than 2xx.
type StatusError struct {
	Title, Method, Path string
	Status              int
	Body                string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s answered %d to %s %s: %s", e.Title, e.Status, e.Method, e.Path, Brief(e.Body))
}

// Brief is the message of an answer, for an error.
func Brief(text string) string {
	return errorbody.Text([]byte(text))
}

// maxAnswer bounds what is read of one answer; log-probabilities of a long text are the largest.
const maxAnswer = 64 << 20

// cleanupTimeout bounds what CleanupContext is used for.
const cleanupTimeout = 30 * time.Second

// CleanupContext is for a call that resumes what an update has paused: it does not end when ctx does.
func CleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}

// Post sends body, if any, as JSON and decodes the answer into out, if any.
func (h *HTTP) Post(ctx context.Context, path string, body, out any) error {
	return h.do(ctx, http.MethodPost, path, body, out)
}

// Get decodes the answer into out, if any.
func (h *HTTP) Get(ctx context.Context, path string, out any) error {
	return h.do(ctx, http.MethodGet, path, nil, out)
}

// Metric adds up the samples of a metric on the server's page /metrics.
func (h *HTTP) Metric(ctx context.Context, name string) (float64, error) {
	data, err := h.exchange(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return 0, err
	}
	return SumMetric(bytes.NewReader(data), name)
}

// Metrics reads the samples of metrics from the server's page /metrics; see ReadMetrics.
func (h *HTTP) Metrics(ctx context.Context, names ...string) (map[string]Samples, error) {
	data, err := h.exchange(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return nil, err
	}
	return ReadMetrics(bytes.NewReader(data), names...)
}

// MaxModelLen is the longest sequence of the models that the server lists, in tokens.
func (h *HTTP) MaxModelLen(ctx context.Context) (int64, error) {
	var models struct {
		Data []struct {
			MaxModelLen int64 `json:"max_model_len"`
		} `json:"data"`
	}
	err := h.Get(ctx, "/v1/models", &models)
	longest := int64(0)
	for _, m := range models.Data {
		longest = max(longest, m.MaxModelLen)
	}
	return longest, err
}

// Complete asks a model for one token.
func (h *HTTP) Complete(ctx context.Context, model string, prompt any) error {
	body := map[string]any{"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0}
	var out struct {
		Choices []json.RawMessage `json:"choices"`
	}
	if err := h.Post(ctx, "/v1/completions", body, &out); err != nil {
		return err
	}
	if len(out.Choices) != 1 {
		return fmt.Errorf("POST /v1/completions: expected one choice, got %d", len(out.Choices))
	}
	return nil
}

// Close frees idle connections.
func (h *HTTP) Close() { h.client.CloseIdleConnections() }

func (h *HTTP) do(ctx context.Context, method, path string, body, out any) error {
	data, err := h.exchange(ctx, method, path, body)
	if err != nil || out == nil || len(data) == 0 {
		return err
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%s %s: expected JSON, got %q: %w", method, path, Brief(string(data)), err)
	}
	return nil
}

func (h *HTTP) exchange(ctx context.Context, method, path string, body any) ([]byte, error) {
	var payload io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode the request for %s: %w", path, err)
		}
		payload = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, h.Address.URL()+path, payload)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if h.Address.Key != "" {
		req.Header.Set("Authorization", "Bearer "+h.Address.Key)
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("%s %s: read the answer: %w", method, path, err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, &StatusError{Title: h.Title, Method: method, Path: path, Status: resp.StatusCode, Body: string(data)}
	}
	return data, nil
}
