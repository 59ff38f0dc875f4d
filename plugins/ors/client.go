package ors

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/errorbody"
	"github.com/recipe-rl/recipe/internal/redact"
)

// client speaks the Open Reward Standard with one server.
type client struct {
	url    string
	config Config
	http   *http.Client
}

const (
	// requestTimeout bounds one request that runs no tool. The server itself answers within 25 seconds that a session is
	// still starting.
	requestTimeout = time.Minute
	startingFirst  = 2 * time.Second
	resumes        = 5 // how often a call whose stream has broken is taken up again
	resumeFirst    = 500 * time.Millisecond
)

// statusError is an answer other than 200.
type statusError struct {
	route    string
	code     int
	text     string
	starting bool // the session's setup is not done
	after    time.Duration
}

func (e *statusError) Error() string { return fmt.Sprintf("%s: HTTP %d: %s", e.route, e.code, e.text) }

func brief(text []byte) string {
	s := strings.Join(strings.Fields(string(text)), " ")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + " …"
	}
	return s
}

func (c *client) limit() int64 { return int64(c.config.MaxResponseSizeMB * (1 << 20)) }

// send sends a request; the caller closes the body of the answer, which is one with status 200.
func (c *client) send(ctx context.Context, method, route, session string, body any) (*http.Response, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("%s: encode the request: %w", route, err)
	}
	q, err := http.NewRequestWithContext(ctx, method, c.url+route, bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", route, err)
	}
	q.Header.Set("Content-Type", "application/json")
	for name, value := range map[string]string{"X-Session-ID": session, "X-API-Key": c.config.APIKey,
		"X-Deployment": c.config.Deployment} {
		if value != "" {
			q.Header.Set(name, value)
		}
	}
	if len(c.config.Secrets) > 0 && strings.HasPrefix(route, "/create") {
		if err := c.secrets(q.Header); err != nil {
			return nil, err
		}
	}
	r, err := c.http.Do(q)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", route, redact.Text(err.Error()))
	}
	if r.StatusCode == http.StatusOK {
		return r, nil
	}
	defer func() { _ = r.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(r.Body, 4096))
	e := &statusError{route: route, code: r.StatusCode, text: errorbody.Text(text),
		starting: r.Header.Get("X-Backend-State") == "starting"}
	if s, err := strconv.Atoi(r.Header.Get("Retry-After")); err == nil {
		e.after = time.Duration(s) * time.Second
	}
	return nil, e
}

func (c *client) secrets(h http.Header) error {
	all := map[string]map[string]string{}
	for name, value := range c.config.Secrets {
		all[name] = map[string]string{"value": value}
	}
	data, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("encode the secrets: %w", err)
	}
	h.Set("X-Secrets", base64.StdEncoding.EncodeToString(data))
	return nil
}

// ask sends a request and decodes the answer into out. While the session is starting it asks again.
func (c *client) ask(ctx context.Context, method, route, session string, body, out any) error {
	deadline := time.Now().Add(c.config.StartingTimeout)
	for {
		err := c.once(ctx, method, route, session, body, out)
		var s *statusError
		if !errors.As(err, &s) || !s.starting {
			return err
		}
		wait := startingFirst
		if s.after > 0 {
			wait = min(s.after, 10*time.Second)
		}
		if time.Now().Add(wait).After(deadline) {
			return fmt.Errorf("the session has not started within starting_timeout = %s: %w", c.config.StartingTimeout, err)
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *client) once(ctx context.Context, method, route, session string, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := c.send(ctx, method, route, session, body)
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(r.Body, c.limit()+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s: read the answer: %w", route, err)
	case int64(len(data)) > c.limit():
		return fmt.Errorf("%s: %w = %.4g", route, errTooLarge, c.config.MaxResponseSizeMB)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%s: the answer does not follow the standard: %s", route, brief(data))
	}
	return nil
}

// failure is an error that the server reports in a stream: the code of the environment has raised it.
type failure struct{ text string }

func (f *failure) Error() string { return "the environment reports: " + f.text }

// stream sends a request whose answer is a stream, and returns its result and the id of the task that made it. A stream
// that breaks is taken up again by that id; before the id is known that would run the request twice, so it fails.
func (c *client) stream(ctx context.Context, route, session string, body map[string]any,
) (result, task string, err error) {
	for attempt := 0; ; attempt++ {
		result, err = c.follow(ctx, route, session, body, &task)
		var f *failure
		var s *statusError
		switch {
		case err == nil, errors.As(err, &f), errors.As(err, &s), errors.Is(err, errTooLarge), ctx.Err() != nil,
			task == "":
			return result, task, err
		case attempt >= resumes:
			return result, task, fmt.Errorf("taken up again %d times: %w", resumes, err)
		}
		body["task_id"] = task
		if err := pause(ctx, resumeFirst<<attempt); err != nil {
			return "", task, err
		}
	}
}

// follow reads one stream. Each piece must come within heartbeat_timeout of the one before.
func (c *client) follow(ctx context.Context, route, session string, body any, task *string) (string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(c.config.HeartbeatTimeout, func() {
		cancel(fmt.Errorf("%s: the server was silent for heartbeat_timeout = %s", route, c.config.HeartbeatTimeout))
	})
	defer silent.Stop()
	cause := func(err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	r, err := c.send(ctx, http.MethodPost, route, session, body)
	if err != nil {
		return "", cause(err)
	}
	defer func() { _ = r.Body.Close() }()
	var pieces strings.Builder
	var failed error
	err = events(&progressReader{r.Body, silent, c.config.HeartbeatTimeout}, c.limit(), func(e event) bool {
		switch e.name {
		case "task_id":
			*task = strings.TrimSpace(e.data)
		case "chunk", "end":
			pieces.WriteString(e.data)
		case "error":
			failed = &failure{brief([]byte(e.data))}
		}
		return e.name != "end" && e.name != "error"
	})
	switch {
	case failed != nil:
		return "", failed
	case errors.Is(err, errTooLarge):
		return "", fmt.Errorf("%s: %w = %.4g", route, err, c.config.MaxResponseSizeMB)
	case err != nil:
		return "", cause(fmt.Errorf("%s: the stream ended before its end event: %w", route, err))
	}
	return pieces.String(), nil
}

// progressReader restarts the timeout at each piece that arrives.
type progressReader struct {
	io.Reader
	alarm *time.Timer
	after time.Duration
}

func (r *progressReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.alarm.Reset(r.after)
	}
	return n, err
}
