package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/engine/why"
	"github.com/recipe-rl/recipe/internal/peer"
	"github.com/recipe-rl/recipe/schema/addr"
)

// ErrNoEngine means that no engine is running for the run.
var ErrNoEngine = errors.New("no engine is running for this run")

// callTimeout bounds the calls that the engine answers at once. Calls that wait for a block are bounded only by their
// context.
const callTimeout = time.Minute

// Client talks to the engine of a run over its socket.
type Client struct {
	http *http.Client // with callTimeout
	wait *http.Client // without
	pid  int          // of the engine; 0: the system does not say
}

// Dial connects to the engine of the run in dir, or returns ErrNoEngine, or an error with a *SilentError.
func Dial(ctx context.Context, dir state.Dir) (*Client, error) {
	paths, err := socketPaths(dir)
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context) (net.Conn, error) { return dialAny(ctx, paths) }
	conn, err := dial(ctx)
	if stranger := (*peer.Error)(nil); errors.As(err, &stranger) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w (%s)", ErrNoEngine, dir)
	}
	pid, _ := peer.PID(conn) // it is for messages
	_ = conn.Close()
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
	c := &Client{http: &http.Client{Transport: t, Timeout: callTimeout}, wait: &http.Client{Transport: t}, pid: pid}
	if err := c.answersAtAll(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

var errNoSocket = errors.New("no engine of this user listens")

// dialAny connects to the first socket that this user's process listens on.
func dialAny(ctx context.Context, paths []string) (net.Conn, error) {
	// None: somebody else has made each folder in which the socket of a long path could lie.
	errs := []error{errNoSocket}
	for _, path := range paths {
		d := net.Dialer{Timeout: 2 * time.Second}
		conn, err := d.DialContext(ctx, "unix", path)
		if err == nil {
			if err = peer.Check(conn); err == nil {
				return conn, nil
			}
			_ = conn.Close()
		}
		errs = append(errs, fmt.Errorf("%s: %w", path, err))
	}
	return nil, errors.Join(errs...)
}

// Close closes the connection.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Identity returns which process the engine is.
func (c *Client) Identity(ctx context.Context) (Identity, error) {
	var i Identity
	return i, c.call(ctx, http.MethodGet, "/v1/engine", nil, &i)
}

// Status returns the run's record and its live blocks.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, c.call(ctx, http.MethodGet, "/v1/status", nil, &s)
}

// Heal makes the engine write the record again if another program has changed it.
func (c *Client) Heal(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/v1/heal", nil, nil)
}

// Output returns an output of the recipe as it is now, also a sensitive one.
func (c *Client) Output(ctx context.Context, name string) (json.RawMessage, error) {
	var value json.RawMessage
	return value, c.call(ctx, http.MethodPost, "/v1/output", outputRequest{name}, &value)
}

// Why returns the activities of every block and the stalls of the run.
func (c *Client) Why(ctx context.Context, req WhyRequest) (*why.Document, error) {
	var d why.Document
	if err := c.call(ctx, http.MethodPost, "/v1/why", req, &d); err != nil {
		return nil, err
	}
	return &d, nil
}

// Stop drains the run, or kills it.
func (c *Client) Stop(ctx context.Context, why string, kill bool) error {
	if kill { // a person who kills has waited long enough
		within, cancel := context.WithTimeout(ctx, orderWithin)
		defer cancel()
		err := c.call(within, http.MethodPost, "/v1/stop", orderRequest{Why: why, Kill: true}, nil)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return silent(c.pid, orderWithin)
		}
		return err
	}
	return c.call(ctx, http.MethodPost, "/v1/stop", orderRequest{Why: why, Kill: kill}, nil)
}

// Restart restarts one block.
func (c *Client) Restart(ctx context.Context, a addr.Block) error {
	return c.call(ctx, http.MethodPost, "/v1/restart", orderRequest{Address: a}, nil)
}

// Evaluate makes an environment evaluate the served policy on at most limit tasks of its held-out set (0: all), and
// waits for the result.
func (c *Client) Evaluate(ctx context.Context, a addr.Block, limit int) (*run.Evaluation, error) {
	var out run.Evaluation
	err := c.callWith(ctx, c.wait, http.MethodPost, "/v1/evaluate", orderRequest{Address: a, Limit: limit}, &out)
	return &out, err
}

// Checkpoint makes a trainer save a checkpoint now, and waits until it is on the disk.
func (c *Client) Checkpoint(ctx context.Context, a addr.Block) (*run.Saved, error) {
	var out run.Saved
	err := c.callWith(ctx, c.wait, http.MethodPost, "/v1/checkpoint", orderRequest{Address: a}, &out)
	return &out, err
}

// Pause pauses the run, or makes it go on, and waits until the steps in progress have ended.
func (c *Client) Pause(ctx context.Context, paused bool) error {
	return c.callWith(ctx, c.wait, http.MethodPost, "/v1/pause", orderRequest{Paused: paused}, nil)
}

// Plan asks the engine what applying the request would change on the live run.
func (c *Client) Plan(ctx context.Context, req Request) (*plan.Plan, error) {
	req, err := req.absolute()
	if err != nil {
		return nil, err
	}
	var p plan.Plan
	if err := c.call(ctx, http.MethodPost, "/v1/plan", applyRequest{Request: req}, &p); err != nil {
		return nil, err
	}
	return &p, nil
}

// Apply sends the request to the engine, which converges the live run if it still computes the approved plan.
func (c *Client) Apply(ctx context.Context, req Request, approved *plan.Plan) (*plan.Plan, error) {
	req, err := req.absolute()
	if err != nil {
		return nil, err
	}
	var p plan.Plan
	if err := c.call(ctx, http.MethodPost, "/v1/apply", applyRequest{Request: req, Approved: approved},
		&p); err != nil {
		return nil, err
	}
	return &p, nil
}

func (c *Client) call(ctx context.Context, method, path string, body, into any) error {
	return c.callWith(ctx, c.http, method, path, body, into)
}

func (c *Client) callWith(ctx context.Context, client *http.Client, method, path string, body, into any) error {
	var payload bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&payload).Encode(body); err != nil {
			return fmt.Errorf("call the engine: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, &payload)
	if err != nil {
		return fmt.Errorf("call the engine: %w", err)
	}
	resp, err := client.Do(req)
	if late := (net.Error)(nil); errors.As(err, &late) && late.Timeout() && ctx.Err() == nil {
		return silent(c.pid, client.Timeout)
	}
	if err != nil {
		return fmt.Errorf("call the engine: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		var f failure
		if err := json.NewDecoder(resp.Body).Decode(&f); err != nil {
			return fmt.Errorf("call the engine: unexpected answer %s", resp.Status)
		}
		switch f.Code {
		case "moved":
			return ErrMoved
		case "over":
			return run.ErrOver
		}
		return errors.New(f.Error)
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("read the engine's answer: %w", err)
	}
	return nil
}
