// Package weightclient drives a trainer by its control endpoint: how a sync block takes weights from it.
package weightclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/disk"
	"github.com/recipe-rl/recipe/internal/peer"
	"github.com/recipe-rl/recipe/internal/weightserver"
	"github.com/recipe-rl/recipe/sdk"
)

// Client talks to one trainer. It is safe for concurrent use. Calls last as long as their context allows.
type Client struct {
	base  string
	token string
	http  *http.Client
}

// New makes a client of the endpoint at TrainerOutputs.ControlURL. It does not connect.
func New(controlURL, token string) *Client {
	return &Client{
		base: strings.TrimRight(controlURL, "/") + "/recipe/v1/", token: token,
		http: &http.Client{Transport: peer.Transport(controlURL, &http.Transport{MaxIdleConnsPerHost: 4,
			IdleConnTimeout: time.Minute})},
	}
}

// Close frees idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

var (
	// ErrOver reports that the trainer has ended: there will be no further publication.
	ErrOver = errors.New("the trainer is over")
	// ErrAway reports that the trainer's address does not answer: it has died, or is being started again.
	ErrAway = errors.New("the trainer does not answer")
	// ErrRefused reports that the trainer answered with an error; it follows in the text.
	ErrRefused = errors.New("the trainer refuses")
)

// Attach takes charge of the trainer's weights.
func (c *Client) Attach(ctx context.Context, a weightserver.Attach) (s weightserver.State, err error) {
	_, err = c.do(ctx, http.MethodPost, "attach", a, &s)
	return s, err
}

// Pending waits for a publication above a version; nil when there was none within the wait (at most a minute).
func (c *Client) Pending(ctx context.Context, after int64, wait time.Duration) (*weightserver.Publication, error) {
	query := url.Values{"after": {strconv.FormatInt(after, 10)}, "wait": {wait.String()}}
	var p weightserver.Publication
	status, err := c.do(ctx, http.MethodGet, "pending?"+query.Encode(), nil, &p)
	if err != nil || status == http.StatusNoContent {
		return nil, err
	}
	return &p, nil
}

// Publish makes the trainer write the weights of the pending publication. The error is one of disk.Full when there is
// no room for them.
func (c *Client) Publish(ctx context.Context, r weightserver.PublishRequest) (w sdk.Weights, err error) {
	_, err = c.do(ctx, http.MethodPost, "publish", r, &w)
	return w, err
}

// Logprobs returns log p(token[i] | token[:i]) for i ≥ 1 under the weights of the pending publication.
func (c *Client) Logprobs(ctx context.Context, tokens []int) ([]float64, error) {
	var out struct {
		Logprobs []float64 `json:"logprobs"`
	}
	if _, err := c.do(ctx, http.MethodPost, "logprobs", map[string][]int{"token_ids": tokens}, &out); err != nil {
		return nil, err
	}
	if len(out.Logprobs) != len(tokens)-1 {
		return nil, fmt.Errorf("trainer logprobs: got %d values for %d tokens, want one less than tokens",
			len(out.Logprobs), len(tokens))
	}
	return out.Logprobs, nil
}

// Tokenize returns the model's token ids of a text; none when the trainer cannot tell.
func (c *Client) Tokenize(ctx context.Context, text string) ([]int, error) {
	var out struct {
		TokenIDs []int `json:"token_ids"`
	}
	_, err := c.do(ctx, http.MethodPost, "tokenize", map[string]string{"text": text}, &out)
	return out.TokenIDs, err
}

// Taken tells the trainer that its weights have been read. Only a publication that says Ahead may be answered so.
func (c *Client) Taken(ctx context.Context, t weightserver.Taken) error {
	_, err := c.do(ctx, http.MethodPost, "taken", t, nil)
	return err
}

// Synced tells the trainer that inference serves the version, or why it does not.
func (c *Client) Synced(ctx context.Context, d weightserver.Done) error {
	_, err := c.do(ctx, http.MethodPost, "synced", d, nil)
	return err
}

// Turn tells the trainer that it has the GPU for itself, or why it cannot have it.
func (c *Client) Turn(ctx context.Context, t weightserver.TurnGiven) error {
	_, err := c.do(ctx, http.MethodPost, "turn", t, nil)
	return err
}

// State asks for the trainer's state.
func (c *Client) State(ctx context.Context) (s weightserver.State, err error) {
	_, err = c.do(ctx, http.MethodGet, "state", nil, &s)
	return s, err
}

// Pack has the trainer make the stream that brings a receiver from its weights to others.
func (c *Client) Pack(ctx context.Context, r weightserver.PackRequest) (p weightserver.Packed, err error) {
	_, err = c.do(ctx, http.MethodPost, "pack", r, &p)
	return p, err
}

// Stream reads a stream from a byte on. The caller closes it.
func (c *Client) Stream(ctx context.Context, name string, from int64) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"packed/"+url.PathEscape(name), nil)
	if err != nil {
		return nil, fmt.Errorf("trainer packed: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("trainer packed: %w: %w", ErrAway, err)
	}
	if response.StatusCode != http.StatusPartialContent {
		defer func() { _ = response.Body.Close() }()
		data, _ := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		return nil, fmt.Errorf("trainer packed: %w (HTTP %d): %s", ErrRefused, response.StatusCode, reason(data))
	}
	return response.Body, nil
}

// Sees asks whether the trainer's machine has a file.
func (c *Client) Sees(ctx context.Context, path string) (bool, error) {
	var f disk.File
	_, err := c.do(ctx, http.MethodPost, "sees", disk.File{Path: path}, &f)
	return f.Seen, err
}

// maxAnswer bounds an answer.
const maxAnswer = 16 << 20

func (c *Client) do(ctx context.Context, method, route string, in, out any) (status int, err error) {
	name, _, _ := strings.Cut(route, "?")
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return 0, fmt.Errorf("trainer %s: encode the request: %w", name, err)
		}
		body = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+route, body)
	if err != nil {
		return 0, fmt.Errorf("trainer %s: %w", name, err)
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	response, err := c.http.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return 0, fmt.Errorf("trainer %s: %w", name, ctx.Err())
		}
		return 0, fmt.Errorf("trainer %s: %w: %w", name, ErrAway, err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return 0, fmt.Errorf("trainer %s: %w: read the answer: %w", name, ErrAway, err)
	}
	switch response.StatusCode {
	case http.StatusNoContent:
		return response.StatusCode, nil
	case http.StatusGone:
		return response.StatusCode, fmt.Errorf("trainer %s: %w", name, ErrOver)
	case http.StatusOK:
	case http.StatusInsufficientStorage:
		return response.StatusCode, fmt.Errorf("trainer %s: %w", name, disk.NoRoom(reason(data)))
	default:
		return response.StatusCode, fmt.Errorf("trainer %s: %w (HTTP %d): %s", name, ErrRefused, response.StatusCode,
			reason(data))
	}
	if out == nil {
		return response.StatusCode, nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return response.StatusCode, fmt.Errorf("trainer %s: read the answer: %w", name, err)
	}
	return response.StatusCode, nil
}

// reason is the text of an error's answer.
func reason(data []byte) string {
	var body struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(data, &body) == nil && body.Error != "" {
		return body.Error
	}
	return strings.TrimSpace(string(data))
}
