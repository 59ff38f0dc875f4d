package weightserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/disk"
	"github.com/recipe-rl/recipe/internal/peer"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// maxWait bounds a long poll, maxBody a request.
const (
	maxWait = time.Minute
	maxBody = 1 << 20
)

// Handler serves the control endpoint of docs/architecture.md.
func (s *Server) Handler(token string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /recipe/v1/attach", post(s, func(_ *http.Request, a Attach) (any, error) {
		if err := s.attach(a); err != nil {
			return nil, err
		}
		return s.state(), nil
	}))
	mux.HandleFunc("POST /recipe/v1/publish", post(s, func(r *http.Request, p PublishRequest) (any, error) {
		var w sdk.Weights
		err := s.call(p.Version, func(weights Snapshot) (err error) {
			if p.Transport == transport.Delta {
				w, err = s.versions.publish(r.Context(), weights, p)
			} else {
				w, err = weights.Publish(r.Context(), p)
			}
			return err
		})
		return w, err
	}))
	mux.HandleFunc("POST /recipe/v1/pack", post(s, func(_ *http.Request, p PackRequest) (any, error) {
		s.seen()
		return s.versions.pack(p)
	}))
	mux.HandleFunc("GET /recipe/v1/packed/{name}", s.versions.serve)
	mux.HandleFunc("POST /recipe/v1/sees", post(s, func(_ *http.Request, f disk.File) (any, error) {
		return f.Look(), nil
	}))
	mux.HandleFunc("POST /recipe/v1/logprobs", post(s, func(r *http.Request, q logprobsBody) (any, error) {
		var answer logprobsBody
		err := s.call(0, func(weights Snapshot) (err error) {
			answer.Logprobs, err = weights.Logprobs(r.Context(), q.TokenIDs)
			return err
		})
		return answer, err
	}))
	mux.HandleFunc("POST /recipe/v1/tokenize", post(s, func(r *http.Request, q tokenizeBody) (any, error) {
		var answer tokenizeBody
		err := s.call(0, func(weights Snapshot) (err error) {
			if tokenizer, ok := weights.(Tokenizer); ok { // else no ids
				answer.TokenIDs, err = tokenizer.Tokenize(r.Context(), q.Text)
			}
			return err
		})
		return answer, err
	}))
	mux.HandleFunc("POST /recipe/v1/taken", post(s, func(r *http.Request, t Taken) (any, error) {
		return struct{}{}, s.taken(r.Context(), t)
	}))
	mux.HandleFunc("POST /recipe/v1/synced", post(s, func(_ *http.Request, d Done) (any, error) {
		return struct{}{}, s.done(d)
	}))
	mux.HandleFunc("POST /recipe/v1/turn", post(s, func(_ *http.Request, t TurnGiven) (any, error) {
		return struct{}{}, s.give(t)
	}))
	mux.HandleFunc("GET /recipe/v1/state", func(w http.ResponseWriter, _ *http.Request) {
		s.seen()
		answer(w, http.StatusOK, s.state())
	})
	mux.HandleFunc("GET /recipe/v1/pending", s.getPending)
	return authorized(token, mux)
}

type logprobsBody struct {
	TokenIDs []int     `json:"token_ids,omitempty"`
	Logprobs []float64 `json:"logprobs,omitempty"`
}

type tokenizeBody struct {
	Text     string `json:"text,omitempty"`
	TokenIDs []int  `json:"token_ids,omitempty"`
}

func (s *Server) getPending(w http.ResponseWriter, r *http.Request) {
	after, wait := int64(0), time.Duration(0)
	var err error
	if s := r.URL.Query().Get("after"); s != "" {
		if after, err = strconv.ParseInt(s, 10, 64); err != nil {
			answer(w, http.StatusBadRequest, errorBody{"after: want a version, got " + strconv.Quote(s)})
			return
		}
	}
	if s := r.URL.Query().Get("wait"); s != "" {
		if wait, err = time.ParseDuration(s); err != nil {
			answer(w, http.StatusBadRequest, errorBody{"wait: want a duration such as 30s, got " + strconv.Quote(s)})
			return
		}
	}
	p := s.next(r.Context(), after, min(wait, maxWait))
	switch {
	case p != nil:
		answer(w, http.StatusOK, p)
	case s.state().Phase == "over":
		answer(w, http.StatusGone, errorBody{s.Address + " is over"})
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

type errorBody struct {
	Error string `json:"error"`
}

// post decodes a JSON body, answers with JSON, and turns an error into its text with 507 when a disk is full, so that
// the sync block asks again, and with 409 else.
func post[T any](_ *Server, handle func(*http.Request, T) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body T
		decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
		if err := decoder.Decode(&body); err != nil {
			answer(w, http.StatusBadRequest, errorBody{"read the request: " + err.Error()})
			return
		}
		out, err := handle(r, body)
		if err != nil {
			code := http.StatusConflict
			if disk.Full(err) {
				code = http.StatusInsufficientStorage
			}
			answer(w, code, errorBody{sdk.Message(err)})
			return
		}
		answer(w, http.StatusOK, out)
	}
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the caller has gone if this fails
}

// authorized lets through requests of this user that carry the bearer token. Without a token the endpoint is open to
// this user: it listens on loopback.
func authorized(token string, next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		got := sha256.Sum256([]byte(given))
		if token != "" && subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
			answer(w, http.StatusUnauthorized, errorBody{"the bearer token is missing or wrong"})
			return
		}
		if err := peer.CheckClient(r); err != nil {
			answer(w, http.StatusForbidden, errorBody{err.Error()})
			return
		}
		next.ServeHTTP(w, r)
	})
}
