package group

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestRolloutsOfSeveralSequences(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		overrides string // of four sequences
		scores    string // empty: 1, 1, 1, 1
		want      int    // rollouts
		refusal   string // where, and a part of why
	}{
		{name: "none is named", overrides: `[{},{},{"a":1},{}]`, want: 4},
		{name: "not given", overrides: `null`, want: 4},
		{name: "empty", overrides: `[]`, want: 4},
		{name: "two of two", overrides: `[{"rollout":0},{"rollout":0},{"rollout":1},{"rollout":1}]`, want: 2},
		{name: "one of three", overrides: `[{},{"rollout":7},{"rollout":7},{"rollout":7}]`, want: 2},
		{name: "a key with an escape", overrides: `[{},{},{"r\u006fllout":3},{"rollout":3}]`, want: 3},
		{name: "scores in two forms", overrides: `[{"rollout":0},{"rollout":0},{},{}]`, scores: `[1,1.0,0,0]`, want: 3},
		{name: "apart", overrides: `[{"rollout":0},{},{"rollout":0},{}]`,
			refusal: "overrides.2.rollout: Expected the parts of rollout 0 to follow each other"},
		{name: "two scores", overrides: `[{"rollout":0},{"rollout":0},{},{}]`, scores: `[1,0.5,1,1]`,
			refusal: "scores.1: Expected 1, the score of sequence 0"},
		{name: "a score is missing", overrides: `[{"rollout":0},{"rollout":0},{"rollout":0},{"rollout":0}]`, scores: `[1]`,
			refusal: "scores: Expected 4 elements"},
		{name: "negative", overrides: `[{"rollout":-1},{},{},{}]`, refusal: "overrides.0.rollout: Expected the number"},
		{name: "a text", overrides: `[{"rollout":"1"},{},{},{}]`, refusal: "overrides.0.rollout: Expected the number"},
		{name: "a fraction", overrides: `[{},{"rollout":0.5},{},{}]`, refusal: "overrides.1.rollout: Expected the number"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			scores := test.scores
			if scores == "" {
				scores = `[1,1,1,1]`
			}
			body := fmt.Sprintf(`{"tokens":[[1],[2],[3],[4]],"masks":[[1],[2],[3],[4]],"scores":%s,"overrides":%s}`, scores,
				test.overrides)
			for name, read := range map[string]func([]byte) (*Group, error){"fast": new(Reader).Parse, "exact": Parse} {
				g, err := read([]byte(body))
				if test.refusal != "" {
					if told := fmt.Sprint(err); err == nil || !strings.Contains(told, test.refusal) {
						t.Errorf("%s: %v, expected a refusal with %q", name, err, test.refusal)
					}
					continue
				}
				if err != nil || g.Size != test.want || g.Sequences != 4 || !json.Valid(g.JSON) {
					t.Errorf("%s: %+v, %v; expected %d rollouts of 4 sequences", name, g, err, test.want)
				}
			}
		})
	}
}
