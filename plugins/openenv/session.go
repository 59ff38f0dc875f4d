package openenv

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/recipe-rl/recipe/internal/errorbody"
	"github.com/recipe-rl/recipe/internal/redact"
)

// session is one environment on the server. Its methods are called one after the other.
type session interface {
	reset(ctx context.Context, parameters map[string]any) (*result, error)
	step(ctx context.Context, action map[string]any) (*result, error)
	state(ctx context.Context) (json.RawMessage, error)
	// rpc calls a method of the environment's MCP tools.
	rpc(ctx context.Context, method string, parameters any) (json.RawMessage, error)
	close(ctx context.Context)
}

// result is what reset and step answer.
type result struct {
	Observation map[string]json.RawMessage `json:"observation"`
	Reward      reward                     `json:"reward"`
	Done        bool                       `json:"done"`
}

// reward is a number, true or false, or null, which counts as 0.
type reward float64

func (r *reward) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case "null", "false":
		*r = 0
		return nil
	case "true":
		*r = 1
		return nil
	}
	return json.Unmarshal(text, (*float64)(r))
}

func readResult(data []byte) (*result, error) {
	var r result
	if err := json.Unmarshal(data, &r); err != nil || r.Observation == nil {
		return nil, fmt.Errorf("want an object with observation, reward and done, got %s", brief(data))
	}
	return &r, nil
}

// serverError is what the server says is wrong.
type serverError struct {
	Message     string          `json:"message"`
	Code        string          `json:"code"`
	Errors      json.RawMessage `json:"errors"`
	MaxSessions int64           `json:"max_sessions"`
}

// The codes that matter here, of OpenEnv's WSErrorCode.
const (
	invalidAction = "VALIDATION_ERROR"
	execution     = "EXECUTION_ERROR"
	full          = "CAPACITY_REACHED"
)

func (e *serverError) Error() string {
	text := fmt.Sprintf("the server says %s: %s", e.Code, e.Message)
	if len(e.Errors) > 0 {
		text += " " + errorbody.Text(e.Errors)
	}
	return text
}

// Answer reports whether the environment itself refuses, and not a server that has no place just now.
func (e *serverError) Answer() bool { return e.Code != full }

func brief(text []byte) string {
	s := strings.Join(strings.Fields(string(text)), " ")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + " …"
	}
	return s
}

// dialer opens sessions.
type dialer struct {
	url     string
	config  Config
	http    *http.Client
	timeout time.Duration // of one answer
}

func (d *dialer) header() http.Header {
	h := http.Header{}
	for name, value := range d.config.Headers {
		h.Set(name, value)
	}
	return h
}

// limit is the largest message in bytes.
func (d *dialer) limit() int64 { return int64(d.config.MaxMessageSizeMB * (1 << 20)) }

func (d *dialer) open(ctx context.Context) (session, error) {
	if d.config.Transport == "http" {
		return &httpSession{d}, nil
	}
	connecting, cancel := context.WithTimeout(ctx, seconds(d.config.ConnectTimeoutS))
	defer cancel()
	conn, _, err := websocket.Dial(connecting, d.url+"/ws", //nolint:bodyclose // "You never need to close resp.Body"
		&websocket.DialOptions{HTTPHeader: d.header(), HTTPClient: d.http})
	if err != nil {
		return nil, fmt.Errorf("connect to %s/ws: %s", redact.Text(d.url), redact.Text(err.Error()))
	}
	conn.SetReadLimit(d.limit())
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &socket{conn: conn, timeout: d.timeout, limit: d.limit(), stop: stop, messages: make(chan []byte),
		ended: make(chan struct{})}
	go s.read(reading)
	return s, nil
}

// socket is a session over a web socket: it lasts as long as the connection.
type socket struct {
	conn    *websocket.Conn
	timeout time.Duration
	limit   int64
	stop    context.CancelFunc

	messages chan []byte
	ended    chan struct{}
	err      error // set before ended is closed
}

// read reads all the time, because the server's pings are answered only while something reads: one that gets no answer
// within 20 seconds closes the connection, and the model may take longer for its turn.
func (s *socket) read(ctx context.Context) {
	defer close(s.ended)
	for {
		_, data, err := s.conn.Read(ctx)
		if err != nil {
			s.err = err
			return
		}
		select {
		case s.messages <- data:
		case <-ctx.Done():
			s.err = ctx.Err()
			return
		}
	}
}

// call sends a message and returns the data of the answer, which must be of the type that is wanted.
func (s *socket) call(ctx context.Context, kind, wanted string, data any) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	message := map[string]any{"type": kind}
	if data != nil {
		message["data"] = data
	}
	text, err := json.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("%s: encode the message: %w", kind, err)
	}
	// A full server says so and closes at once: that answer counts even when nothing can be sent any more.
	sent := s.conn.Write(ctx, websocket.MessageText, text)
	select {
	case answer := <-s.messages:
		return readAnswer(kind, wanted, answer)
	case <-s.ended:
		return nil, s.broken(kind)
	case <-ctx.Done():
		if sent != nil {
			return nil, fmt.Errorf("%s: send the message: %w", kind, sent)
		}
		return nil, fmt.Errorf("%s: no answer within message_timeout_s = %v", kind, s.timeout.Seconds())
	}
}

// broken explains why the connection has ended.
func (s *socket) broken(kind string) error {
	if errors.Is(s.err, websocket.ErrMessageTooBig) {
		return fmt.Errorf("%s: the answer is larger than max_message_size_mb = %.4g", kind, float64(s.limit)/(1<<20))
	}
	return fmt.Errorf("%s: the server has closed the connection: %w", kind, s.err)
}

func readAnswer(kind, wanted string, text []byte) (json.RawMessage, error) {
	var a struct {
		Type string          `json:"type"`
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, fmt.Errorf("%s: the answer is no JSON object: %s", kind, brief(text))
	}
	switch a.Type {
	case wanted:
		return a.Data, nil
	case "error":
		e := &serverError{}
		if err := json.Unmarshal(a.Data, e); err != nil {
			return nil, fmt.Errorf("%s: the server reports an error that cannot be read: %s", kind, brief(text))
		}
		return nil, fmt.Errorf("%s: %w", kind, e)
	}
	return nil, fmt.Errorf("%s: want an answer of type %s, got %s", kind, wanted, brief(text))
}

func (s *socket) observed(ctx context.Context, kind string, data any) (*result, error) {
	answer, err := s.call(ctx, kind, "observation", data)
	if err != nil {
		return nil, err
	}
	r, err := readResult(answer)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	return r, nil
}

func (s *socket) reset(ctx context.Context, parameters map[string]any) (*result, error) {
	return s.observed(ctx, "reset", parameters)
}

func (s *socket) step(ctx context.Context, action map[string]any) (*result, error) {
	return s.observed(ctx, "step", action)
}

func (s *socket) state(ctx context.Context) (json.RawMessage, error) {
	return s.call(ctx, "state", "state", nil)
}

func (s *socket) rpc(ctx context.Context, method string, parameters any) (json.RawMessage, error) {
	answer, err := s.call(ctx, "mcp", "mcp", map[string]any{"jsonrpc": "2.0", "id": 1, "method": method,
		"params": parameters})
	if err != nil {
		return nil, err
	}
	var r struct {
		Result json.RawMessage `json:"result"`
		Error  *struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(answer, &r); err != nil {
		return nil, fmt.Errorf("%s: the answer is no JSON-RPC: %s", method, brief(answer))
	}
	if r.Error != nil {
		return nil, fmt.Errorf("%s: the server answered: %s", method, r.Error.Message)
	}
	return r.Result, nil
}

// closeWait is how long the server may take to end a session. Until it has, the session counts against its capacity.
const closeWait = 2 * time.Second

func (s *socket) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, closeWait)
	defer cancel()
	_ = s.conn.Write(ctx, websocket.MessageText, []byte(`{"type":"close"}`))
	select {
	case <-s.ended:
	case <-ctx.Done():
	}
	s.stop()
	_ = s.conn.CloseNow()
	<-s.ended
}

// httpSession is reset and step over HTTP, each of which the server answers with an environment of its own.
type httpSession struct{ *dialer }

func (s *httpSession) reset(ctx context.Context, parameters map[string]any) (*result, error) {
	return s.observed(ctx, "reset", parameters)
}

func (s *httpSession) step(ctx context.Context, action map[string]any) (*result, error) {
	return s.observed(ctx, "step", map[string]any{"action": action})
}

func (s *httpSession) observed(ctx context.Context, route string, body any) (*result, error) {
	answer, err := s.call(ctx, http.MethodPost, route, body)
	if err != nil {
		return nil, err
	}
	r, err := readResult(answer)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", route, err)
	}
	return r, nil
}

func (s *httpSession) state(ctx context.Context) (json.RawMessage, error) {
	return s.call(ctx, http.MethodGet, "state", nil)
}

func (s *httpSession) rpc(context.Context, string, any) (json.RawMessage, error) {
	return nil, errors.New("MCP tools need transport = \"websocket\"")
}

func (s *httpSession) close(context.Context) {}

// call asks one route of the server.
func (d *dialer) call(ctx context.Context, method, route string, body any) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("%s: encode the request: %w", route, err)
	}
	q, err := http.NewRequestWithContext(ctx, method, d.url+"/"+route, bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", route, err)
	}
	q.Header = d.header()
	q.Header.Set("Content-Type", "application/json")
	response, err := d.http.Do(q)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: no answer within message_timeout_s = %v", route, d.timeout.Seconds())
		}
		return nil, fmt.Errorf("%s: %s", route, redact.Text(err.Error()))
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, d.limit()+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: read the answer: %w", route, err)
	case int64(len(answer)) > d.limit():
		return nil, fmt.Errorf("%s: the answer is larger than max_message_size_mb = %.4g", route,
			d.config.MaxMessageSizeMB)
	case response.StatusCode == http.StatusUnprocessableEntity:
		return nil, fmt.Errorf("%s: %w", route, &serverError{Code: invalidAction, Message: "HTTP 422", Errors: answer})
	case response.StatusCode == http.StatusInternalServerError:
		return nil, fmt.Errorf("%s: %w", route,
			&serverError{Code: execution, Message: "HTTP 500: " + errorbody.Text(answer)})
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s: HTTP %d: %s", route, response.StatusCode, errorbody.Text(answer))
	}
	return answer, nil
}
