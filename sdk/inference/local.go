package inference

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/recipe-rl/recipe/internal/web"
)

// Local serves an engine that lives in the plugin's own process, on a free port on loopback. An engine that embeds it
// has Wait and Stop.
type Local struct {
	server *http.Server
	url    string
	served chan struct{} // closed when the server has ended
	err    error         // why, once served is closed
}

// ServeLocal starts the server.
func ServeLocal(h http.Handler) (*Local, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for an engine on loopback: %w", err)
	}
	l := &Local{server: web.NewServer(h), url: "http://" + listener.Addr().String(), served: make(chan struct{})}
	go func() {
		defer close(l.served)
		if err := web.Serve(l.server, listener); !errors.Is(err, http.ErrServerClosed) {
			l.err = fmt.Errorf("serve an engine at %s: %w", l.url, err)
		}
	}()
	return l, nil
}

// URL is the root of the engine, for a Replica.
func (l *Local) URL() string { return l.url }

// Wait implements Engine.
func (l *Local) Wait() error {
	<-l.served
	return l.err
}

// Stop implements Engine. Requests that are still being answered are cut off.
func (l *Local) Stop(context.Context) error {
	err := l.server.Close()
	<-l.served
	return errors.Join(err, l.err)
}
