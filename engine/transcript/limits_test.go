package transcript_test

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/transcript"
)

// Small values of a body of 120 MB once took 10 GB.
func TestGroupsOfTooManyParts(t *testing.T) {
	t.Parallel()
	group := func(tokens, messages string) []byte {
		return []byte(`{"tokens":[[1]` + tokens + `],"masks":[[1]` + tokens + `],"scores":[1],"messages":[[` + messages + `]]}`)
	}
	for _, c := range []struct {
		name, tokens, messages, says string
	}{
		{name: "objects", messages: strings.Repeat("{},", 1<<18) + "{}", says: "objects"},
		{name: "lists", tokens: strings.Repeat(",[]", 1<<21), says: "lists"},
		{name: "values", tokens: ",[" + strings.Repeat("1,", 1<<23) + "1]", says: "values"},
		{name: "text", messages: `{"content":"\"` + strings.Repeat("{[,", 1<<19) + `"}`},
	} {
		_, err := transcript.Parse(group(c.tokens, c.messages))
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}
