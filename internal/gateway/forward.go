package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// maxTries is how often a call is sent before the client gets its failure.
const maxTries = 3

// answer is a replica's answer. Either body holds all of it, or rest reads what follows body.
type answer struct {
	status    int
	header    http.Header
	body      []byte
	rest      io.ReadCloser
	done      *completion // what body would hold, if it was put together from a stream
	inFlight  *inFlight
	low, high int // versions, once all is read
}

// send brings a call to a replica and its answer back. It waits while requests are held, goes to another replica if one
// fails before it has begun to answer, and sends again what a hold aborted. The error is a *refusal or the client's
// context's.
func (g *Gateway) send(ctx context.Context, c *call) (*answer, error) {
	for try := 1; ; try++ {
		asked := g.cfg.Clock.Now()
		f, err := g.acquire(ctx, c)
		if err != nil {
			return nil, err
		}
		c.waited += f.began.Sub(asked)
		a, err := g.ask(f, c)
		aborted := errors.Is(context.Cause(f.ctx), errAborted)
		switch {
		case f.pieces && (errors.Is(err, errPieces) || err == nil && refused(a.status)):
			a.discard(g)
			g.stopStreaming(f, c, err)
			try--
			continue
		case err == nil && !retriable(a.status):
			return a, nil
		case ctx.Err() != nil:
			a.discard(g)
			return nil, context.Cause(ctx)
		case aborted:
			a.discard(g)
			try--
			c.waitUntil = time.Time{}
			continue
		case err == nil && try >= maxTries:
			return a, nil
		case err == nil:
			if err := g.secondOpinion(ctx, c, f, a); err != nil {
				return a, nil //nolint:nilerr // the engine's own error is the better answer
			}
		case neverArrived(err):
			g.suspectReplica(f.replica, err)
			try-- // bounded by HoldTimeout: acquire keeps the first wait's deadline
			g.startWaiting(c)
		case try >= maxTries:
			g.suspectReplica(f.replica, err)
			return nil, &refusal{http.StatusBadGateway, "engine_failed",
				fmt.Sprintf("the inference engine ended its answer early %d times, last: %v", try, err), 0}
		default:
			g.suspectReplica(f.replica, err)
			c.fail(f.replica)
		}
		g.met.retries.Add(1)
	}
}

func (c *call) fail(r *replica) {
	if c.failed == nil {
		c.failed = map[*replica]bool{}
	}
	c.failed[r] = true
}

// startWaiting starts the time after which a waiting request is refused.
func (g *Gateway) startWaiting(c *call) {
	if c.waitUntil.IsZero() {
		c.waitUntil = g.cfg.Clock.Now().Add(g.cfg.HoldTimeout)
	}
}

// retriable distinguishes an engine that is dying or overloaded from one that understood the request and refused it.
func retriable(status int) bool {
	return status >= 500 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported
}

// refused reports that the engine refuses the request, perhaps because it cannot stream what is asked for.
func refused(status int) bool {
	return status >= 400 && status < 500 || status == http.StatusNotImplemented
}

// neverArrived reports that nothing listens there, so the request cannot have had an effect.
func neverArrived(err error) bool {
	var op *net.OpError
	return errors.Is(err, syscall.ECONNREFUSED) || (errors.As(err, &op) && op.Op == "dial")
}

// secondOpinion prepares another try after a 5xx: at another replica if there is one, else once at the same one, after
// a pause in which a dying engine can end. Its error says that no try is left.
func (g *Gateway) secondOpinion(ctx context.Context, c *call, f *inFlight, a *answer) error {
	again := c.failed[f.replica]
	c.fail(f.replica)
	g.mu.Lock()
	other := g.leastLocked(nil, c.failed, g.cfg.Clock.Now())
	g.mu.Unlock()
	if other == nil && (again || len(c.failed) > 1) {
		return errors.New("all replicas failed, or the only one did twice")
	}
	if other == nil {
		pause := make(chan struct{})
		stop := g.cfg.Clock.AfterFunc(g.cfg.Cooldown/4, func() { close(pause) })
		defer stop()
		select {
		case <-pause:
		case <-ctx.Done():
		}
	}
	a.discard(g)
	return nil
}

// discard frees the resources of an answer that will not be read.
func (a *answer) discard(g *Gateway) {
	if a != nil && a.rest != nil {
		_ = a.rest.Close()
		g.release(a.inFlight)
	}
}

// ask sends a call to the replica of f. It has released f when all of the answer is in the answer's body; else whoever
// reads the rest does.
func (g *Gateway) ask(f *inFlight, c *call) (*answer, error) {
	req := g.request(f, c)
	resp, err := g.transport.RoundTrip(req)
	if err != nil {
		g.release(f)
		return nil, fmt.Errorf("replica %s: %w", f.replica.ID, err)
	}
	if resp.StatusCode < 500 {
		g.noteSign()
		resp.Body = &progressBody{ReadCloser: resp.Body, g: g}
	}
	a := &answer{status: resp.StatusCode, header: resp.Header, inFlight: f}
	limit := g.cfg.MaxResponseBytes
	if isStream(resp.Header) && c.generate != nil {
		return g.gather(f, c, resp)
	}
	if isStream(resp.Header) { // the first event commits to this answer; until then another replica may take over
		head := make([]byte, 4096)
		n, err := resp.Body.Read(head)
		if err != nil && !errors.Is(err, io.EOF) {
			_ = resp.Body.Close()
			g.release(f)
			return nil, fmt.Errorf("replica %s: reading the first event: %w", f.replica.ID, err)
		}
		a.body, a.rest = head[:n], resp.Body
		return a, nil
	}
	a.body, err = readUpTo(resp.Body, limit, resp.ContentLength)
	if err != nil {
		_ = resp.Body.Close()
		g.release(f)
		return nil, fmt.Errorf("replica %s: reading the answer: %w", f.replica.ID, err)
	}
	if int64(len(a.body)) > limit {
		a.rest = resp.Body
		return a, nil
	}
	_ = resp.Body.Close()
	err = g.settle(f)
	a.low, a.high = g.release(f)
	return a, err
}

// readUpTo reads all of r, or limit+1 bytes if there are more than limit.
func readUpTo(r io.Reader, limit, length int64) ([]byte, error) {
	var buf bytes.Buffer
	if length > 0 && length <= limit {
		buf.Grow(int(length) + bytes.MinRead)
	}
	if _, err := buf.ReadFrom(io.LimitReader(r, limit+1)); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func isStream(h http.Header) bool {
	return strings.HasPrefix(h.Get("Content-Type"), "text/event-stream")
}

// request makes the request to the replica: the gateway's key instead of the client's, and nothing compressed, since
// answers are stamped.
func (g *Gateway) request(f *inFlight, c *call) *http.Request {
	base := f.replica.base
	target := &url.URL{Scheme: base.Scheme, Host: base.Host, Path: base.Path + c.path, RawQuery: c.query}
	body := splice(c.body, "", c.edits, g.members(f, c))
	h := make(http.Header, len(c.header)+2)
	for k, v := range c.header {
		if !dropped(k) {
			h[k] = v
		}
	}
	if f.replica.APIKey != "" {
		h.Set("Authorization", "Bearer "+f.replica.APIKey)
	}
	if h.Get("Content-Type") == "" && len(body) > 0 {
		h.Set("Content-Type", "application/json")
	}
	req := &http.Request{
		Method: c.method, URL: target, Host: base.Host, Header: h, ContentLength: int64(len(body)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if len(body) > 0 {
		req.Body = io.NopCloser(bytes.NewReader(body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	return req.WithContext(f.ctx)
}

// members are what the gateway adds to a request.
func (g *Gateway) members(f *inFlight, c *call) string {
	salt := ""
	if g.cfg.CacheSalt != nil && g.cfg.CacheSalt() {
		salt = saltMember(c, g.salt(f))
	}
	switch {
	case !f.pieces:
		return salt
	case salt == "":
		return piecesMember()
	}
	return piecesMember() + "," + salt
}

// dropped selects headers that concern one connection, or the gateway, and are not passed on.
func dropped(key string) bool {
	switch key {
	case "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding",
		"Upgrade",
		"Proxy-Connection", "Accept-Encoding", "Authorization", "X-Api-Key", "Api-Key", "Content-Length", "Cookie",
		HeaderClient:
		return true
	}
	return false
}
