package web

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pipes is a listener on connections in memory, which work with the fake clock of synctest.
type pipes struct {
	dialed chan net.Conn
	closed sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	if c, ok := <-p.dialed; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p *pipes) Close() error   { p.closed.Do(func() { close(p.dialed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// serve runs a test with a server on a clock that advances only while all goroutines wait.
func serve(t *testing.T, l Limits, h http.HandlerFunc, test func(t *testing.T, dial func() net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server, listener := l.NewServer(h), &pipes{dialed: make(chan net.Conn)}
		served := make(chan error, 1)
		go func() { served <- l.Serve(server, listener) }()
		var dialed []net.Conn
		test(t, func() net.Conn {
			here, there := net.Pipe()
			listener.dialed <- there
			dialed = append(dialed, here)
			_ = here.SetDeadline(time.Now().Add(time.Hour)) // only a server without limits reaches it
			return here
		})
		for _, c := range dialed {
			_ = c.Close()
		}
		_ = server.Close()
		<-served
	})
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
	serve(t, Defaults(), readAll, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nX-Slow:")
		if text, err := io.ReadAll(c); err != nil {
			t.Errorf("the connection stays open: read %q, %v", text, err)
		}
	})
}

func TestABodyThatDoesNotComeIsATimeout(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]string{"nothing": "", "a little": "abc"} {
		serve(t, Defaults(), readAll, func(t *testing.T, dial func() net.Conn) {
			c := dial()
			_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"+begin)
			if got := status(t, c); got != http.StatusRequestTimeout {
				t.Errorf("%s: answered with %d, expected 408", name, got)
			}
		})
	}
}

// Single bytes now and then do not count as progress.
func TestABodyThatTricklesIsATimeout(t *testing.T) {
	t.Parallel()
	serve(t, Defaults(), readAll, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
		var trickling sync.WaitGroup
		trickling.Go(func() {
			for err := error(nil); err == nil; _, err = c.Write([]byte("x")) {
				time.Sleep(time.Second)
			}
		})
		if got := status(t, c); got != http.StatusRequestTimeout {
			t.Errorf("answered with %d, expected 408", got)
		}
		_ = c.Close()
		trickling.Wait()
	})
}

// A body that makes progress may take many times the window.
func TestASlowBodyThatMovesArrives(t *testing.T) {
	t.Parallel()
	l := Defaults()
	serve(t, l, readAll, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		piece, pieces := strings.Repeat("x", l.StallBytes), 24
		_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", len(piece)*pieces)
		for range pieces {
			time.Sleep(l.Stall * 9 / 10)
			if _, err := io.WriteString(c, piece); err != nil {
				t.Fatal(err)
			}
		}
		if got := status(t, c); got != http.StatusOK {
			t.Errorf("answered with %d, expected 200", got)
		}
	})
}

// The deadline of a body must not cut off the handler that has read it: the standard library continues reading in the
// background.
func TestAHandlerMayTakeLongAfterTheBody(t *testing.T) {
	t.Parallel()
	l := Defaults()
	handler := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done():
			w.WriteHeader(http.StatusTeapot)
		case <-time.After(3 * l.Stall):
			_, _ = io.WriteString(w, "done")
		}
	}
	serve(t, l, handler, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		for range 2 { // on one connection
			_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
			if got := status(t, c); got != http.StatusOK {
				t.Fatalf("answered with %d, expected 200", got)
			}
		}
	})
}

// A stream may pause for longer than any window.
func TestAStreamMayPause(t *testing.T) {
	t.Parallel()
	l := Defaults()
	handler := func(w http.ResponseWriter, _ *http.Request) {
		for range 2 {
			_, _ = io.WriteString(w, "token\n")
			if err := http.NewResponseController(w).Flush(); err != nil {
				panic(http.ErrAbortHandler)
			}
			time.Sleep(3 * l.Stall)
		}
		_, _ = io.WriteString(w, "end\n")
	}
	serve(t, l, handler, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Body.Close() }()
		if text, err := io.ReadAll(r.Body); err != nil || !strings.HasSuffix(string(text), "end\n") {
			t.Errorf("read %q, %v; expected the whole stream", text, err)
		}
	})
}

func TestAClientThatDoesNotReadIsCutOff(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	handler := func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(make([]byte, 1<<20))
		failed <- err
	}
	serve(t, Defaults(), handler, func(t *testing.T, dial func() net.Conn) {
		_, _ = io.WriteString(dial(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		time.Sleep(10 * time.Minute)
		if len(failed) == 0 {
			t.Fatal("the handler still waits for its client")
		}
		if err := <-failed; err == nil {
			t.Error("1 MiB was written to a client that reads nothing")
		}
	})
}

// Clients that open connections and say nothing, or a byte at a time, keep nobody out.
func TestSlowClientsLoseTheirPlace(t *testing.T) {
	t.Parallel()
	post := "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
	for _, c := range []struct {
		name, sends string
		least       time.Duration // until another client is answered
	}{
		{name: "silent", sends: ""},
		{name: "headers without an end", sends: "GET / HTTP/1.1\r\nX:"},
		{name: "between two requests", sends: "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
		{name: "a body that comes slowly", sends: post, least: Defaults().Header},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := Defaults()
			l.Connections = 2
			serve(t, l, readAll, func(t *testing.T, dial func() net.Conn) {
				stop, slow := make(chan struct{}), sync.WaitGroup{}
				for range 5 {
					conn := dial()
					go func() { _, _ = io.Copy(io.Discard, conn) }()
					_, _ = io.WriteString(conn, c.sends)
					slow.Go(func() { // a hundred bytes a second, for as long as the server takes them
						for c.sends == post {
							select {
							case <-time.After(time.Second):
							case <-stop:
								return
							}
							if _, err := conn.Write(bytes.Repeat([]byte("x"), l.StallBytes/10)); err != nil {
								return
							}
						}
					})
					if c.sends != post {
						synctest.Wait()
					}
				}
				begun := time.Now()
				conn := dial()
				_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
				got, took := status(t, conn), time.Since(begun)
				if got != http.StatusOK || took > 5*c.least {
					t.Errorf("answered with %d after %s", got, took)
				}
				close(stop)
				slow.Wait()
			})
		})
	}
}

// Clients that ask and take no answer keep others out no longer than slow bodies do.
func TestUnreadAnswersLoseTheirPlace(t *testing.T) {
	t.Parallel()
	l := Defaults()
	l.Connections = 2
	large := strings.Repeat("x", 1<<20)
	for name, handler := range map[string]http.HandlerFunc{
		"write": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, large) },
		"flush": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serve(t, l, handler, func(t *testing.T, dial func() net.Conn) {
				for range l.Connections {
					_, _ = io.WriteString(dial(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
					synctest.Wait()
				}
				begun := time.Now()
				conn := dial()
				_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
				if got, took := status(t, conn), time.Since(begun); got != http.StatusOK || took > 2*l.Header {
					t.Errorf("answered with %d after %s", got, took)
				}
			})
		})
	}
}

// Connections without a request leave a server the open files that it needs: few are kept, however many come.
func TestSilentClientsLeaveOpenFiles(t *testing.T) {
	t.Parallel()
	if l := Defaults(); l.waiting <= 0 || l.waiting > 1<<20 {
		t.Errorf("%d connections without a request are kept; expected a share of the open files", l.waiting)
	}
	l := Defaults()
	l.waiting = 2
	var release chan struct{} // made where the fake clock is
	answer := func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			<-release
		}
	}
	for _, sends := range []string{"", "GET / HTTP/1.1\r\nX:", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"} {
		serve(t, l, answer, func(t *testing.T, dial func() net.Conn) {
			release = make(chan struct{})
			var answered, lost atomic.Int64
			for range 3 { // what is answered has no bound but that of all connections
				c := dial()
				_, _ = io.WriteString(c, "GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
				go func() {
					if r, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
						_ = r.Body.Close()
						answered.Add(1)
					}
				}()
				synctest.Wait()
			}
			for range 7 {
				c := dial()
				go func() {
					_, _ = io.Copy(io.Discard, c)
					lost.Add(1)
				}()
				_, _ = io.WriteString(c, sends)
				synctest.Wait()
			}
			if got := lost.Load(); got != 5 {
				t.Errorf("%q: of 7 connections without a request %d have lost their place, expected all but 2", sends, got)
			}
			close(release)
			synctest.Wait()
			if got := answered.Load(); got != 3 {
				t.Errorf("%q: %d of 3 requests were answered", sends, got)
			}
		})
	}
}

// A request that is being answered keeps its place, and a client beyond the limit waits until one is.
// Another user who opens connections and sends nothing ends none of this user's, however long they have been idle.
func TestOtherUsersLoseTheirPlaceFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limits := Defaults()
		limits.Connections, limits.waiting = 100, 8
		server, listener := limits.NewServer(http.HandlerFunc(readAll)), &pipes{dialed: make(chan net.Conn)}
		places := newCrowd(listener, limits)
		var others sync.Map
		places.foreign = func(c net.Conn) bool { _, ok := others.Load(c); return ok }
		served := make(chan error, 1)
		go func() { served <- server.Serve(places) }()
		var dialed []net.Conn
		dial := func(other bool) net.Conn {
			here, there := net.Pipe()
			if other {
				others.Store(there, true)
			}
			listener.dialed <- there
			dialed = append(dialed, here)
			synctest.Wait()
			time.Sleep(time.Millisecond) // each is older than the next
			return here
		}
		ours := dial(false)
		for range 40 {
			dial(true)
		}
		_ = ours.SetDeadline(time.Now().Add(time.Second))
		if _, err := io.WriteString(ours, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Errorf("this user's connection was ended: %v", err)
		} else if got := status(t, ours); got != http.StatusOK {
			t.Errorf("answered with %d, expected 200", got)
		}
		for _, c := range dialed {
			_ = c.Close()
		}
		_ = server.Close()
		<-served
	})
}

func TestAnsweredRequestsKeepTheirPlace(t *testing.T) {
	t.Parallel()
	l := Defaults()
	l.Connections = 2
	var release chan struct{} // made where the fake clock is
	answer := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			_, _ = io.WriteString(w, "begun")
			_ = http.NewResponseController(w).Flush()
			<-release
		}
	}
	serve(t, l, answer, func(t *testing.T, dial func() net.Conn) {
		release = make(chan struct{})
		begun := time.Now()
		var streams []net.Conn
		for range 2 {
			c := dial()
			_, _ = io.WriteString(c, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
			if got := status(t, c); got != http.StatusOK {
				t.Fatal(got)
			}
			streams = append(streams, c)
		}
		go func() {
			time.Sleep(10 * time.Minute)
			close(release)
		}()
		for _, c := range streams {
			go func() { _, _ = io.Copy(io.Discard, c) }()
		}
		c := dial()
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if got := status(t, c); got != http.StatusOK || time.Since(begun) < 10*time.Minute {
			t.Errorf("answered with %d after %s, expected 200 once a stream has ended", got, time.Since(begun))
		}
	})
}

func TestLargeHeadersAreRefused(t *testing.T) {
	t.Parallel()
	serve(t, Defaults(), readAll, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		go func() { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nX-Large: "+strings.Repeat("x", 1<<20)) }()
		if got := status(t, c); got != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("answered with %d, expected 431", got)
		}
	})
}

// exhausted is a listener of a process whose open files are all in use at first.
type exhausted struct {
	net.Listener
	left int
}

func (l *exhausted) Accept() (net.Conn, error) {
	if l.left--; l.left >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// The log of a server says once that there are no open files, and by what they are raised.
func TestAServerWithoutOpenFilesSaysSoInItsLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		server, listener := NewServer(http.NotFoundHandler()), &pipes{dialed: make(chan net.Conn)}
		server.ErrorLog = log.New(&said, "", 0)
		served := make(chan error, 1)
		go func() { served <- Serve(server, &exhausted{listener, 3}) }()
		here, there := net.Pipe()
		listener.dialed <- there
		_ = here.Close()
		_ = server.Close()
		<-served
		if strings.Count(said.String(), "\n") != 1 || !strings.Contains(said.String(), "ulimit -n 4096") {
			t.Errorf("it logged %q, want one line that says what to do", &said)
		}
	})
}
