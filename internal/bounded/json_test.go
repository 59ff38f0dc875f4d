package bounded

import (
	"math"
	"strings"
	"testing"
)

func TestFitsJSON(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, text    string
		values, depth int
		want          bool
	}{
		{"a number", `1`, 1, 0, true},
		{"at the limits", `{"a":[1,2]}`, 4, 2, true},
		{"too deep", `{"a":[1,2]}`, 9, 1, false},
		{"too many values", `{"a":[1,2]}`, 3, 9, false},
		{"brackets in a text", `{"a":"[[[\"[","b":"\\"}`, 9, 1, true},
		{"side by side", strings.Repeat("[],", 99) + "[]", math.MaxInt, 1, true},
		{"a text without an end", `["[`, 9, 1, true},
		{"no JSON", `]]]`, 9, 0, true},
	} {
		if got := FitsJSON([]byte(test.text), test.values, test.depth); got != test.want {
			t.Errorf("%s: %t, want %t", test.name, got, test.want)
		}
	}
}
