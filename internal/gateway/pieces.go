package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/tidwall/gjson"
)

// When weight updates let requests in flight continue, an answer may hold tokens of several versions, and an answer in
// one piece does not say which version sampled which token. So the gateway then asks the engine for a stream behind
// /generate, records the version of each piece as it does for streams of clients, and gives the client the answer in
// one piece. When updates wait for requests, or there are none, all tokens are of one version and nothing is streamed:
// a stream costs the gateway two to five times as much, and the engine an event for every few tokens.

// streamInterval is how many tokens the engine may put into one event; vLLM obeys since 0.32, others send as many as
// they were started with. It divides the cost of a stream, and as many tokens may be recorded with the version before
// their own.
const streamInterval = 8

// streamBytes says how much more of a stream is read than of an answer in one piece: each event repeats the fields
// around its tokens.
const streamBytes = 4

// errPieces reports that an engine's stream lacks parts of its answer.
var errPieces = errors.New("the events of the engine's stream do not make a whole answer")

// piecesMember makes a request for a stream of one for an answer in one piece.
func piecesMember() string { return `"stream":true,"stream_interval":` + strconv.Itoa(streamInterval) }

// maxUnusable is how many streams of a replica may be unusable in a row before it is asked for no more streams.
const maxUnusable = 3

// piecewiseLocked reports whether a call is to be asked of a replica as a stream: it is one of /generate, the version
// may change under it, and neither the call nor the replica has shown that it cannot be.
func (g *Gateway) piecewiseLocked(r *replica, c *call) bool {
	return c.generate != nil && !c.whole && !c.generate.perPrompt && // vLLM streams no log-probabilities of prompts
		crossing(g.expected) && r.unusable < maxUnusable
}

// crossing reports whether requests in flight continue with new weights.
func crossing(m Mode) bool { return m == ModeKeep || m == ModeNone }

// gather reads a stream to its end and makes one answer of it. Until then nothing has reached the client, so another
// replica may still take over. The error is errPieces if the stream ended well and cannot be used. f is released.
func (g *Gateway) gather(f *inFlight, c *call, resp *http.Response) (*answer, error) {
	defer func() { _ = resp.Body.Close() }()
	t := &streamRecorder{choices: map[int]*recordedChoice{}, full: true, gather: true, top: c.generate.topK > 0,
		limit: int(g.cfg.MaxResponseBytes)}
	t.follow(g, f)
	a := &answer{status: http.StatusOK, header: resp.Header, inFlight: f}
	read, err := g.recordAll(t, resp.Body)
	switch {
	case err != nil:
		err = fmt.Errorf("replica %s: reading the stream: %w", f.replica.ID, err)
	case t.failure != "": // as in an answer in one piece
		a.status, a.body = failureStatus(t.failure), []byte(t.failure)
		a.header = http.Header{"Content-Type": {"application/json"}}
	case t.bad != nil:
		err = fmt.Errorf("%w: replica %s: %w", errPieces, f.replica.ID, t.bad)
	case read > streamBytes*g.cfg.MaxResponseBytes:
		err = fmt.Errorf("%w: replica %s: it is longer than %d bytes", errPieces, f.replica.ID,
			streamBytes*g.cfg.MaxResponseBytes)
	default:
		a.done = t.completion()
		if bad := c.generate.check(a.done); bad != nil {
			err = fmt.Errorf("%w: replica %s: %w", errPieces, f.replica.ID, bad)
		} else {
			g.usable(f)
			g.met.together.Add(1)
			err = g.settle(f)
		}
	}
	a.low, a.high = g.release(f)
	if err != nil {
		return nil, err
	}
	return a, nil
}

// recordAll has a recorder read all of a stream, or as much as it takes to see that it cannot be used.
func (g *Gateway) recordAll(t *streamRecorder, src io.Reader) (read int64, err error) {
	buf := make([]byte, 16<<10)
	for t.bad == nil && read <= streamBytes*g.cfg.MaxResponseBytes {
		n, err := src.Read(buf)
		t.write(buf[:n])
		read += int64(n)
		if errors.Is(err, io.EOF) {
			return read, nil
		}
		if err != nil {
			return read, err
		}
	}
	return read, nil
}

// failureStatus is the HTTP status that belongs to a failure which an engine reports inside a stream.
func failureStatus(event string) int {
	if code := int(gjson.Get(event, "error.code").Int()); code >= 400 && code < 600 {
		return code
	}
	return http.StatusInternalServerError
}

// completion is what was recorded, as if it had come in one piece. It is bad if a completion has no end.
func (t *streamRecorder) completion() *completion {
	c := &completion{id: t.id, tokens: t.tokens(), version: UnknownVersion, versionMax: UnknownVersion,
		spanLow: UnknownVersion, spanHigh: UnknownVersion}
	exact := true
	for _, h := range t.choices {
		ch := h.choice
		ch.text = `"` + string(h.words) + `"`
		if ch.finish == "null" {
			c.bad = fmt.Errorf("completion %d has no end", ch.index)
		}
		exact = exact && h.exact
		c.choices = append(c.choices, ch)
	}
	if exact {
		c.fromSpans()
	}
	return c
}

// stopStreaming makes a call be sent without streaming from now on, because the engine refused to stream it or, with
// err, the stream was unusable. A replica whose streams are always unusable is asked for none any more, else every
// request would be answered twice.
func (g *Gateway) stopStreaming(f *inFlight, c *call, err error) {
	c.whole = true
	if err == nil {
		return
	}
	g.mu.Lock()
	f.replica.unusable++
	given, version := f.replica.unusable == maxUnusable, g.version
	g.mu.Unlock()
	if given {
		g.emit(Event{Kind: EventRangeOnly, Replica: f.replica.ID, Version: version, Err: err, Message: "replica " +
			f.replica.ID + ": of answers that span a weight update only the range of versions is known: " + err.Error()})
	}
}

// usable records that a stream of a replica could be used.
func (g *Gateway) usable(f *inFlight) {
	g.mu.Lock()
	f.replica.unusable = 0
	g.mu.Unlock()
}
