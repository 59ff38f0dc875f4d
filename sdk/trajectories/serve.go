package trajectories

import (
	"net"
	"net/http"

	"github.com/recipe-rl/recipe/internal/web"
)

// NewServer returns an HTTP server that bounds what a client may hold and how long it may stall. The limits ask for
// progress: a large body on a slow connection may take as long as it needs.
func NewServer(h http.Handler) *http.Server { return web.NewServer(h) }

// Serve accepts connections of l until the server is closed, at most as many as the files that the process may open
// allow.
func Serve(server *http.Server, l net.Listener) error { return web.Serve(server, l) }
