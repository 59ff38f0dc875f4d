package ui

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
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

func answer(w http.ResponseWriter, v any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err == nil {
		_ = json.NewEncoder(w).Encode(v)
		return
	}
	status := http.StatusInternalServerError
	var r *refusal
	if errors.As(err, &r) {
		status = r.status
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()})
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

// limit shortens a text to so many bytes, and says how many are left out.
func limit(s string, most int) string {
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return fmt.Sprintf("%s… (%d more bytes)", s[:cut], len(s)-cut)
}

// plain makes characters visible that a terminal or a browser would act on: control characters, escape sequences, and
// those that change the direction of the text around them. What a model wrote must not look like something else.
func plain(s string) string {
	clean := true
	for _, r := range s {
		if hidden(r) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !hidden(r):
			b.WriteRune(r)
		case r < 0x20:
			b.WriteRune(0x2400 + r) // the symbol of the control character
		case r == 0x7f:
			b.WriteRune(0x2421)
		default:
			fmt.Fprintf(&b, "⟦U+%04X⟧", r)
		}
	}
	return b.String()
}

func hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < 0x20, r >= 0x7f && r < 0xa0: // controls
		return true
	case r == 0x061c, r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r == 0xfeff:
		return true // direction and invisible characters
	case r == utf8.RuneError:
		return false
	}
	return r >= 0xe0000 && r <= 0xe007f // tags, which carry invisible text
}
