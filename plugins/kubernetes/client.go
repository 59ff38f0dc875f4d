package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/recipe-rl/recipe/internal/bounded"
	"github.com/recipe-rl/recipe/internal/errorbody"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// requestTimeout bounds one request: the API server may be restarting.
const requestTimeout = 30 * time.Second

const (
	// maxAnswer is the most that is read of a list: one of thousands of nodes has a hundred megabytes.
	maxAnswer = 256 << 20
	// maxOne is the most that is read of another answer, about one resource.
	maxOne = maxItem
)

// client asks the API server.
type client struct {
	server    string
	namespace string
	who       *credentials
	http      *http.Client
}

// jobs is the path of the Jobs of the namespace, and core that of other resources.
func (c *client) jobs() string { return "/apis/batch/v1/namespaces/" + c.namespace + "/jobs" }

func (c *client) core(resource string) string {
	return "/api/v1/namespaces/" + c.namespace + "/" + resource
}

// apiError is what the API server says of a request that it refuses (kind Status).
type apiError struct {
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func (e *apiError) Error() string { return fmt.Sprintf("%s (%d %s)", e.Message, e.Code, e.Reason) }

func isCode(err error, code int) bool {
	var said *apiError
	return errors.As(err, &said) && said.Code == code
}

// do makes a request; the answer goes to out, which is a writer for text, else JSON.
func (c *client) do(ctx context.Context, method, path string, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := c.once(ctx, method, path, body, out)
	if isCode(err, http.StatusUnauthorized) && c.who.user.Exec != nil {
		c.who.forget()
		err = c.once(ctx, method, path, body, out)
	}
	return err
}

func (c *client) once(ctx context.Context, method, path string, body, out any) error {
	var send io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		send = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.server+path, send)
	if err != nil {
		return fmt.Errorf("%w: the address of the cluster: %w", executor.ErrUnreachable, err)
	}
	token, err := c.who.token(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", executor.ErrUnreachable, err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return fmt.Errorf("%w: %w", executor.ErrUnreachable, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode >= 300 {
		return refused(answer)
	}
	switch to := out.(type) {
	case nil:
		return nil
	case io.Writer:
		_, err = io.Copy(to, answer.Body)
	case interface{ read(io.Reader) error }:
		err = to.read(bounded.Reader(answer.Body, maxAnswer))
	default:
		err = json.NewDecoder(bounded.Reader(answer.Body, maxOne)).Decode(to)
	}
	if err != nil {
		return fmt.Errorf("read the answer of the cluster: %w", err)
	}
	return nil
}

// refused reads the Status that an answer other than success holds.
func refused(answer *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	said := &apiError{Code: answer.StatusCode}
	if json.Unmarshal(data, said) != nil || said.Message == "" {
		said.Code, said.Reason = answer.StatusCode, http.StatusText(answer.StatusCode)
		said.Message = errorbody.Text(data)
	}
	said.Message, said.Reason = errorbody.Limit(said.Message), errorbody.Limit(said.Reason)
	if said.Code >= 500 || said.Code == http.StatusTooManyRequests {
		return fmt.Errorf("%w: %w", executor.ErrUnreachable, said)
	}
	return said
}
