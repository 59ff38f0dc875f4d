package environment

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
)

type scorer float64

func (scorer) Next(context.Context) (Task, error) { return Task{}, EOF }

func (s scorer) Score(context.Context, Task, Completion) (float64, error) { return float64(s), nil }

// The trajectory API refuses such a score with the whole group; here it is told with the environment's own words.
func TestAScoreThatCannotBeTrainedOnIsNamed(t *testing.T) {
	t.Parallel()
	for score, want := range map[float64]string{
		0: "", largest: "", -largest: "",
		1e30:         "Score returned 1e+30; expected a number between -1e+15 and 1e+15",
		-2e15:        "Score returned -2e+15; expected a number between -1e+15 and 1e+15",
		math.Inf(-1): "Score returned -Inf, which is no finite number",
		math.NaN():   "Score returned NaN, which is no finite number",
	} {
		_, err := scoreOne(t.Context(), scorer(score), Task{}, Completion{})
		said := ""
		if err != nil {
			said = err.Error()
		}
		if said != want {
			t.Errorf("a score of %v: %q, want %q", score, said, want)
		}
		var s notFinite
		if want != "" && !errors.As(err, &s) {
			t.Errorf("a score of %v is no error of its kind: %v", score, err)
		}
	}
}

func TestATaskWhoseMessageHasNoRoleIsRefused(t *testing.T) {
	t.Parallel()
	whole := Task{Messages: []Message{{Role: "system"}, {Role: "user", Content: "12+34="}}}
	if err := whole.check(); err != nil {
		t.Error(err)
	}
	whole.Messages[1].Role = ""
	if err := whole.check(); err == nil || !strings.Contains(err.Error(), "message 2 of 2 has no Role") {
		t.Errorf("a message without a role: %v", err)
	}
}
