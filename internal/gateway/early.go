package gateway

import (
	"net/http"
	"time"
)

// silence is how long a client that asked for a stream gets nothing while its request waits. Clients give up after few
// seconds without a byte (OpenAI's and Anthropic's with their timeout, proxies with theirs).
const silence = 2 * time.Second

// early begins the answer to a request for a stream while the request still waits for an engine: it sends the header,
// and comments, which clients of server-sent events skip. Nil never begins.
type early struct {
	w *statusWriter
}

func newEarly(c *call, w *statusWriter) *early {
	if !c.stream || c.method != http.MethodPost || lengths[c.path] == nil {
		return nil
	}
	return &early{w}
}

func (e *early) begun() bool { return e != nil && e.w.begun }

// comment begins the answer if it has not begun, and shows the client that the connection lives.
func (e *early) comment() error {
	if !e.w.begun {
		h := e.w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
		h.Set("Trailer", HeaderVersion+", "+HeaderVersionMax) // not known yet
		e.w.WriteHeader(http.StatusOK)
	}
	out := http.NewResponseController(e.w)
	_ = out.SetWriteDeadline(time.Now().Add(stall))
	if _, err := e.w.Write([]byte(": waiting\n\n")); err != nil {
		return err
	}
	return out.Flush()
}
