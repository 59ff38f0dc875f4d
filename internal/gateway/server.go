package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"

	"github.com/recipe-rl/recipe/internal/peer"
	"github.com/recipe-rl/recipe/internal/web"
)

// ServeHTTP answers one request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	allowed, name, route := g.authorize(r)
	if route == "/health" { // reveals nothing that needs a token, and probes have none
		g.health(w)
		return
	}
	if route == "/" && r.Method == http.MethodHead { // Claude Code asks first whether anybody is there, without a key
		w.WriteHeader(http.StatusOK)
		return
	}
	if allowed == scopeNone {
		g.met.unauthorized.Add(1)
		w.Header().Set("WWW-Authenticate", "Bearer")
		writeErrorTo(w, route, &refusal{http.StatusUnauthorized, "unauthorized", "no token, or a wrong one: send " +
			"Authorization: Bearer TOKEN or X-Api-Key: TOKEN (api_key of OpenAI's and Anthropic's clients), or use the base " +
			"URL /t/TOKEN/v1", 0})
		return
	}
	if allowed == scopeAdmin {
		if err := peer.CheckClient(r); err != nil { // whoever has the token, it is of use to this user alone
			writeError(w, &refusal{http.StatusForbidden, "forbidden", "the admin token is refused: " + err.Error(), 0})
			return
		}
	}
	if path.Clean(route) != strings.TrimSuffix(route, "/") ||
		(r.URL.RawPath != "" && strings.Contains(strings.ToLower(r.URL.RawPath), "%2")) {
		writeError(w, &refusal{http.StatusNotFound, "not_found", "the path is not in its canonical form", 0})
		return
	}
	switch {
	case allowed == scopeSession:
		g.serveSession(w, r, name, route)
	case route == "/recipe/v1/sessions" || strings.HasPrefix(route, "/recipe/v1/sessions/"):
		g.sessionRoute(w, r, strings.TrimPrefix(strings.TrimPrefix(route, "/recipe/v1/sessions"), "/"))
	case strings.HasPrefix(route, "/recipe/v1/"):
		g.control(w, r, allowed, strings.TrimPrefix(route, "/recipe/v1/"))
	case route == "/metrics":
		g.metrics(w)
	case strings.TrimSuffix(route, "/") == "/v1/models" && reads(r):
		g.models(w, r)
	case strings.HasPrefix(route, "/v1/models/") && reads(r):
		g.model(w, r, strings.TrimPrefix(route, "/v1/models/"))
	case dataRoute(route):
		g.data(w, r, allowed, name, strings.TrimSuffix(route, "/"))
	default:
		writeError(w, &refusal{http.StatusNotFound, "not_found",
			fmt.Sprintf("no route %s here; there are /v1/…, /generate, /tokenize, /detokenize, /health and /metrics", route), 0})
	}
}

func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// dataRoute selects the routes for clients. Nothing else of an engine (pause, sleep, collective_rpc, …) can be reached
// through the gateway.
func dataRoute(route string) bool {
	switch strings.TrimSuffix(route, "/") {
	case "/generate", "/tokenize", "/detokenize", "/version":
		return true
	}
	return strings.HasPrefix(route, "/v1/")
}

// adminRoute selects the routes under /v1 that change what is served.
func adminRoute(route string) bool {
	switch route {
	case "/v1/load_lora_adapter", "/v1/unload_lora_adapter":
		return true
	}
	return false
}

// data answers a request for the engine.
func (g *Gateway) data(w http.ResponseWriter, r *http.Request, allowed scope, name, route string) {
	if adminRoute(route) && allowed != scopeAdmin {
		writeError(w, &refusal{http.StatusForbidden, "forbidden", route + " changes what is served; it " +
			"needs the admin token", 0})
		return
	}
	if closed := g.unsalted(r.Method, route); closed != nil {
		g.refuse(w, route, closed)
		return
	}
	body, err := g.readBody(w, r)
	if err != nil {
		g.refuse(w, route, err)
		return
	}
	start := g.cfg.Clock.Now()
	cl := g.clients.begin(name, start)
	seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	var c *call
	span := g.traced(r, route)
	defer func() {
		tokens := 0
		if c != nil {
			tokens = c.tokensOut
		}
		now := g.cfg.Clock.Now()
		g.clients.end(cl, tokens, seen.status)
		g.met.done(route, seen.status, tokens, now.Sub(start))
		endTrace(span, c, seen)
	}()
	if route == "/generate" {
		if r.Method != http.MethodPost {
			writeError(seen, &refusal{http.StatusMethodNotAllowed, "method_not_allowed", "/generate takes POST", 0})
			return
		}
		c = g.generate(seen, r, body)
		return
	}
	c = newCall(r, route, body)
	c.early = newEarly(c, seen)
	a, err := g.send(r.Context(), c)
	if err == nil && isRefusedLength(a) && g.clamp(r.Context(), c) {
		a, err = g.send(r.Context(), c)
	}
	switch {
	case err != nil:
		g.refuse(seen, route, err)
	case c.early.begun() && !(a.rest != nil && isStream(a.header)):
		a.discard(g)
		_, _ = seen.Write(failureEvent(route, a.status, a.body))
	default:
		g.respond(seen, c, a)
	}
}

func (g *Gateway) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	return readBodyUpTo(w, r, g.cfg.MaxBodyBytes)
}

// firstPart is where the memory begins that a body of an announced size is read into. More is taken as the body comes:
// clients that announce much and send nothing would else let the heap grow.
const firstPart = 1 << 20

func readBodyUpTo(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	if r.ContentLength == 0 {
		return nil, nil
	}
	if r.ContentLength > 0 {
		return readAnnounced(r.Body, r.ContentLength)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return nil, tooLarge(over.Limit)
	}
	if err != nil {
		return nil, unread(err)
	}
	return body, nil
}

func readAnnounced(in io.Reader, length int64) ([]byte, error) {
	body := make([]byte, min(length, firstPart))
	for read := 0; ; {
		n, err := io.ReadFull(in, body[read:])
		if err != nil {
			return nil, unread(err)
		}
		if read += n; int64(read) == length {
			return body, nil
		}
		body = append(make([]byte, 0, min(length, 2*int64(read))), body...)
		body = body[:cap(body)]
	}
}

// unread explains why a body could not be read.
func unread(err error) error {
	if errors.Is(err, web.ErrStalled) {
		return &refusal{http.StatusRequestTimeout, "timeout", "reading the body: " + err.Error(), 0}
	}
	return &refusal{http.StatusBadRequest, "bad_request", "reading the body: " + err.Error(), 0}
}

func tooLarge(limit int64) error {
	return &refusal{http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("the body is longer than %d bytes",
		limit), 0}
}

// health is 200 while requests are answered, or held for a while; 503 with the reason while there is no replica.
func (g *Gateway) health(w http.ResponseWriter) {
	g.mu.Lock()
	now := g.cfg.Clock.Now()
	ok, why := g.hold != nil, ""
	for _, r := range g.replicas {
		ok = ok || g.eligibleLocked(r, now)
	}
	if !ok {
		why = g.whyNoneLocked(now)
	}
	version := g.version
	g.mu.Unlock()
	if !ok {
		writeError(w, &refusal{http.StatusServiceUnavailable, "unavailable", why, 0})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"status": "ok", "policy_version": version})
}

// statusWriter remembers the status for the metrics.
type statusWriter struct {
	http.ResponseWriter
	status int
	begun  bool // the header was sent
}

func (w *statusWriter) WriteHeader(status int) {
	w.status, w.begun = status, true
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController flush through it.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
