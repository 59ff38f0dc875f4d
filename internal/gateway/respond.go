package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// Headers of the gateway.
const (
	// HeaderVersion is the oldest policy version that may have sampled the answer.
	HeaderVersion = "X-Recipe-Policy-Version"
	// HeaderVersionMax is the newest one; it differs if a weight update happened during the generation. A stream carries
	// it in the trailer, when it is known.
	HeaderVersionMax = "X-Recipe-Policy-Version-Max"
	// HeaderClient names the client, so that status can list clients separately. The path prefix /c/NAME/ does the same.
	HeaderClient = "X-Recipe-Client"
)

// stall is how long a client may take for one piece of a body. A client that has stopped reading would otherwise keep a
// stream in flight, and every weight update waiting for it.
const stall = time.Minute

// respond writes an answer to the client and records its completions.
func (g *Gateway) respond(w http.ResponseWriter, c *call, a *answer) {
	h := w.Header()
	for k, v := range a.header {
		if !dropped(k) && k != "Set-Cookie" {
			h[k] = v
		}
	}
	if a.rest != nil {
		g.stream(w, c, a)
		return
	}
	if a.status == http.StatusOK && c.method == http.MethodPost {
		done := readCompletion(gjson.ParseBytes(a.body), shape{choices: isCompletion(c.path)})
		c.tokensOut = done.tokens
		own := a.ownVersion(done)
		if done.bad == nil { // otherwise it is not recorded
			g.keep(c, done.choices, a.low, a.high)
		}
		if c.repeat > 1 {
			a.body = repeatChoices(a.body, c.repeat)
		}
		if !own {
			a.body = stamp(a.body, a.low, a.high)
		}
	}
	a.write(w)
}

// ownVersion takes the versions that the engine itself reports, which are more exact, and says whether its answer
// already holds them in the gateway's format.
func (a *answer) ownVersion(c *completion) bool {
	if c.version == UnknownVersion {
		if c.spanLow != UnknownVersion {
			a.low, a.high = c.spanLow, c.spanHigh
		}
		return false
	}
	a.low, a.high = c.version, c.versionMax
	return true
}

// write sends an answer whose body is complete.
func (a *answer) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set(HeaderVersion, strconv.Itoa(a.low))
	h.Set(HeaderVersionMax, strconv.Itoa(a.high))
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(stall))
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // a client that is gone needs no answer
}

// stamp puts the versions at the head of a JSON object; anything else stays as it is.
func stamp(body []byte, low, high int) []byte {
	return splice(body, fmt.Sprintf(`"policy_version":%d,"policy_version_max":%d`, low, high), nil, "")
}

// stream copies an answer as it comes.
func (g *Gateway) stream(w http.ResponseWriter, c *call, a *answer) {
	defer func() { _ = a.rest.Close() }()
	f := a.inFlight
	g.mu.Lock()
	low := f.low
	g.mu.Unlock()
	h := w.Header()
	h.Set(HeaderVersion, strconv.Itoa(low))
	if !c.early.begun() {
		h.Set("Trailer", HeaderVersionMax)
		w.WriteHeader(a.status)
	}
	out := http.NewResponseController(w)
	recorder := newStreamRecorder(c, isStream(a.header))
	recorder.follow(g, f)
	events := &wholeEvents{to: w}
	to := io.Writer(w)
	if isStream(a.header) {
		to = events
	}
	err := copyFlushed(to, out, a.body, a.rest, recorder)
	aborted := errors.Is(context.Cause(f.ctx), errAborted)
	low, high := g.release(f)
	h.Set(HeaderVersionMax, strconv.Itoa(high))
	if err == nil {
		_ = events.rest() // a client that is gone needs no answer
		g.recordStream(c, recorder, low, high)
		return
	}
	if !isStream(a.header) || events.torn {
		panic(http.ErrAbortHandler) // an answer that was cut short must not look complete
	}
	failed := &refusal{http.StatusServiceUnavailable, "engine_failed",
		g.withoutAddresses("the inference engine ended its answer early: " + err.Error()), 0}
	if aborted {
		failed.kind, failed.reason = "aborted", "aborted for a weight update; send the request again"
	}
	_, _ = w.Write(failed.event(c.path))
	_ = out.Flush()
}

// copyFlushed writes head and then everything of src at once, each piece flushed, so that no token waits in a buffer.
func copyFlushed(w io.Writer, out *http.ResponseController, head []byte, src io.Reader,
	recorder *streamRecorder) error {
	buf := make([]byte, 16<<10)
	piece := head
	for {
		if len(piece) > 0 {
			recorder.write(piece)
			_ = out.SetWriteDeadline(time.Now().Add(stall)) // not offered by test recorders
			if _, err := w.Write(piece); err != nil {
				return fmt.Errorf("writing to the client: %w", err)
			}
			if err := out.Flush(); err != nil {
				return fmt.Errorf("writing to the client: %w", err)
			}
		}
		n, err := src.Read(buf)
		piece = buf[:n]
		if n == 0 && err == io.EOF {
			return nil
		}
		if n == 0 && err != nil {
			return err
		}
	}
}

// isCompletion selects the routes whose answers hold completions.
func isCompletion(path string) bool {
	return path == "/v1/completions" || path == "/v1/chat/completions" || strings.HasSuffix(path, "/generate")
}
