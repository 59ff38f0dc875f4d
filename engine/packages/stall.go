package packages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// minProgress is how many bytes a registry must send in each period: less is a stalled transfer.
const minProgress = 1 << 10

// stallTransport ends requests whose answer, or whose body, stops arriving. A large archive on a slow line may take any
// time, so there is no limit on the total.
type stallTransport struct {
	base  http.RoundTripper
	stall time.Duration
}

type stalledError struct {
	url   string
	stall time.Duration
}

func (e *stalledError) Error() string {
	return fmt.Sprintf("%s sent less than %d bytes in %s", e.url, minProgress, e.stall)
}

// RoundTrip implements http.RoundTripper.
func (t *stallTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	// Not the query: that of a redirect to a storage service contains a token.
	late := &stalledError{url: req.URL.Host + req.URL.Path, stall: t.stall}
	body := &watchedBody{cancel: cancel, stall: t.stall, ctx: ctx, late: late}
	if req.Body == nil { // the answer to an upload comes after it, and that may take any time
		body.start()
	}
	resp, err := t.base.RoundTrip(req.WithContext(ctx))
	if err != nil {
		body.stop()
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	body.start()
	body.ReadCloser = resp.Body
	resp.Body = body
	return resp, nil
}

// watchedBody is the body of an answer; reading fails when it stalls.
type watchedBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	stall  time.Duration
	late   error

	mu      sync.Mutex
	timer   *time.Timer
	arrived int // since the period began
}

// start begins the first period, unless it has begun.
func (b *watchedBody) start() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timer == nil {
		b.timer = time.AfterFunc(b.stall, b.expire)
	}
}

// expire ends the request unless enough has arrived in the period, in which case the next one begins.
func (b *watchedBody) expire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.arrived < minProgress {
		b.cancel(b.late)
		return
	}
	b.arrived = 0
	b.timer.Reset(b.stall)
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	b.arrived += n
	b.mu.Unlock()
	if cause := context.Cause(b.ctx); err != nil && !errors.Is(err, io.EOF) && cause != nil {
		err = cause
	}
	return n, err
}

func (b *watchedBody) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timer != nil {
		b.timer.Stop()
	}
}

// Close implements io.Closer.
func (b *watchedBody) Close() error {
	b.stop()
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}
