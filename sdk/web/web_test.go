package web

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quick are short limits for tests. Those for headers and idle connections are the defaults: even what a test sends at
// once may take time on a busy machine.
func quick() Limits {
	l := Defaults()
	l.Stall = 300 * time.Millisecond
	return l
}

// serve starts a server and returns its address.
func serve(t *testing.T, l Limits, h http.HandlerFunc) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := l.NewServer(h)
	served := make(chan error, 1)
	go func() { served <- l.Serve(server, ln) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	return ln.Addr().String()
}

// dial connects with a deadline that only a server without limits reaches.
func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

func status(t *testing.T, c net.Conn) int {
	t.Helper()
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, r.Body)
	_ = r.Body.Close()
	return r.StatusCode
}

// readAll answers 408 to a body that stalls, else with the number of its bytes.
func readAll(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	switch {
	case errors.Is(err, ErrStalled):
		w.WriteHeader(http.StatusRequestTimeout)
	case err != nil:
		w.WriteHeader(http.StatusBadRequest)
	default:
		_, _ = fmt.Fprint(w, n)
	}
}

func TestHeadersThatDoNotComeEndTheConnection(t *testing.T) {
	t.Parallel()
	l := quick()
	l.Header = 200 * time.Millisecond
	c := dial(t, serve(t, l, readAll))
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nX-Slow:")
	if text, err := io.ReadAll(c); err != nil {
		t.Errorf("the connection lives on: read %q, %v", text, err)
	}
}

func TestABodyThatDoesNotComeIsATimeout(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]string{"nothing": "", "a little": "abc"} {
		c := dial(t, serve(t, quick(), readAll))
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"+begin)
		if got := status(t, c); got != http.StatusRequestTimeout {
			t.Errorf("%s: answered with %d, expected 408", name, got)
		}
	}
}

// Single bytes now and then do not count as progress.
func TestABodyThatTricklesIsATimeout(t *testing.T) {
	t.Parallel()
	c := dial(t, serve(t, quick(), readAll))
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				if _, err := c.Write([]byte("x")); err != nil {
					return
				}
			}
		}
	}()
	if got := status(t, c); got != http.StatusRequestTimeout {
		t.Errorf("answered with %d, expected 408", got)
	}
	close(stop)
	<-done
}

// A body that makes progress may take many times the window.
func TestASlowBodyThatMovesArrives(t *testing.T) {
	t.Parallel()
	l := quick()
	l.Stall = 4 * time.Second
	c := dial(t, serve(t, l, readAll))
	piece, pieces := strings.Repeat("x", l.StallBytes), 24
	_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", len(piece)*pieces)
	for range pieces { // more than two windows
		time.Sleep(l.Stall / 10)
		if _, err := io.WriteString(c, piece); err != nil {
			t.Fatal(err)
		}
	}
	if got := status(t, c); got != http.StatusOK {
		t.Errorf("answered with %d, expected 200", got)
	}
}

// The deadline of a body must not cut off the handler that has read it: the standard library continues reading in the
// background.
func TestAHandlerMayTakeLongAfterTheBody(t *testing.T) {
	t.Parallel()
	l := quick()
	c := dial(t, serve(t, l, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done():
			w.WriteHeader(http.StatusTeapot)
		case <-time.After(3 * l.Stall):
			_, _ = io.WriteString(w, "done")
		}
	}))
	for range 2 { // on one connection
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
		if got := status(t, c); got != http.StatusOK {
			t.Fatalf("answered with %d, expected 200", got)
		}
	}
}

// A stream may pause for longer than any window.
func TestAStreamMayPause(t *testing.T) {
	t.Parallel()
	l := quick()
	l.Stall = 500 * time.Millisecond
	c := dial(t, serve(t, l, func(w http.ResponseWriter, _ *http.Request) {
		for range 2 {
			_, _ = io.WriteString(w, "token\n")
			if err := http.NewResponseController(w).Flush(); err != nil {
				panic(http.ErrAbortHandler)
			}
			time.Sleep(3 * l.Stall)
		}
		_, _ = io.WriteString(w, "end\n")
	}))
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	if text, err := io.ReadAll(r.Body); err != nil || !strings.HasSuffix(string(text), "end\n") {
		t.Errorf("read %q, %v; expected the whole stream", text, err)
	}
}

func TestAClientThatDoesNotReadIsCutOff(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	c := dial(t, serve(t, quick(), func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(make([]byte, 64<<20)) // more than the kernel buffers for the two
		failed <- err
	}))
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	select {
	case err := <-failed:
		if err == nil {
			t.Error("64 MiB were written to a client that reads nothing")
		}
	case <-time.After(time.Minute):
		t.Error("the handler still waits for its client")
	}
}

func TestConnectionsBeyondTheLimitWait(t *testing.T) {
	t.Parallel()
	l := quick()
	l.Connections, l.Header = 2, 500*time.Millisecond
	address := serve(t, l, readAll)
	for range 2 {
		_, _ = io.WriteString(dial(t, address), "GET") // occupies its place until its headers are due
	}
	c := dial(t, address)
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if got := status(t, c); got != http.StatusOK {
		t.Errorf("answered with %d once there was room, expected 200", got)
	}
}

func TestLargeHeadersAreRefused(t *testing.T) {
	t.Parallel()
	c := dial(t, serve(t, quick(), readAll))
	go func() { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nX-Large: "+strings.Repeat("x", 1<<20)) }()
	if got := status(t, c); got != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("answered with %d, expected 431", got)
	}
}
