package trajectories

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/peer"
	"github.com/recipe-rl/recipe/internal/redact"
	"github.com/recipe-rl/recipe/internal/web"
	"github.com/recipe-rl/recipe/plugins/trajectories/group"
	"github.com/recipe-rl/recipe/plugins/trajectories/store"
)

// route answers one method of one path. An error becomes a reply in fail.
type route struct {
	handle func(w http.ResponseWriter, r *http.Request) error
	admin  bool // needs the admin token
	open   bool // needs no token
}

// Handler serves every route, with tokens and errors as run-api's clients expect them.
func (s *Server) Handler() http.Handler {
	routes, guard := s.routes(), newGuard(s.cfg)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
					panic(p)
				}
				s.cfg.Log.Error("a request failed unexpectedly", "path", redact.Path(r.URL.Path), "error", p)
				text(w, http.StatusInternalServerError, "Internal Server Error")
			}
		}()
		if done, err := guard.check(w, r); err != nil {
			s.state.count(func(c *counts) { c.reject("browser") })
			s.fail(w, r, err)
			return
		} else if done {
			return
		}
		path, token := credentials(r)
		s.dispatch(w, r, routes, path, token)
	})
}

func (s *Server) dispatch(
	w http.ResponseWriter,
	r *http.Request,
	routes map[string]map[string]route,
	path, token string,
) {
	pattern := path
	methods, ok := routes[pattern]
	if !ok {
		var id string
		pattern, id = withID(path)
		if methods, ok = routes[pattern]; ok {
			r.SetPathValue("id", id)
		}
	}
	if !ok {
		if trimmed := strings.TrimSuffix(path, "/"); trimmed != path && routes[trimmed] != nil {
			http.Redirect(w, r, strings.TrimSuffix(r.URL.Path, "/"), http.StatusTemporaryRedirect)
			return
		}
		reply(w, http.StatusNotFound, map[string]string{"detail": "Not Found"})
		return
	}
	h, ok := methods[r.Method]
	if !ok {
		reply(w, http.StatusMethodNotAllowed, map[string]string{"detail": "Method Not Allowed"})
		return
	}
	if s.cfg.AdminToken != "" && (h.admin || same(token, s.cfg.AdminToken)) {
		if err := peer.CheckClient(r); err != nil { // whoever has the token, it is of use to this user alone
			reply(w, http.StatusForbidden, map[string]string{"detail": err.Error()})
			return
		}
	}
	if !h.open && !s.allowed(token, h.admin) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		reply(
			w,
			http.StatusUnauthorized,
			map[string]string{
				"detail": "This trajectory API needs a token: send Authorization: Bearer <token>, or use the URL " +
					"http://host:port/t/<token>",
			},
		)
		return
	}
	began := time.Now()
	defer func() { s.timings.Observe(pattern, time.Since(began).Seconds()) }()
	if err := h.handle(w, r); err != nil {
		s.fail(w, r, err)
	}
}

// withID splits the id out of /batch/{id}/action and /groups/{id}.
func withID(path string) (pattern, id string) {
	if rest, found := strings.CutPrefix(path, "/batch/"); found {
		id, action, _ := strings.Cut(rest, "/")
		return "/batch/{id}/" + action, id
	}
	if id, found := strings.CutPrefix(path, "/groups/"); found && id != "" {
		return "/groups/{id}", id
	}
	return path, ""
}

// credentials takes the token from the header, or from the path, and removes it there.
func credentials(r *http.Request) (path, token string) {
	path = r.URL.Path
	if rest, found := strings.CutPrefix(path, "/t/"); found {
		token, rest, _ := strings.Cut(rest, "/")
		return "/" + rest, token
	}
	if bearer, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); found {
		return path, strings.TrimSpace(bearer)
	}
	return path, ""
}

func (s *Server) allowed(token string, admin bool) bool {
	wanted := []string{s.cfg.Token, s.cfg.AdminToken}
	if admin && s.cfg.AdminToken != "" {
		wanted = wanted[1:]
	}
	if s.cfg.Token == "" && (!admin || s.cfg.AdminToken == "") {
		return true
	}
	ok := false
	for _, w := range wanted {
		ok = w != "" && same(token, w) || ok
	}
	return ok
}

// same compares tokens in a time that tells nothing of them.
func same(given, wanted string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(wanted))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// reply writes compact JSON.
func reply(w http.ResponseWriter, code int, v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		text(w, http.StatusInternalServerError, "Internal Server Error")
		return
	}
	body := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body) // the client is gone
}

func text(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = io.WriteString(w, body)
}

// fail turns an error into a reply that says what to do.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var invalid *group.Invalid
	var syntax *group.SyntaxError
	var tooLarge *http.MaxBytesError
	var refused *refusal
	switch {
	case errors.As(err, &invalid):
		reply(w, http.StatusUnprocessableEntity, map[string]any{"detail": invalid.Details})
	case errors.As(err, &syntax):
		reply(w, http.StatusUnprocessableEntity, map[string]any{"detail": []group.Detail{{
			Type: "json_invalid", Loc: []any{"body", syntax.Offset}, Msg: "JSON decode error",
			Input: map[string]any{}, Ctx: map[string]any{"error": syntax.Reason}}}})
	case errors.Is(err, group.ErrEncoding):
		reply(w, http.StatusBadRequest, map[string]string{"detail": "There was an error parsing the body"})
	case errors.As(err, &tooLarge):
		reply(
			w,
			http.StatusRequestEntityTooLarge,
			map[string]string{
				"detail": "The body is larger than the server allows (" + strconv.FormatInt(
					tooLarge.Limit,
					10,
				) + " bytes after decompression)",
			},
		)
	case errors.Is(err, web.ErrStalled):
		w.Header().Set("Connection", "close")
		reply(w, http.StatusRequestTimeout, map[string]string{"detail": err.Error()})
	case errors.As(err, &refused):
		if refused.plain {
			text(w, refused.code, refused.message)
			return
		}
		reply(w, refused.code, map[string]string{"status": "error", "detail": refused.message})
	case errors.Is(err, errBusy):
		s.state.count(func(c *counts) { c.reject("busy") })
		w.Header().Set("Retry-After", "1")
		reply(w, http.StatusServiceUnavailable, map[string]string{"detail": err.Error()})
	case errors.Is(err, errStarved): // what was read of it takes no memory any more while it is held
		if _, err := s.state.awaitRoom(r.Context(), 0, false); err == nil {
			w.Header().Set("Retry-After", "1")
		} else {
			w.Header().Set("Retry-After", "10")
		}
		reply(w, http.StatusServiceUnavailable, map[string]string{"detail": err.Error()})
	case errors.Is(err, errFull):
		w.Header().Set("Retry-After", "10")
		reply(w, http.StatusServiceUnavailable, map[string]string{"detail": err.Error()})
	case errors.Is(err, store.ErrFull):
		s.cfg.Log.Error("the trajectories cannot be stored", "error", err)
		w.Header().Set("Retry-After", "30")
		reply(w, http.StatusInsufficientStorage, map[string]string{"detail": err.Error()})
	case r.Context().Err() != nil:
		panic(http.ErrAbortHandler) // the client left
	default:
		s.cfg.Log.Error("a request failed", "method", r.Method, "path", redact.Path(r.URL.Path), "error", err)
		reply(w, http.StatusInternalServerError, map[string]string{"detail": err.Error()})
	}
}

// refusal is an error with its own status code.
type refusal struct {
	code    int
	message string
	plain   bool
}

func (e *refusal) Error() string { return e.message }
