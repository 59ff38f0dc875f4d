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
	"strings"

	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/internal/lazyregexp"
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

// escapes matches JSON's escapes of control characters and line separators, and the first two bytes of other escapes.
var escapes = lazyregexp.New(`\\(?:u00[01][0-9a-f]|u202[89]|.)`)

// shown is JSON text whose control characters, invisible characters and changes of direction are made visible.
func shown(text []byte) string {
	return printable.Text(escapes.ReplaceAllStringFunc(string(text), func(escape string) string {
		r, err := strconv.ParseUint(strings.TrimPrefix(escape, `\u`), 16, 16)
		switch {
		case err != nil || len(escape) != len(`\u0000`):
			return escape
		case r < 0x20:
			return string(rune(0x2400 + r)) // the symbol of the control character
		}
		return fmt.Sprintf("⟦U+%04X⟧", r)
	}))
}

// answer writes JSON in which characters that change the direction of text, and invisible ones, are visible: names in
// it may be of a run directory that someone else has made.
func answer(w http.ResponseWriter, v any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err == nil {
		text, merr := json.Marshal(v)
		if merr == nil {
			_, _ = io.WriteString(w, shown(text)+"\n")
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
	text, _ := json.Marshal(map[string]string{"error": printable.Text(err.Error())}) // a text has a JSON form
	_, _ = io.WriteString(w, shown(text)+"\n")
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
