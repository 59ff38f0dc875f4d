package nearest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agext/levenshtein"
	"pgregory.net/rapid"
)

func TestName(t *testing.T) {
	t.Parallel()
	many := make([]string, most+1)
	for i := range many {
		many[i] = fmt.Sprint("name", i)
	}
	for _, c := range []struct {
		given string
		known []string
		want  string
	}{
		{"setps", []string{"batch_size", "steps"}, "steps"},
		{"Steps", []string{"steps"}, "steps"},
		{"a", []string{"b", "cc"}, ""},
		{"", []string{"a"}, ""},
		{"learning_rat", []string{"learning_rate", "learning_raft"}, "learning_rate"},
		{"größe", []string{"grösse", "größen"}, "größen"},
		{strings.Repeat("a", 60_000), []string{strings.Repeat("a", 60_001)}, ""},
		{"name1", many, ""},
	} {
		if got := Name(c.given, c.known); got != c.want {
			t.Errorf("%.20q among %d names: got %q, want %q", c.given, len(c.known), got, c.want)
		}
	}
}

// The part of the table that is computed gives what the whole does.
func TestEditsAreTheLibrarys(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOfN(rapid.SampledFrom([]rune("abcß")), 0, 12, -1)
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		for limit := 1; limit < 6; limit++ {
			want := min(levenshtein.Distance(a, b, nil), limit)
			if got := edits([]rune(a), []rune(b), limit); got != want {
				t.Fatalf("%q and %q, limit %d: got %d, want %d", a, b, limit, got, want)
			}
		}
	})
}
