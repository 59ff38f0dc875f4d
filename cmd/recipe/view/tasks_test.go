package view

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/environment"
)

// TestTasksByTheirSolveRate also holds that a prompt, which anybody may have written, moves no cursor.
func TestTasksByTheirSolveRate(t *testing.T) {
	t.Parallel()
	rates := &environment.SolveRates{Version: 1, Low: -1, High: 1, Tasks: map[string]*environment.SolveRate{
		"a": {Prompt: "never", Score: -1, Groups: 2, Step: 3},
		"b": {Prompt: "never, often tried\n\x1b[2J", Score: -1, Groups: 9, Step: 12},
		"c": {Prompt: "sometimes", Score: 0, Groups: 4, Step: 8},
		"d": {Prompt: "always", Score: 1, Groups: 1, Step: 1},
	}}
	address, err := addr.Parse("environment.reward.sums")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := Tasks(&out, Style{}, address, rates, 3); err != nil {
		t.Fatal(err)
	}
	want := `environment.reward.sums: 4 tasks

SOLVE RATE         TASKS
0 (never solved)       2  ███████████████
0.0 to 0.2             0
0.2 to 0.4             0
0.4 to 0.6             1  ████████
0.6 to 0.8             0
0.8 to 1.0             0
1 (always solved)      1  ████████

HARDEST  GROUPS  STEP  PROMPT
   0.00       9    12  never, often tried ␛[2J
   0.00       2     3  never
   0.50       4     8  sometimes
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
	out.Reset()
	err = Tasks(&out, Style{}, address, &environment.SolveRates{High: 1}, 3)
	if err != nil || !strings.Contains(out.String(), "0 tasks") {
		t.Errorf("no tasks: %v\n%s", err, out.String())
	}
	out.Reset()
	if err := TasksJSON(&out, address, rates); err != nil || !strings.Contains(out.String(), `"solve_rate": 0.5`) {
		t.Errorf("as JSON: %v\n%s", err, out.String())
	}
}
