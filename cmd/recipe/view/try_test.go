package view

import (
	"bytes"
	"strings"
	"testing"
)

// A completion without a score is shown as failed, with its reason, and is in no mean.
func TestFailedCompletionsHaveNoScore(t *testing.T) {
	t.Parallel()
	score := 0.5
	said := func(text string) []TriedMessage { return []TriedMessage{{"user", "1+1="}, {"assistant", text}} }
	tried := Tried{Environment: "environment.reward.sums", Groups: []TriedGroup{{Completions: []TriedCompletion{
		{Failed: "r.py:6: ValueError: no number", Messages: said("two")},
		{Failed: "the judge is away", Messages: said("two")[:1]},
		{Score: &score, Messages: said("2")}, {Score: &score, Messages: said("3")}}}}}
	var out bytes.Buffer
	if err := tried.Show(&out, Style{Width: 80}); err != nil {
		t.Fatal(err)
	}
	indent := strings.Repeat(" ", 22)
	for _, want := range []string{"   failed             two\n" + indent + "r.py:6: ValueError: no number\n",
		"   failed             (no text)\n" + indent + "the judge is away\n",
		"1 prompt, 4 completions, 2 of them without a score, mean score 0.5\n",
		"In 1 of 1 groups all scores are equal"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %s", want, out.String())
		}
	}
}
