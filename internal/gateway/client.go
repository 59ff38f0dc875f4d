package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/recipe-rl/recipe/internal/errorbody"
	"github.com/recipe-rl/recipe/internal/peer"
)

// Client drives a gateway in another process by its control routes.
type Client struct {
	base  string
	token string
	http  *http.Client
}

// NewClient makes a client for the gateway at baseURL, for example "http://127.0.0.1:9001" (a trailing /v1 is dropped).
// Calls last as long as their context allows.
func NewClient(baseURL, adminToken string) *Client {
	base := strings.TrimSuffix(strings.TrimSuffix(baseURL, "/"), "/v1")
	return &Client{base: base, token: adminToken,
		http: &http.Client{Transport: peer.Transport(base, &http.Transport{MaxIdleConnsPerHost: 8,
			IdleConnTimeout: time.Minute})}}
}

// Close frees idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// RemoteError is an error that a gateway answered with. It matches ErrHeld, ErrNotHeld, ErrMismatch and ErrNoSleep with
// errors.Is, and is one of disk.Full where its disk is.
type RemoteError struct {
	Status  int    // HTTP status
	Kind    string // for programs
	Message string // for people
}

func (e *RemoteError) Error() string { return e.Message }

// Is matches the errors that a caller decides by.
func (e *RemoteError) Is(target error) bool {
	switch e.Kind {
	case "held":
		return target == ErrHeld
	case "not_held":
		return target == ErrNotHeld
	case "mismatch":
		return target == ErrMismatch
	case "no_sleep":
		return target == ErrNoSleep
	case "disk_full":
		return target == syscall.ENOSPC // what package disk looks for
	}
	return false
}

// Status returns a view of the gateway.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, c.do(ctx, http.MethodGet, "status", nil, &s)
}

// Hold makes new requests wait; see Gateway.Hold. If ctx ends first, nothing is held.
func (c *Client) Hold(ctx context.Context, q HoldRequest) (Hold, error) {
	var h HoldStatus
	err := c.do(ctx, http.MethodPost, "hold", holdBody{q.ID, q.Mode, q.Lease.Seconds(), q.Drain.Seconds(), q.Reason}, &h)
	return Hold(h), err
}

// Resume ends a hold; see Gateway.Resume.
func (c *Client) Resume(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodPost, "resume", map[string]string{"id": id}, nil)
}

// Sleep makes the engines give their GPU's memory back under a hold; see Gateway.Sleep.
func (c *Client) Sleep(ctx context.Context, hold string, level int) error {
	return c.do(ctx, http.MethodPost, "sleep", map[string]any{"hold": hold, "level": level}, nil)
}

// ExpectUpdates announces what later weight updates do with requests in flight; see Gateway.ExpectUpdates.
func (c *Client) ExpectUpdates(ctx context.Context, m Mode) error {
	return c.do(ctx, http.MethodPost, "updates", map[string]Mode{"mode": m}, nil)
}

// SetVersion sets the policy version that every replica serves; see Gateway.SetVersion.
func (c *Client) SetVersion(ctx context.Context, version int) error {
	return c.do(ctx, http.MethodPost, "version", map[string]int{"version": version}, nil)
}

// SetReplicaHealthy takes a replica out or in; see Gateway.SetReplicaHealthy.
func (c *Client) SetReplicaHealthy(ctx context.Context, id string, healthy bool, reason string) error {
	return c.do(ctx, http.MethodPost, "replica", map[string]any{"id": id, "healthy": healthy, "reason": reason}, nil)
}

// Admit loads the latest weights into a replica that is up and lets it take part; version is that of its weights, -1 if
// unknown. See Gateway.Admit.
func (c *Client) Admit(ctx context.Context, id string, version int) error {
	return c.do(ctx, http.MethodPost, "admit", map[string]any{"id": id, "version": version}, nil)
}

// UpdateWeights brings new weights to the replicas; see Gateway.UpdateWeights. The result is filled in also when it
// fails.
func (c *Client) UpdateWeights(ctx context.Context, u WeightUpdate) (UpdateResult, error) {
	var r UpdateResult
	return r, c.do(ctx, http.MethodPost, "weights", u, &r)
}

// Adopt has a gateway of which no replica is up take note of weights; see Gateway.Adopt.
func (c *Client) Adopt(ctx context.Context, u WeightUpdate) error {
	return c.do(ctx, http.MethodPost, "adopt", u, nil)
}

// Expect brings what an update whose Check.Later names it waits for; see Gateway.Expect.
func (c *Client) Expect(ctx context.Context, e Expectation) error {
	return c.do(ctx, http.MethodPost, "expect", e, nil)
}

// Logprobs asks every replica for the log-probabilities of a text; see Gateway.Logprobs. The answers of the others are
// filled in also when one fails.
func (c *Client) Logprobs(ctx context.Context, tokens []int) ([]ReplicaLogprobs, error) {
	var out struct {
		Replicas []ReplicaLogprobs `json:"replicas"`
	}
	err := c.do(ctx, http.MethodPost, "logprobs", map[string][]int{"token_ids": tokens}, &out)
	return out.Replicas, err
}

// Lookup finds the completion that ends these tokens; see Gateway.Lookup.
func (c *Client) Lookup(ctx context.Context, tokens []int) (LookupResult, error) {
	var out LookupResult
	return out, c.do(ctx, http.MethodPost, "lookup", map[string][]int{"tokens": tokens}, &out)
}

// LookupAll is Lookup for many sequences in one call; the results come in their order.
func (c *Client) LookupAll(ctx context.Context, sequences [][]int) ([]LookupResult, error) {
	var out struct {
		Results []LookupResult `json:"results"`
	}
	if sequences == nil {
		sequences = [][]int{}
	}
	err := c.do(ctx, http.MethodPost, "lookup", map[string][][]int{"sequences": sequences}, &out)
	if err == nil && len(out.Results) != len(sequences) {
		err = fmt.Errorf("gateway lookup: %d results for %d sequences", len(out.Results), len(sequences))
	}
	return out.Results, err
}

// do makes one call. The body of an error may hold a result too.
func (c *Client) do(ctx context.Context, method, route string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("gateway %s: request: %w", route, err)
		}
		body = bytes.NewReader(b)
	}
	return c.send(ctx, method, route, "application/json", body, out)
}

// send makes one call with a body of its own.
func (c *Client) send(ctx context.Context, method, route, contentType string, body io.Reader, out any) error {
	name, _, _ := strings.Cut(route, "?")
	req, err := http.NewRequestWithContext(ctx, method, c.base+"/recipe/v1/"+route, body)
	if err != nil {
		return fmt.Errorf("gateway %s: %w", name, err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", contentType)
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("gateway %s: %w; is the inference block up?", name, err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 256<<20))
	if err != nil {
		return fmt.Errorf("gateway %s: reading the answer: %w", name, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("gateway %s: %w", name, remoteError(resp.StatusCode, data, out))
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("gateway %s: answer: %w", name, err)
	}
	return nil
}

func remoteError(status int, data []byte, out any) error {
	var e struct {
		Error  apiErrorBody    `json:"error"`
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(data, &e); err != nil || e.Error.Message == "" {
		return &RemoteError{Status: status, Kind: "unknown",
			Message: fmt.Sprintf("HTTP %d: %s", status, errorbody.Text(data))}
	}
	remote := &RemoteError{Status: status, Kind: e.Error.Type, Message: e.Error.Message}
	if out != nil && len(e.Result) > 0 {
		if err := json.Unmarshal(e.Result, out); err != nil {
			return errors.Join(remote, fmt.Errorf("result: %w", err))
		}
	}
	return remote
}
