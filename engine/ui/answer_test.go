package ui

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
)

// Names of blocks, metrics and runs come from the run directory.
func TestAnswersHaveNoInvisibleCharacters(t *testing.T) {
	t.Parallel()
	const hidden = "a\u202eb\u200f\u0085\x7f\x1b\u2028\\u001b"
	for _, c := range []struct {
		v   any
		err error
	}{{v: map[string]any{hidden: []string{hidden}, "é 日本": 1}}, {err: errors.New(hidden)}, {err: missing("%s", hidden)}} {
		w := httptest.NewRecorder()
		answer(w, c.v, c.err)
		text := w.Body.String()
		var decoded any
		if err := json.Unmarshal(w.Body.Bytes(), &decoded); err != nil {
			t.Error(err)
		}
		if strings.ContainsAny(fmt.Sprint(text, decoded), "\u202e\u200f\u0085\x7f\x1b\u2028") {
			t.Errorf("answered with %q", text)
		}
		if c.v != nil && !strings.Contains(text, "é 日本") {
			t.Errorf("other letters are gone: %q", text)
		}
	}
}
