package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/recipe-rl/recipe/internal/disk"
)

// holdBody is the body of POST /recipe/v1/hold.
type holdBody struct {
	ID           string  `json:"id,omitempty"`
	Mode         Mode    `json:"mode,omitempty"`
	LeaseSeconds float64 `json:"lease_seconds,omitempty"`
	DrainSeconds float64 `json:"drain_seconds,omitempty"`
	Reason       string  `json:"reason,omitempty"`
}

// LookupResult is what is recorded of one sequence of tokens.
type LookupResult struct {
	Found     bool    `json:"found"`
	Ambiguous bool    `json:"ambiguous"`
	Record    *Record `json:"record,omitempty"` // if found
}

// control answers /recipe/v1/….
func (g *Gateway) control(w http.ResponseWriter, r *http.Request, allowed scope, route string) {
	if allowed != scopeAdmin {
		why := "this route needs the admin token"
		if !g.keys.hasAdmin {
			why = "the control routes are closed: this gateway was started without an admin token"
		}
		writeError(w, &refusal{http.StatusForbidden, "forbidden", why, 0})
		return
	}
	if route == "status" && r.Method == http.MethodGet {
		writeJSON(w, http.StatusOK, g.Status())
		return
	}
	handle := map[string]func(*http.Request, []byte) (any, error){
		"hold": g.postHold, "resume": g.postResume, "version": g.postVersion, "weights": g.postWeights,
		"logprobs": g.postLogprobs, "lookup": g.postLookup, "replica": g.postReplica, "admit": g.postAdmit,
		"sleep": g.postSleep, "updates": g.postUpdates, "held": g.postHeld, "sees": g.postSees,
		"expect": g.postExpect, "adopt": g.postAdopt, "keep": g.postKeep,
		"receive": func(r *http.Request, _ []byte) (any, error) { return g.receive(r) },
	}[route]
	if handle == nil {
		writeError(w, &refusal{http.StatusNotFound, "not_found", "no control route " + route + "; there are GET status, " +
			"POST hold, resume, version, weights, adopt, expect, logprobs, lookup, replica, admit, sleep, updates, held, " +
			"receive, sees, keep", 0})
		return
	}
	if r.Method != http.MethodPost {
		writeError(w, &refusal{http.StatusMethodNotAllowed, "method_not_allowed", route + " takes POST", 0})
		return
	}
	var body []byte
	if route != "receive" { // that reads its body piece by piece
		var err error
		if body, err = g.readBody(w, r); err != nil {
			g.refuse(w, "", err)
			return
		}
	}
	out, err := handle(r, body)
	if err != nil {
		writeJSON(w, controlStatus(err), controlError{apiErrorBody{err.Error(), controlKind(err), controlStatus(err)}, out})
		return
	}
	writeJSON(w, http.StatusOK, out)
}

// controlError is an error together with a partial result.
type controlError struct {
	Error  apiErrorBody `json:"error"`
	Result any          `json:"result,omitempty"`
}

// errBody marks errors in a request's body.
var errBody = errors.New("bad request")

func controlStatus(err error) int {
	switch {
	case errors.Is(err, errBody):
		return http.StatusBadRequest
	case errors.Is(err, ErrHeld), errors.Is(err, ErrNotHeld):
		return http.StatusConflict
	}
	return http.StatusUnprocessableEntity
}

func controlKind(err error) string {
	switch {
	case errors.Is(err, ErrHeld):
		return "held"
	case errors.Is(err, ErrNotHeld):
		return "not_held"
	case errors.Is(err, ErrMismatch):
		return "mismatch"
	case errors.Is(err, ErrNoSleep):
		return "no_sleep"
	case disk.Full(err):
		return "disk_full"
	}
	return "failed"
}

func decode(body []byte, v any) error {
	if len(body) == 0 {
		return nil
	}
	if err := json.Unmarshal(body, v); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: body: %w", errBody, err)
	}
	return nil
}

func (g *Gateway) postHold(r *http.Request, body []byte) (any, error) {
	var q holdBody
	if err := decode(body, &q); err != nil {
		return nil, err
	}
	h, err := g.Hold(r.Context(), HoldRequest{ID: q.ID, Mode: q.Mode, Lease: seconds(q.LeaseSeconds),
		Drain: seconds(q.DrainSeconds), Reason: q.Reason})
	if err != nil {
		return nil, err
	}
	return HoldStatus(h), nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (g *Gateway) postResume(_ *http.Request, body []byte) (any, error) {
	var q struct {
		ID string `json:"id"`
	}
	if err := decode(body, &q); err != nil {
		return nil, err
	}
	return struct{}{}, g.Resume(q.ID)
}

func (g *Gateway) postSleep(r *http.Request, body []byte) (any, error) {
	var q struct {
		Hold  string `json:"hold"`
		Level int    `json:"level"`
	}
	if err := decode(body, &q); err != nil {
		return nil, err
	}
	if q.Level != 1 && q.Level != 2 {
		return nil, fmt.Errorf("%w: level is %d; want 1 (keep the weights in the host's memory) or 2 (drop them)", errBody,
			q.Level)
	}
	return struct{}{}, g.Sleep(r.Context(), q.Hold, q.Level)
}

func (g *Gateway) postUpdates(_ *http.Request, body []byte) (any, error) {
	var q struct {
		Mode Mode `json:"mode"`
	}
	if err := decode(body, &q); err != nil {
		return nil, err
	}
	return struct{}{}, g.ExpectUpdates(q.Mode)
}

func (g *Gateway) postVersion(_ *http.Request, body []byte) (any, error) {
	var q struct {
		Version *int `json:"version"`
	}
	if err := decode(body, &q); err != nil {
		return nil, err
	}
	if q.Version == nil {
		return nil, fmt.Errorf("%w: version is missing", errBody)
	}
	return struct{}{}, g.SetVersion(*q.Version)
}

func (g *Gateway) postWeights(r *http.Request, body []byte) (any, error) {
	// Earlier clients put the other attributes of the weights into options.
	var q struct {
		WeightUpdate
		Options json.RawMessage `json:"options"`
	}
	if err := decode(body, &q); err != nil {
		return nil, err
	}
	if err := decode(q.Options, &q.Weights); err != nil {
		return nil, fmt.Errorf("options: %w", err)
	}
	return g.UpdateWeights(r.Context(), q.WeightUpdate)
}

func (g *Gateway) postAdopt(r *http.Request, body []byte) (any, error) {
	var u WeightUpdate
	if err := decode(body, &u); err != nil {
		return nil, err
	}
	return struct{}{}, g.Adopt(r.Context(), u)
}

func (g *Gateway) postExpect(_ *http.Request, body []byte) (any, error) {
	var e Expectation
	if err := decode(body, &e); err != nil {
		return nil, err
	}
	return struct{}{}, g.Expect(e)
}

func (g *Gateway) postLogprobs(r *http.Request, body []byte) (any, error) {
	var q struct {
		Tokens []int `json:"token_ids"`
	}
	if err := decode(body, &q); err != nil {
		return nil, err
	}
	list, err := g.Logprobs(r.Context(), q.Tokens)
	return map[string]any{"replicas": list}, err
}

// postLookup takes one sequence as "tokens", or many as "sequences".
func (g *Gateway) postLookup(_ *http.Request, body []byte) (any, error) {
	var q struct {
		Tokens    []int   `json:"tokens"`
		Sequences [][]int `json:"sequences"`
	}
	if err := decode(body, &q); err != nil {
		return nil, err
	}
	if q.Sequences == nil {
		return g.lookupResult(q.Tokens), nil
	}
	out := make([]LookupResult, len(q.Sequences))
	for i, tokens := range q.Sequences {
		out[i] = g.lookupResult(tokens)
	}
	return map[string]any{"results": out}, nil
}

func (g *Gateway) lookupResult(tokens []int) LookupResult {
	rec, found, ambiguous := g.Lookup(tokens)
	if !found {
		return LookupResult{Ambiguous: ambiguous}
	}
	return LookupResult{Found: true, Record: &rec}
}

func (g *Gateway) postReplica(_ *http.Request, body []byte) (any, error) {
	var q struct {
		ID      string `json:"id"`
		Healthy *bool  `json:"healthy"`
		Reason  string `json:"reason"`
	}
	if err := decode(body, &q); err != nil {
		return nil, err
	}
	if q.Healthy == nil {
		return nil, fmt.Errorf("%w: healthy is missing", errBody)
	}
	return struct{}{}, g.SetReplicaHealthy(q.ID, *q.Healthy, q.Reason)
}

func (g *Gateway) postAdmit(r *http.Request, body []byte) (any, error) {
	q := struct {
		ID      string `json:"id"`
		Version int    `json:"version"`
	}{Version: UnknownVersion}
	if err := decode(body, &q); err != nil {
		return nil, err
	}
	return struct{}{}, g.Admit(r.Context(), q.ID, q.Version)
}
