package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// apiError is the error body that OpenAI's clients know.
type apiError struct {
	Error apiErrorBody `json:"error"`
}

type apiErrorBody struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Code    int    `json:"code"`
}

// anthropicError is the error body that Anthropic's clients know.
type anthropicError struct {
	Type  string             `json:"type"` // "error"
	Error anthropicErrorBody `json:"error"`
}

type anthropicErrorBody struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// anthropicTypes are the types of errors that Anthropic documents, by status.
var anthropicTypes = map[int]string{
	http.StatusBadRequest: "invalid_request_error", http.StatusUnauthorized: "authentication_error",
	http.StatusForbidden: "permission_error", http.StatusNotFound: "not_found_error",
	http.StatusRequestEntityTooLarge: "request_too_large", http.StatusTooManyRequests: "rate_limit_error",
	http.StatusServiceUnavailable: "overloaded_error",
}

// speaksAnthropic selects the routes of Anthropic's Messages API.
func speaksAnthropic(route string) bool {
	return route == "/v1/messages" || strings.HasPrefix(route, "/v1/messages/")
}

// errorBody is the JSON form of an error in the dialect of a route.
func errorBody(route string, r *refusal) any {
	if !speaksAnthropic(route) {
		return apiError{apiErrorBody{Message: r.reason, Type: r.kind, Code: r.status}}
	}
	kind, ok := anthropicTypes[r.status]
	if !ok {
		kind = "api_error"
	}
	return anthropicError{"error", anthropicErrorBody{Type: kind, Message: r.reason}}
}

// failureEvent is an error as an event of a stream that has begun. Body is an engine's own answer with that status.
func failureEvent(route string, status int, body []byte) []byte {
	r := &refusal{status: status, kind: "engine_failed", reason: strings.TrimSpace(string(body))}
	var known struct {
		Error   apiErrorBody `json:"error"`
		Message string       `json:"message"`
	}
	if json.Unmarshal(body, &known) == nil && known.Error.Message+known.Message != "" {
		r.reason = known.Error.Message + known.Message
	}
	return r.event(route)
}

// event is a refusal as an event of a stream, after which the stream ends.
func (r *refusal) event(route string) []byte {
	head, value := "", errorBody(route, r)
	switch {
	case speaksAnthropic(route):
		head = "event: error\n"
	case route == "/v1/responses":
		head, value = "event: error\n", map[string]any{"type": "error", "code": r.kind, "message": r.reason, "param": nil}
	}
	body, err := json.Marshal(value)
	if err != nil {
		panic("gateway: an error always has a JSON form: " + err.Error())
	}
	return []byte(head + "data: " + string(body) + "\n\n")
}

func writeError(w http.ResponseWriter, r *refusal) { writeErrorTo(w, "", r) }

// writeErrorTo answers with an error in the dialect of a route.
func writeErrorTo(w http.ResponseWriter, route string, r *refusal) {
	if r.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(max(1, r.retry/time.Second))))
	}
	writeJSON(w, r.status, errorBody(route, r))
}

// refuse answers with the reason why a request is refused, unless the client is gone. A stream that has begun ends with
// it.
func (g *Gateway) refuse(w http.ResponseWriter, route string, err error) {
	var r *refusal
	switch {
	case errors.As(err, &r):
	case errors.Is(err, context.Canceled):
		r = &refusal{status: 499} // nginx's number for a client that closed the connection; for the metrics
	default:
		r = &refusal{status: http.StatusBadGateway, kind: "engine_failed", reason: err.Error()}
	}
	r = &refusal{r.status, r.kind, g.withoutAddresses(r.reason), r.retry}
	begun, ok := w.(*statusWriter)
	switch {
	case ok && begun.begun:
		begun.status = r.status
		_, _ = w.Write(r.event(route)) // a client that is gone needs no answer
	case r.status == 499:
		w.WriteHeader(r.status)
	default:
		writeErrorTo(w, route, r)
	}
}

// networkOperation is how Go names a connection in an error: "read tcp 127.0.0.1:5000->127.0.0.1:41001: ".
var networkOperation = regexp.MustCompile(`\b(dial|read|write) (tcp|tcp4|tcp6|unix) \S+: `)

// withoutAddresses removes engine addresses from a message, and where sessions are kept. Clients cannot reach engines
// and must not learn of them.
func (g *Gateway) withoutAddresses(message string) string {
	message = networkOperation.ReplaceAllString(message, "")
	if g.sessions.folder != "" {
		message = strings.ReplaceAll(message, g.sessions.folder, "the folder of sessions")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.replicas {
		message = strings.ReplaceAll(strings.ReplaceAll(message, r.base.String(), "the engine"), r.base.Host, "the engine")
	}
	return message
}
