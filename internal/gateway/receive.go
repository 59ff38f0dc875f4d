package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/recipe-rl/recipe/internal/disk"
)

// Receiver takes weights that are sent to the gateway's machine as a stream of package delta (transport "delta").
type Receiver interface {
	// Held describes what there is already of weights, and of the stream that leads to them.
	Held(ctx context.Context, t Transfer) (Held, error)
	// Receive appends to a stream, from the byte at which it broke off. When it is complete, the weights are unpacked and
	// compared with their checksums: without an error they are here.
	Receive(ctx context.Context, t Transfer, body io.Reader) error
}

// Transfer names weights and the stream that brings them.
type Transfer struct {
	Digest string `json:"digest"`         // of the weights
	Stream string `json:"stream"`         // name; empty: none has been chosen yet
	Bytes  int64  `json:"bytes"`          // of the whole stream
	From   int64  `json:"from,omitempty"` // where the body begins in it
}

// Held is what a receiver has.
type Held struct {
	Complete bool   `json:"complete"`       // the weights are here
	Base     string `json:"base,omitempty"` // digest of the newest weights that are here; empty: none
	Received int64  `json:"received"`       // bytes of the stream
}

// errNoReceiver reports that the gateway takes no streams.
var errNoReceiver = errors.New("gateway: this gateway takes no weights by the transport delta")

func (g *Gateway) postHeld(r *http.Request, body []byte) (any, error) {
	var t Transfer
	if err := decode(body, &t); err != nil {
		return nil, err
	}
	if g.cfg.Receiver == nil {
		return nil, errNoReceiver
	}
	return g.cfg.Receiver.Held(r.Context(), t)
}

// receive takes a stream, which may be larger than any other body.
func (g *Gateway) receive(r *http.Request) (any, error) {
	if g.cfg.Receiver == nil {
		return nil, errNoReceiver
	}
	q := r.URL.Query()
	t := Transfer{Digest: q.Get("digest"), Stream: q.Get("stream")}
	var err, other error
	t.Bytes, err = strconv.ParseInt(q.Get("bytes"), 10, 64)
	t.From, other = strconv.ParseInt(q.Get("from"), 10, 64)
	if err := errors.Join(err, other); err != nil {
		return nil, fmt.Errorf("%w: bytes and from: %w", errBody, err)
	}
	return struct{}{}, g.cfg.Receiver.Receive(r.Context(), t, r.Body)
}

func (g *Gateway) postSees(_ *http.Request, body []byte) (any, error) {
	var f disk.File
	if err := decode(body, &f); err != nil {
		return nil, err
	}
	return f.Look(), nil
}

// Held asks what the gateway's machine has of weights, and of a stream that leads to them.
func (c *Client) Held(ctx context.Context, t Transfer) (h Held, err error) {
	return h, c.do(ctx, http.MethodPost, "held", t, &h)
}

// Receive sends the bytes of a stream from t.From on. The error is one of disk.Full when there is no room for them.
func (c *Client) Receive(ctx context.Context, t Transfer, body io.Reader) error {
	query := url.Values{"digest": {t.Digest}, "stream": {t.Stream}, "bytes": {strconv.FormatInt(t.Bytes, 10)},
		"from": {strconv.FormatInt(t.From, 10)}}
	return c.send(ctx, http.MethodPost, "receive?"+query.Encode(), "application/octet-stream", body, nil)
}

// Sees asks whether the gateway's machine has a file.
func (c *Client) Sees(ctx context.Context, path string) (bool, error) {
	var f disk.File
	err := c.do(ctx, http.MethodPost, "sees", disk.File{Path: path}, &f)
	return f.Seen, err
}
