package ui

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"

	"github.com/recipe-rl/recipe/engine/printable"
)

// refusal is an error with the status that it means.
type refusal struct {
	status  int
	message string
}

func (e *refusal) Error() string { return e.message }

func missing(format string, args ...any) error {
	return &refusal{http.StatusNotFound, fmt.Sprintf(format, args...)}
}

// answer writes JSON in which characters that change the direction of text, and invisible ones, are visible: names in
// it may be of a run directory that someone else has made.
func answer(w http.ResponseWriter, v any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err == nil {
		text, merr := json.Marshal(v)
		if merr == nil {
			_, _ = io.WriteString(w, printable.Text(string(text))+"\n")
			return
		}
		err = fmt.Errorf("encode the answer: %w", merr)
	}
	status := http.StatusInternalServerError
	var r *refusal
	if errors.As(err, &r) {
		status = r.status
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": printable.Text(err.Error())})
}

// query reads parameters of a request; the first that is malformed becomes its error.
type query struct {
	values url.Values
	err    error
}

func parameters(r *http.Request) *query { return &query{values: r.URL.Query()} }

func (q *query) text(name string) string { return q.values.Get(name) }

// number is a parameter, or what it is by default, not beyond the bounds.
func (q *query) number(name string, otherwise, least, most float64) float64 {
	given := q.values.Get(name)
	if given == "" {
		return otherwise
	}
	v, err := strconv.ParseFloat(given, 64)
	if err != nil || math.IsNaN(v) {
		if q.err == nil {
			q.err = &refusal{http.StatusBadRequest, fmt.Sprintf("%s is %.40q, expected a number", name, given)}
		}
		return otherwise
	}
	return min(max(v, least), most)
}

func (q *query) whole(name string, otherwise, least, most int) int {
	return int(q.number(name, float64(otherwise), float64(least), float64(most)))
}
