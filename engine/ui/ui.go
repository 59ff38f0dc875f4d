// Package ui serves the dashboard: a page, and what it shows of runs as JSON. It only reads run directories, so it
// works during a run, after it, and on a copy. What it writes there is what a long log comes to, if it may.
package ui

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/peer"
	"github.com/recipe-rl/recipe/internal/web"
)

// built is the page, which page/build.mjs makes from page/src.
//
//go:embed built
var built embed.FS

// Options configure a Server.
type Options struct {
	// Runs lists the run directories to show, by name. It is asked again when the page lists runs.
	Runs func() (map[string]state.Dir, error)
	// Token, when set, is required of every request: once as ?token=, then as the cookie that this sets.
	Token string
	// Hosts are the names and addresses under which the page may be asked for, beside those of loopback.
	Hosts []string
	// TLS is set when the page is served with it: the cookie is not sent without.
	TLS *tls.Config
}

// Server serves the dashboard. Close it.
type Server struct {
	opts Options
	page fs.FS
	ctx  context.Context
	stop context.CancelFunc
	// blocks asks blocks of live runs for their metrics. It follows no redirection, and uses no proxy.
	blocks *http.Client

	mu      sync.Mutex
	runs    map[string]*run
	streams []chan struct{} // of the streams that are open, the oldest first; closed to end one
	wait    sync.WaitGroup
}

// New makes a server. Runs are read when they are first asked for.
func New(opts Options) (*Server, error) {
	page, err := fs.Sub(built, "built")
	if err != nil {
		return nil, fmt.Errorf("opening the page: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	return &Server{opts: opts, page: page, ctx: ctx, stop: stop, runs: map[string]*run{}, blocks: &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, DialContext: peer.Dial},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close stops following runs.
func (s *Server) Close() {
	s.stop()
	s.wait.Wait()
}

// Serve answers requests on ln until ctx ends.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	limits := web.Defaults()
	server := limits.NewServer(s.Handler())
	failed := make(chan error, 1)
	go func() { failed <- limits.ServeTLS(server, ln, s.opts.TLS) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving the dashboard on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	s.stop() // ends the streams
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	err := server.Shutdown(stop)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	<-failed
	return err
}

// Handler answers all requests.
func (s *Server) Handler() http.Handler {
	mux := s.routes()
	mux.Handle("GET /", http.FileServerFS(s.page))
	mux.HandleFunc("GET /api/runs/{run}/stream", s.stream)
	return s.guard(mux)
}

// routes answers what the page asks for of runs, whoever asks.
func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/runs", s.list)
	mux.HandleFunc("GET /metrics", s.prometheus)
	type handler = func(*run, http.ResponseWriter, *http.Request) (any, error)
	serve := func(find func(name string) (*run, error), handlers map[string]handler) {
		for pattern, handle := range handlers {
			mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
				run, err := find(r.PathValue("run"))
				if err != nil {
					answer(w, nil, err)
					return
				}
				v, err := handle(run, w, r)
				answer(w, v, err)
			})
		}
	}
	serve(s.run, map[string]handler{
		"GET /api/runs/{run}":          (*run).summary,
		"GET /api/runs/{run}/series":   (*run).seriesOf,
		"GET /api/runs/{run}/timeline": (*run).timelineOf,
		"GET /api/runs/{run}/logs":     (*run).logsOf,
		"GET /api/runs/{run}/config":   (*run).configuration,
	})
	serve(s.find, map[string]handler{ // what is not in the log
		"GET /api/runs/{run}/samples":                       (*run).listSamples,
		"GET /api/runs/{run}/samples/{block}/{id}":          (*run).showGroup,
		"GET /api/runs/{run}/samples/{block}/{id}/same":     (*run).samePrompt,
		"GET /api/runs/{run}/samples/{block}/{id}/{number}": (*run).showSequence,
		"GET /api/runs/{run}/evaluations":                   (*run).evaluationsOf,
	})
	return mux
}

// policy is the page's content security policy: its own files and nothing else, no inline script or style.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// cookieName has the port: cookies of one host are shared by all of its ports.
func cookieName(host string) string {
	_, port, _ := net.SplitHostPort(host)
	return "recipe_ui" + port
}

// folder is where the page with a token is: browsers send the cookie to paths in it alone. They send cookies of a host
// to all of its ports, and a server of another user that somebody visits on this machine can only guess the folder.
func folder(token string) string {
	sum := sha256.Sum256([]byte("folder of the page " + token))
	return "/" + hex.EncodeToString(sum[:16])
}

// guard checks who asks. Another site must not read a run through a person's browser (by a name that resolves to
// loopback, or by a request from its pages), and beyond loopback a token is required.
func (s *Server) guard(next http.Handler) http.Handler {
	within := folder(s.opts.Token)
	inFolder := http.StripPrefix(within, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		switch {
		case !s.knows(r.Host):
			http.Error(w, "this server does not answer under the name "+r.Host+
				": use the address that recipe ui printed", http.StatusMisdirectedRequest)
		case foreign(r):
			http.Error(w, "the dashboard does not answer pages of other sites", http.StatusForbidden)
		case s.opts.Token == "":
			next.ServeHTTP(w, r)
		case same(r.Header.Get("Authorization"), "Bearer "+s.opts.Token): // a program, such as Prometheus
			next.ServeHTTP(w, r)
		case same(r.URL.Query().Get("token"), s.opts.Token):
			// Lax: a browser leaves strict cookies out where a link on another page, or in a file, led here.
			http.SetCookie(w, &http.Cookie{Name: cookieName(r.Host), Value: s.opts.Token, Path: within + "/", HttpOnly: true,
				Secure: s.opts.TLS != nil, SameSite: http.SameSiteLaxMode})
			// The token leaves the address bar.
			to := strings.TrimLeft(strings.TrimPrefix(r.URL.EscapedPath(), within+"/"), `/\`)
			http.Redirect(w, r, within+"/"+to, http.StatusSeeOther)
		default:
			if c, err := r.Cookie(cookieName(r.Host)); err != nil || !same(c.Value, s.opts.Token) {
				http.Error(w, "a token is required: open the address that recipe ui printed", http.StatusUnauthorized)
				return
			}
			inFolder.ServeHTTP(w, r)
		}
	})
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// knows reports whether the server answers under the name of a request.
func (s *Server) knows(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.Trim(name, "[]")
	if ip, err := netip.ParseAddr(name); err == nil && ip.IsLoopback() {
		return true
	}
	return strings.EqualFold(name, "localhost") ||
		slices.ContainsFunc(s.opts.Hosts, func(known string) bool { return strings.EqualFold(known, name) })
}

// foreign reports that a browser sent the request for a page of another site. A link that a person follows is none.
func foreign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return false
	}
	return !(r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document")
}
