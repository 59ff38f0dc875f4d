// Package trajectory is a client of the trajectory API: what a trainer needs to fetch batches, and what an
// environment needs to post groups. It speaks to recipe's own server and, but for leases and policy versions, to any
// deployment of Atropos's run-api.
package trajectory

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/bounded"
	"github.com/recipe-rl/recipe/internal/errorbody"
	"github.com/recipe-rl/recipe/internal/peer"
	"github.com/recipe-rl/recipe/internal/redact"
	"github.com/recipe-rl/recipe/sdk/trace"
)

// Client talks to one trajectory API. It is safe for concurrent use.
type Client struct {
	base       string
	token      string
	http       *http.Client
	timeout    time.Duration
	calls      Retry
	batches    Retry
	wait       func(ctx context.Context, d time.Duration, what string) error
	above      int       // bytes from which posted bodies are compressed; 0: never
	encoding   *Encoding // nil: none
	envPolling time.Duration
	most       int64 // bytes of an answer
}

// Option changes a Client.
type Option func(*Client) error

// WithToken sends a bearer token. A URL of the form http://host:port/t/<token> needs none.
func WithToken(token string) Option {
	return func(c *Client) error { c.token = token; return nil }
}

// WithTimeout bounds each attempt of a call (default 10 s; batches and posts of large groups may need 30 or 60).
func WithTimeout(d time.Duration) Option {
	return func(c *Client) error {
		if d <= 0 {
			return fmt.Errorf("trajectory client: the timeout is %s, expected more than 0, such as 10s", d)
		}
		c.timeout = d
		return nil
	}
}

// WithRetry sets how registrations, posts and acknowledgements are repeated (DefaultCallRetry).
func WithRetry(r Retry) Option { return func(c *Client) error { c.calls = r; return nil } }

// WithBatchRetry sets how Batch polls (DefaultBatchRetry).
func WithBatchRetry(r Retry) Option { return func(c *Client) error { c.batches = r; return nil } }

// WithHTTPClient replaces the HTTP client.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) error { c.http = h; return nil } }

// WithWait replaces the waiting between attempts, for tests.
func WithWait(wait func(ctx context.Context, d time.Duration, what string) error) Option {
	return func(c *Client) error { c.wait = wait; return nil }
}

// MostAnswer is how many bytes the answer of a server may have after decompression.
const MostAnswer = 2 << 30

// Encoding compresses bodies. Decompress nil: replies are not asked for in this encoding; else it
// returns at most MostAnswer bytes.
type Encoding struct {
	Name       string // as in Content-Encoding
	Compress   func(body []byte) ([]byte, error)
	Decompress func(io.Reader) ([]byte, error)
}

// WithGzip compresses posted bodies of at least this many bytes; 0 never does, which is right on one machine.
func WithGzip(above int) Option {
	return WithEncoding(above, Encoding{Name: "gzip", Compress: compress})
}

// WithEncoding compresses posted bodies of at least this many bytes, and asks for compressed batches: zstd.Encoding of
// package sdk/trajectory/zstd is the one to use with recipe's server on another machine. 0 never compresses.
func WithEncoding(above int, e Encoding) Option {
	return func(c *Client) error {
		c.above, c.encoding = above, &e
		if above <= 0 {
			c.encoding = nil
		}
		return nil
	}
}

// New makes a client of the API at baseURL, such as http://127.0.0.1:8000 or https://host/api. It does not connect.
func New(baseURL string, options ...Option) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf(
			"trajectory client: the address is %q, expected a URL such as http://127.0.0.1:8000",
			redact.Text(baseURL),
		)
	}
	c := &Client{base: strings.TrimRight(baseURL, "/"), timeout: 10 * time.Second,
		calls: DefaultCallRetry(), batches: DefaultBatchRetry(), wait: sleep, envPolling: time.Second, most: MostAnswer}
	for _, o := range options {
		if err := o(c); err != nil {
			return nil, err
		}
	}
	if c.http == nil {
		c.http = &http.Client{Transport: Transport(baseURL, c.token, http.DefaultTransport.(*http.Transport).Clone())}
	}
	return c, nil
}

// Transport prepares t for an API at baseURL and returns it: with a token to send, also one in the path of the URL, a
// server on loopback must belong to this user or root. A server without a token may be anyone's.
func Transport(baseURL, token string, t *http.Transport) *http.Transport {
	if u, err := url.Parse(baseURL); token == "" && (err != nil || !strings.HasPrefix(u.Path, "/t/")) {
		return t
	}
	return peer.Transport(baseURL, t)
}

// Check makes sure that a trajectory API answers, once, within the timeout. Call it before anything expensive.
func (c *Client) Check(ctx context.Context) (Status, error) { return c.Status(ctx) }

// Status asks for the step and the queue.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.once(ctx, http.MethodGet, "/status", nil, &s)
}

// Info asks for what the trainer has registered.
func (c *Client) Info(ctx context.Context) (i Info, err error) {
	return i, c.once(ctx, http.MethodGet, "/info", nil, &i)
}

// Register announces a trainer and returns its id. It is repeated while the server is not up yet.
func (c *Client) Register(ctx context.Context, r Registration) (uuid string, err error) {
	var out struct {
		UUID json.Number `json:"uuid"`
	}
	if err := c.repeat(ctx, http.MethodPost, "/register", r, &out); err != nil {
		return "", err
	}
	if out.UUID == "" {
		return "", &Error{
			Op:     "POST /register",
			URL:    redact.Text(c.base),
			Reason: BadReply,
			Status: http.StatusOK,
			Detail: "the reply has no uuid",
		}
	}
	return out.UUID.String(), nil
}

// Batch polls for the next batch. With a lease it is yours for that long: Ack it when the step is done, or another
// trainer gets it; lease 0 takes it for good. It returns nil and no error when none was complete after all attempts.
func (c *Client) Batch(ctx context.Context, lease time.Duration) (*Batch, error) {
	path := "/batch"
	if lease > 0 {
		path += "?lease=" + strconv.FormatFloat(lease.Seconds(), 'f', -1, 64)
	}
	var last error
	for n := range max(1, c.batches.Attempts) {
		if n > 0 {
			if err := c.wait(ctx, c.batches.delay(n-1), "asking for a batch again"); err != nil {
				return nil, errors.Join(last, err)
			}
		}
		batch, err := c.batch(ctx, path)
		if batch != nil {
			return batch, nil
		}
		var failure *Error
		if errors.As(err, &failure) && !failure.transient() || ctx.Err() != nil {
			return nil, err
		}
		last = err
	}
	return nil, last
}

func (c *Client) batch(ctx context.Context, path string) (*Batch, error) {
	var out batchReply
	if err := c.once(ctx, http.MethodGet, path, nil, &out); err != nil {
		return nil, err
	}
	if out.Status == "error" { // HTTP 200: a client that only looks at the batch would wait for ever
		return nil, &Error{
			Op:     "GET /batch",
			URL:    redact.Text(c.base),
			Reason: Unregistered,
			Status: http.StatusOK,
			Detail: out.Message,
		}
	}
	if len(out.Groups)+len(out.Unreadable) == 0 {
		return nil, nil
	}
	return &out.Batch, nil
}

// Ack says that a leased batch has been trained on and is never to be handed out again. It may be repeated. The error
// has the reason LeaseLost when the lease had run out and the batch went to another trainer.
func (c *Client) Ack(ctx context.Context, id string) error {
	return c.repeat(ctx, http.MethodPost, "/batch/"+url.PathEscape(id)+"/ack", nil, nil)
}

// Release gives a leased batch back unused.
func (c *Client) Release(ctx context.Context, id string) error {
	return c.repeat(ctx, http.MethodPost, "/batch/"+url.PathEscape(id)+"/release", nil, nil)
}

// Trained reports what was computed for a batch, acknowledged or not. It tries once: the report is for people only.
func (c *Client) Trained(ctx context.Context, id string, t Trained) error {
	return c.once(ctx, http.MethodPost, "/batch/"+url.PathEscape(id)+"/trained", t, nil)
}

// Keep is the word of a sync block for answers in flight that go on with the new weights.
const Keep = "keep"

// PolicyUpdate is what the server may be told of the policy that is trained.
type PolicyUpdate struct {
	Version int64 `json:"version"`
	// MaxStaleness is how many versions older the policy that sampled a group may be; nil: nothing is said of it. The
	// server holds to the tighter of this limit and its own.
	MaxStaleness *int64 `json:"max_staleness,omitempty"`
	// InFlight is what happens to answers in flight when new weights come, in the words of a sync block; empty: nothing
	// is said of it. With Keep environments may sample a second batch ahead.
	InFlight string `json:"in_flight,omitempty"`
}

// UpdatePolicy tells the server of the policy.
func (c *Client) UpdatePolicy(ctx context.Context, u PolicyUpdate) error {
	return c.repeat(ctx, http.MethodPost, "/policy_version", u, nil)
}

// SetPolicyVersion tells the server which policy version the trainer has reached, so that it can drop groups that are
// too old and measure staleness.
func (c *Client) SetPolicyVersion(ctx context.Context, version int64) error {
	return c.UpdatePolicy(ctx, PolicyUpdate{Version: version})
}

// SetPolicy is SetPolicyVersion together with how many versions older the policy that sampled a group may be. The
// server holds to the tighter of this limit and its own.
func (c *Client) SetPolicy(ctx context.Context, version, maxStaleness int64) error {
	return c.UpdatePolicy(ctx, PolicyUpdate{Version: version, MaxStaleness: &maxStaleness})
}

// Policy is what the server knows of the policy that is trained.
type Policy struct {
	Version int64 `json:"version"`
	// TrainerWaits: the trainer has asked for a batch, and none could be formed since.
	TrainerWaits bool   `json:"trainer_waits"`
	MaxStaleness *int64 `json:"max_staleness"` // how many versions old a group may be; nil: as old as it comes
	InFlight     string `json:"in_flight"`     // Keep: answers in flight go on when new weights come
}

// Policy asks for it.
func (c *Client) Policy(ctx context.Context) (p Policy, err error) {
	return p, c.once(ctx, http.MethodGet, "/policy_version", nil, &p)
}

// RegisterEnv announces an environment. The server accepts none before the trainer has asked for its first batch:
// until then it asks again, soon at first, for the two begin together, and then every second, for as long as ctx lives.
func (c *Client) RegisterEnv(ctx context.Context, r EnvRegistration) (EnvWelcome, error) {
	for wait := c.envPolling / 32; ; wait = min(2*wait, c.envPolling) {
		var w EnvWelcome
		if err := c.repeat(ctx, http.MethodPost, "/register-env", r, &w); err != nil {
			return w, err
		}
		if w.Status == "success" {
			return w, nil
		}
		if err := c.wait(ctx, wait, "registering the environment again: the trainer has not asked for "+
			"a batch yet"); err != nil {
			return w, err
		}
	}
}

// DisconnectEnv says goodbye, so that the environment's weight and minimum no longer count.
func (c *Client) DisconnectEnv(ctx context.Context, id int) error {
	var out struct{ Status, Error string }
	if err := c.repeat(ctx, http.MethodPost, "/disconnect-env", map[string]int{"env_id": id}, &out); err != nil {
		return err
	}
	if out.Status != "success" {
		return &Error{
			Op:     "POST /disconnect-env",
			URL:    redact.Text(c.base),
			Reason: ClientError,
			Status: http.StatusOK,
			Detail: out.Error,
		}
	}
	return nil
}

// EnvStatus asks for what an environment steers by.
func (c *Client) EnvStatus(ctx context.Context, id int) (s EnvStatus, err error) {
	return s, c.once(ctx, http.MethodGet, "/status-env", map[string]int{"env_id": id}, &s)
}

// Post hands in one group. When it returns without an error the group is safe. Attempts that the client repeats carry
// one Idempotency-Key, so that recipe's server stores the group once, even if it was killed before it could answer;
// run-api knows no such key and may then hold the group twice. A
// trace that ctx carries (package trace) goes with it. After an error the group may or may not have arrived.
func (c *Client) Post(ctx context.Context, g *Group) (r Receipt, err error) {
	return r, c.repeat(ctx, http.MethodPost, "/scored_data", g, &r, newKey())
}

// PostList hands in several groups at once: all of them, or none. It repeats itself as Post does.
func (c *Client) PostList(ctx context.Context, groups []*Group) error {
	return c.repeat(ctx, http.MethodPost, "/scored_data_list", groups, nil, newKey())
}

// header is one to send with every attempt of a call.
type header struct{ name, value string }

// newKey names a post, so that the server can tell a repeated one from another of the same content.
func newKey() header { return header{"Idempotency-Key", rand.Text()} }

// repeat makes a call, again while it fails in a way that may pass.
func (c *Client) repeat(ctx context.Context, method, path string, in, out any, headers ...header) error {
	var last error
	for n := range max(1, c.calls.Attempts) {
		if n > 0 {
			if err := c.wait(ctx, c.calls.delay(n-1), "trying "+method+" "+path+" again"); err != nil {
				return errors.Join(last, err)
			}
		}
		last = c.once(ctx, method, path, in, out, headers...)
		var failure *Error
		if last == nil || !errors.As(last, &failure) || !failure.transient() || ctx.Err() != nil {
			return last
		}
	}
	return last
}

// once makes a call.
func (c *Client) once(ctx context.Context, method, path string, in, out any, headers ...header) error {
	op := method + " " + strings.SplitN(path, "?", 2)[0]
	request, cancel, err := c.request(ctx, method, path, in)
	if err != nil {
		return fmt.Errorf("preparing %s: %w", op, err)
	}
	defer cancel()
	for _, h := range headers {
		request.Header.Set(h.name, h.value)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return &Error{Op: op, URL: redact.Text(c.base), Reason: classify(err), Err: withoutURL(err)}
	}
	defer func() { _ = response.Body.Close() }()
	body, err := c.readBody(response)
	if err != nil {
		reason := classify(err)
		if errors.Is(err, bounded.ErrTooLarge) {
			reason = BadReply // it is as large when it is asked for again
		}
		return &Error{Op: op, URL: redact.Text(c.base), Reason: reason, Status: response.StatusCode, Err: err}
	}
	if response.StatusCode != http.StatusOK {
		return c.refused(op, response.StatusCode, body)
	}
	if out == nil {
		return nil
	}
	decode := func(text []byte) error { return json.Unmarshal(text, out) }
	if own, ok := out.(interface{ decode(text []byte) error }); ok {
		decode = own.decode
	}
	if err := decode(body); err != nil {
		return &Error{Op: op, URL: redact.Text(c.base), Reason: BadReply, Status: http.StatusOK, Err: err}
	}
	return nil
}

func (c *Client) refused(op string, status int, body []byte) error {
	reason := ClientError
	switch {
	case status >= 500:
		reason = ServerError
	case status == http.StatusConflict:
		reason = LeaseLost
	}
	return &Error{Op: op, URL: redact.Text(c.base), Reason: reason, Status: status, Detail: errorbody.Text(body)}
}

func (c *Client) request(
	ctx context.Context,
	method, path string,
	in any,
) (*http.Request, context.CancelFunc, error) {
	var body []byte
	encoding := ""
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return nil, nil, err
		}
		if c.encoding != nil && len(body) >= c.above {
			if body, err = c.encoding.Compress(body); err != nil {
				return nil, nil, err
			}
			encoding = c.encoding.Name
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		cancel()
		return nil, nil, err
	}
	if in != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if encoding != "" {
		request.Header.Set("Content-Encoding", encoding)
	}
	if c.encoding != nil && c.encoding.Decompress != nil {
		request.Header.Set("Accept-Encoding", c.encoding.Name)
	}
	trace.Inject(ctx, request.Header.Set)
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	return request, cancel, nil
}

func compress(body []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(body); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// readBody reads a reply. net/http decompresses only what it asked for itself.
func (c *Client) readBody(r *http.Response) ([]byte, error) {
	if e := c.encoding; e != nil && e.Decompress != nil && r.Header.Get("Content-Encoding") == e.Name {
		return e.Decompress(r.Body)
	}
	return bounded.ReadAll(r.Body, c.most)
}
