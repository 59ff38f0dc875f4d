package web

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// body is a request's body that must make progress.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	limits  Limits
	since   time.Time // when the window began in which StallBytes must come
	got     int       // in the window
	over    bool
	at      *place
}

// Read begins a new window when the one before has had its bytes. A window is moved on after a quarter of its time at
// the earliest: most bodies then set one deadline.
func (b *body) Read(p []byte) (int, error) {
	if now := time.Now(); b.since.IsZero() || b.got >= b.limits.StallBytes && now.Sub(b.since) > b.limits.Stall/4 {
		if b.since.IsZero() { // the first read may write: 100 Continue
			_ = b.control.SetWriteDeadline(now.Add(b.limits.Stall))
			b.at.change(func() { b.at.bodySince = now })
		}
		b.since, b.got = now, 0
		_ = b.control.SetReadDeadline(now.Add(b.limits.Stall)) // test recorders have none
	}
	n, err := b.ReadCloser.Read(p)
	b.got += n
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, fmt.Errorf("%w: fewer than %d bytes in %s", ErrStalled, b.limits.StallBytes, b.limits.Stall)
	case errors.Is(err, io.EOF) && !b.over:
		// From here on the standard library reads ahead to see whether the client leaves, for as long as the handler
		// takes.
		b.over = true
		b.at.change(func() { b.at.bodySince = time.Time{} })
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// pieceBytes is how much of an answer a client must take within the time of a stall.
const pieceBytes = 256 << 10

// answer is a response that its client must take.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	armed   time.Time
	at      *place
}

// arm gives the client time for the next piece.
func (a *answer) arm(now time.Time) {
	if a.armed.IsZero() || now.Sub(a.armed) > a.stall/4 {
		a.armed = now
		_ = a.control.SetWriteDeadline(now.Add(2 * a.stall))
	}
}

// Write implements http.ResponseWriter. It writes piece by piece, so that a large answer may take long if it moves.
func (a *answer) Write(p []byte) (done int, err error) {
	for {
		piece := p[done:min(done+pieceBytes, len(p))]
		a.arm(time.Now())
		n, err := a.at.write(func() (int, error) { return a.ResponseWriter.Write(piece) })
		if done += n; err != nil || done >= len(p) {
			return done, err
		}
	}
}

// FlushError lets http.ResponseController flush.
func (a *answer) FlushError() error {
	a.arm(time.Now())
	_, err := a.at.write(func() (int, error) { return 0, a.control.Flush() })
	return err
}

// Unwrap gives http.ResponseController everything else.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
