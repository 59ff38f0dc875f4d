// Package web is what all HTTP servers of recipe have in common: how long a client may take, and how much it may hold.
//
// A server of the standard library waits for ever for a body that does not come and for a client that does not read,
// so
// a few hundred idle connections stop it. The limits here ask for progress and not for a total time: a large body on a
// slow line may take as long as it needs, and a stream of tokens may pause for as long as its model thinks.
package web

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/recipe-rl/recipe/internal/openfiles"
)

// Limits are what a client may do to a server.
type Limits struct {
	Header      time.Duration // until the headers of a request are there, and the TLS handshake before them
	HeaderBytes int           // of the headers
	// in which at least StallBytes of a body must come, and a piece of an answer must be taken
	Stall       time.Duration
	StallBytes  int
	Idle        time.Duration // between two requests of a connection
	Connections int           // at a time; the next takes the place of one without a request, or waits
	waiting     int           // of them without a request; the next takes the place of one; 0: as Connections
}

// Defaults are the limits of every server that does not say otherwise.
func Defaults() Limits {
	return Limits{Header: 10 * time.Second, HeaderBytes: 64 << 10, Stall: 30 * time.Second, StallBytes: 1 << 10,
		Idle: 5 * time.Minute, Connections: 4096, waiting: share()}
}

// share is how many of this process's open files may be connections without a request, for each server: a process may
// have two, and needs files to answer requests.
func share() int {
	files, err := openfiles.Limit()
	if err != nil {
		return 0
	}
	return int(min(max(files/4, 16), 1<<20)) //nolint:gosec // it is in these bounds
}

// ErrStalled reports that a request's body stopped arriving. It means status 408.
var ErrStalled = errors.New("the request's body stopped coming")

// NewServer is a server with the default limits. Serve it with Serve.
func NewServer(h http.Handler) *http.Server { return Defaults().NewServer(h) }

// Serve is server.Serve with the default bound on connections.
func Serve(server *http.Server, ln net.Listener) error { return Defaults().Serve(server, ln) }

// NewServer is a server with these limits.
func (l Limits) NewServer(h http.Handler) *http.Server {
	return &http.Server{Handler: l.Handler(h), ReadHeaderTimeout: l.Header, MaxHeaderBytes: l.HeaderBytes,
		IdleTimeout: l.Idle, ConnContext: remember}
}

// Serve answers requests on a listener, on so many connections at a time.
func (l Limits) Serve(server *http.Server, ln net.Listener) error {
	return server.Serve(l.limit(server, ln))
}

// ServeTLS is Serve over TLS, or without it when there is no configuration. The handshake counts among the headers.
func (l Limits) ServeTLS(server *http.Server, ln net.Listener, config *tls.Config) error {
	if config == nil {
		return l.Serve(server, ln)
	}
	return server.Serve(tls.NewListener(l.limit(server, ln), config))
}

// limit bounds the connections, and has the server say in its log when the process has no open files left.
func (l Limits) limit(server *http.Server, ln net.Listener) net.Listener {
	var say func(string)
	if server.ErrorLog != nil {
		say = func(message string) { server.ErrorLog.Print(message) }
	}
	return newCrowd(openfiles.Wait(ln, say), l)
}

// Handler puts the limits on progress around a handler.
func (l Limits) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := placeOf(r)
		at.begin()
		defer at.end()
		control := http.NewResponseController(w)
		out := &answer{ResponseWriter: w, control: control, stall: l.Stall, at: at}
		out.arm(time.Now())
		if r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(out, r)
			out.arm(time.Now()) // what the standard library still has to flush
			return
		}
		in := &body{ReadCloser: r.Body, control: control, limits: l, at: at}
		r.Body = in
		next.ServeHTTP(out, r)
		out.arm(time.Now())
		if !in.over { // the standard library reads some of what the handler left
			_ = control.SetReadDeadline(time.Now().Add(min(l.Stall, 5*time.Second)))
		}
	})
}
