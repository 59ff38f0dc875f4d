package server

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// maxBody bounds a request; the largest sensible prompt is a few kilobytes.
const maxBody = 8 << 20

// HandlerOptions configure a Handler.
type HandlerOptions struct {
	// Model is the name that requests use; they may also leave it out.
	Model string
	// APIKey, if set, must come with every request but GET /health as a bearer token.
	APIKey string
}

// Handler speaks HTTP for an engine.
type Handler struct {
	engine  *Engine
	options HandlerOptions
	mux     *http.ServeMux
	started time.Time
	ids     atomic.Int64
}

var _ http.Handler = (*Handler)(nil)

// NewHandler makes the routes of an engine, which stays the caller's to close.
func NewHandler(e *Engine, o HandlerOptions) *Handler {
	h := &Handler{engine: e, options: o, mux: http.NewServeMux(), started: time.Now()}
	h.mux.HandleFunc("GET /health", h.health)
	for route, serve := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/models": h.models, "POST /v1/completions": h.completions, "POST /v1/chat/completions": h.chat,
		"POST /generate": h.generate, "POST /tokenize": h.tokenize, "POST /detokenize": h.detokenize,
		"POST /logprobs": h.logProbs,
	} {
		h.mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
			if err := h.authorize(r); err != nil {
				writeError(w, err)
				return
			}
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			if err := serve(w, r); err != nil {
				writeError(w, err)
			}
		})
	}
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, &httpError{http.StatusNotFound, "not_found_error", "",
			fmt.Sprintf(
				"%s %s is not served here; there are /v1/models, /v1/completions, /v1/chat/completions, /generate, /tokenize, "+
					"/detokenize, /logprobs and /health", r.Method, r.URL.Path)})
	})
	return h
}

// ServeHTTP serves one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

func (h *Handler) authorize(r *http.Request) error {
	if h.options.APIKey == "" {
		return nil
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || subtle.ConstantTimeCompare([]byte(given), []byte(h.options.APIKey)) != 1 {
		return &httpError{http.StatusUnauthorized, "authentication_error", "",
			"this server wants its API key as a bearer token"}
	}
	return nil
}

func (h *Handler) health(w http.ResponseWriter, _ *http.Request) {
	select {
	case <-h.engine.stopped:
		writeError(w, ErrClosed)
	default:
		writeJSON(w, struct {
			Status  string `json:"status"`
			Version int64  `json:"policy_version"`
			Stats
		}{"ok", h.engine.Policy().Version, h.engine.Stats()})
	}
}

func (h *Handler) models(w http.ResponseWriter, _ *http.Request) error {
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
		Length  int    `json:"max_model_len"`
		Version int64  `json:"policy_version"`
	}
	writeJSON(w, map[string]any{"object": "list", "data": []model{
		{h.options.Model, "model", h.started.Unix(), "recipe", h.engine.Config().Context, h.engine.Policy().Version},
	}})
	return nil
}

func (h *Handler) nextID(prefix string) string {
	return prefix + strconv.FormatInt(h.started.UnixNano(), 36) + "-" + strconv.FormatInt(h.ids.Add(1), 10)
}

// httpError is a failure as OpenAI's clients expect it.
type httpError struct {
	status  int
	kind    string
	param   string
	message string
}

func (e *httpError) Error() string { return e.message }

// badRequest blames a field of the request; param may be empty.
func badRequest(param, format string, args ...any) error {
	return &httpError{http.StatusBadRequest, "invalid_request_error", param, fmt.Sprintf(format, args...)}
}

// statusClientClosed is what nginx made customary for a client that went away.
const statusClientClosed = 499

func writeError(w http.ResponseWriter, err error) {
	var e *httpError
	switch {
	case errors.As(err, &e):
	case errors.Is(err, ErrBusy):
		w.Header().Set("Retry-After", "1")
		e = &httpError{http.StatusServiceUnavailable, "server_busy_error", "", err.Error()}
	case errors.Is(err, ErrClosed):
		e = &httpError{http.StatusServiceUnavailable, "server_stopped_error", "", err.Error()}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e = &httpError{statusClientClosed, "request_cancelled", "", "the client ended the request"}
	default:
		e = &httpError{http.StatusInternalServerError, "server_error", "", err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.status)
	body := map[string]any{"message": e.message, "type": e.kind, "param": nil, "code": e.status}
	if e.param != "" {
		body["param"] = e.param
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"error": body}) // the client is gone if this fails
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client is gone if this fails
}

// readJSON decodes a body; unknown fields are let through, as vLLM does, because clients send many.
func readJSON(r *http.Request, into any) error {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		var large *http.MaxBytesError
		var kind *json.UnmarshalTypeError
		switch {
		case errors.As(err, &large):
			return &httpError{http.StatusRequestEntityTooLarge, "invalid_request_error", "",
				fmt.Sprintf("the request is larger than %d bytes", large.Limit)}
		case errors.As(err, &kind):
			return badRequest(kind.Field, "%s: want %s, got a JSON %s", kind.Field, kind.Type, kind.Value)
		}
		return badRequest("", "the body is not a JSON object that this route understands: %v", err)
	}
	return nil
}
