package script

import (
	"errors"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
)

// A user can correct a file of the user's, and not the code of an environment that comes with recipe.
func TestAProblemNamesALineThatTheUserCanCorrect(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, bundled, kind   string
		summary, detail, what string
	}{
		"the user's environment": {"/r/words.py", "", "failed", "set up: words.py:3: ValueError: no rows (f())", "trace",
			"correct line 3 of /r/words.py"},
		"one of recipe's": {"/r/.recipe/python/recipe_reward/dataset.py", "/r/.recipe/python", "failed",
			"set up: ValueError: no rows", "", "correct the block's attributes, or the files that they name"},
		"the user's function in it": {"/r/rewards.py", "/r/.recipe/python", "failed",
			"set up: rewards.py:3: ValueError: no rows (f())", "trace", "correct line 3 of /r/rewards.py"},
		"something is away": {"/r/words.py", "", "infra", "set up: words.py:3: ValueError: no rows (f())", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &problem{Kind: c.kind, Message: "ValueError: no rows", File: c.file, Line: 3, Code: "f()", Trace: "trace"}
			var e *sdk.Error
			if !errors.As(p.asError("set up", c.bundled, sdk.Packages{}), &e) {
				t.Fatal("it is no error for a user")
			}
			if final := c.kind != "infra"; e.Final != final {
				t.Errorf("final: %v, want %v", e.Final, final)
			}
			if e.Summary != c.summary || e.Detail != c.detail || e.Remedy != c.what {
				t.Errorf("summary %q, detail %q, remedy %q; want %q, %q, %q", e.Summary, e.Detail, e.Remedy, c.summary, c.detail,
					c.what)
			}
		})
	}
}

// The frames of an environment that comes with recipe are not the user's.
func TestATraceIsTheUsersPart(t *testing.T) {
	t.Parallel()
	const users = "  File \"/r/rewards.py\", line 3, in f\n    g()\n  File \"/usr/lib/json.py\", line 9, in g\n    h()"
	const ours = "  File \"/r/.recipe/python/recipe_reward/reward.py\", line 102, in setup\n    self.setup_scoring()\n"
	for bundled, want := range map[string]string{"/r/.recipe/python": users, "": ours + users} {
		p := &problem{Message: "ValueError: x", File: "/r/rewards.py", Line: 3, Trace: ours + users}
		var e *sdk.Error
		if !errors.As(p.asError("", bundled, sdk.Packages{}), &e) || e.Detail != want {
			t.Errorf("bundled %q: %q, want %q", bundled, e.Detail, want)
		}
	}
}

// A package that a user's file imports and that is not installed is no line to correct.
func TestAMissingPackageHasItsRemedy(t *testing.T) {
	t.Parallel()
	own := sdk.Packages{Requirements: []string{"reasoning-gym==0.1.25"}}
	p := &problem{Message: "ModuleNotFoundError: No module named 'sympy.core'", File: "/r/rewards.py", Line: 1, Trace: "t"}
	var e *sdk.Error
	if !errors.As(p.asError("set up", "/bundled", own), &e) || e.Detail != "" ||
		!strings.Contains(e.Remedy, `runtime { requirements = ["reasoning-gym==0.1.25", "sympy"] }`) {
		t.Errorf("%+v", e)
	}
	p = &problem{Message: "ModuleNotFoundError: No module named 'reasoning_gym'", File: "/bundled/x.py", Line: 1}
	if !errors.As(p.asError("set up", "/bundled", own), &e) || !strings.HasPrefix(e.Remedy, "run recipe init") ||
		!strings.Contains(e.Remedy, "reasoning-gym==0.1.25") {
		t.Errorf("before recipe init: %+v", e)
	}
}
