package environment

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
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

// What is not set is not sent: an engine has defaults of its own, and some refuse what they do not know.
func TestOnlySetSamplingIsSent(t *testing.T) {
	t.Parallel()
	k, share, penalty, seed := int64(20), 0.05, 1.1, int64(7)
	for name, c := range map[string]struct {
		settings Settings
		facts    string
		sent     []string
		problems int
	}{
		"nothing": {Settings{TopP: 1}, "", nil, 0},
		"all": {Settings{TopP: 1, TopK: &k, MinP: &share, RepetitionPenalty: &penalty, RequestSeed: &seed},
			"20 0.05 1.1", []string{"min_p", "repetition_penalty", "seed", "top_k"}, 0},
		"no penalty": {Settings{TopP: 1, RepetitionPenalty: new(float64)}, "0", []string{"repetition_penalty"}, 1},
	} {
		p := c.settings.sampling("words")
		data, err := json.Marshal(p)
		var sent map[string]any
		if err != nil || json.Unmarshal(data, &sent) != nil {
			t.Fatal(err)
		}
		for _, always := range []string{"n", "max_tokens", "temperature", "top_p"} {
			delete(sent, always)
		}
		if got := slices.Sorted(maps.Keys(sent)); !slices.Equal(got, c.sent) {
			t.Errorf("%s: %v is sent, want %v", name, got, c.sent)
		}
		e, problems := (&runner[Settings, Environment]{}).Plan(c.settings, sdk.Placement{})
		facts := strings.Join(strings.Fields(e.Facts["top_k"]+" "+e.Facts["min_p"]+" "+e.Facts["repetition_penalty"]), " ")
		if facts != c.facts || len(problems) != c.problems {
			t.Errorf("%s: facts %q, %v; want %q and %d problems", name, facts, problems, c.facts, c.problems)
		}
		if g := p.greedy(); g.TopK != nil || g.MinP != nil || g.Temperature != 0 || g.TopP != 1 {
			t.Errorf("%s: greedy sampling is %+v", name, g)
		}
	}
}

// A seed of sampling is another for each block and each task, and the same the next time.
func TestSamplingSeeds(t *testing.T) {
	t.Parallel()
	seed := int64(7)
	s := Settings{RequestSeed: &seed}
	known := map[int64]bool{}
	for _, name := range []string{"a", "b"} {
		for task := range int64(3) {
			drawn := *s.sampling(name).seededFor(task).Seed
			if again := *s.sampling(name).seededFor(task).Seed; again != drawn || known[drawn] || drawn < 0 {
				t.Errorf("task %d of %s has the seed %d, then %d; known are %v", task, name, drawn, again, known)
			}
			known[drawn] = true
		}
	}
	if a, b := newOrder("x", s), newOrder("x", Settings{}); a.seed == b.seed {
		t.Error("with deterministic = true the seed of sampling changes nothing")
	}
}
