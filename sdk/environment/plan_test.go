package environment

import (
	"testing"

	"github.com/recipe-rl/recipe/sdk"
)

// How an environment samples is compared with what a trainer can learn from (engine/sizing); top_p = 0 no server takes.
func TestThePlanSaysHowItSamples(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		temperature, topP float64
		facts             [2]string
		refused           bool
	}{{1, 1, [2]string{"1", "1"}, false}, {0, 0.9, [2]string{"0", "0.9"}, false}, {0.7, 0, [2]string{"0.7", "0"}, true}} {
		e, problems := (&runner[Settings, Environment]{}).Plan(Settings{Temperature: c.temperature, TopP: c.topP},
			sdk.Placement{})
		if got := [2]string{e.Facts["temperature"], e.Facts["top_p"]}; got != c.facts || len(problems) > 0 != c.refused {
			t.Errorf("%+v: %v, %v", c, got, problems)
		}
	}
}
