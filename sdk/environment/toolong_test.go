package environment_test

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
)

// A block none of whose prompts fits ends with the reason, instead of asking for ever.
func TestABlockEndsWhenAllIsTooLong(t *testing.T) {
	t.Parallel()
	a, b := setUp(t, func(c *config) { c.Long = -1 })
	failed := func(e *pluginpb.Event) bool { return e.GetPhase().GetPhase() == string(sdk.Failed) }
	e := b.Wait("failure", failed).GetPhase()
	if m := e.GetMessage(); !strings.Contains(m, "all of the first 10 groups are too long") ||
		!strings.Contains(m, "too long for the model's context") {
		t.Errorf("the failure is %q", m)
	}
	if !e.GetFinal() {
		t.Error("the block would be restarted, and its prompts be as long")
	}
	if !strings.Contains(e.GetRemedy(), "lower max_tokens") {
		t.Errorf("the remedy is %q", e.GetRemedy())
	}
	a.set(func(a *api) {
		if len(a.groups) != 0 {
			t.Errorf("%d groups were sent", len(a.groups))
		}
	})
}
