package sizing_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// A plan says what in_flight = auto means, why, and which transport follows.
func TestThePlanSaysWhatBecomesOfRequestsInFlight(t *testing.T) {
	t.Parallel()
	const all, files = "live,ipc,nccl,reload,restart", "reload,restart"
	const keeps, drains = "answers go on while new weights come", "answers end before new weights come"
	for name, c := range map[string]struct {
		sync, trainer, server []string // facts besides those that all cases have
		want, moves, why      string   // want empty: no line about it
	}{
		"as it comes": {nil, []string{"corrects", "by weights"}, nil, keeps, "live",
			"in_flight = auto is keep: weights move by live, and trainer.x.a corrects for tokens of older versions: " +
				"by weights."},
		"staleness of 4": {[]string{"max_staleness", "4"}, []string{"corrects", "by weights"}, nil, keeps, "live", ""},
		"no staleness": {[]string{"max_staleness", "0"}, []string{"corrects", "by weights"}, nil, drains, "ipc",
			"max_staleness is 0"},
		"no correction": {nil, nil, nil, drains, "ipc", "trainer.x.a does not say"},
		"files": {nil, []string{"corrects", "by weights"}, []string{"transports", files}, drains, "reload",
			"weights move by reload"},
		"sleeping": {nil, []string{"corrects", "by weights"}, []string{"sleeps", "true"}, drains, "ipc", "sleeps"},
		"asked for": {[]string{"in_flight", "drain", "transports", "ipc,reload"}, []string{"corrects", "by weights"}, nil,
			"", "ipc", ""},
		"live asked for": {[]string{"transport", "live", "transports", "live", "max_staleness", "0"}, nil, nil, keeps,
			"live", "holds nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := func(changed []string, kv ...string) sdk.Estimate {
				e := facts(kv...)
				maps.Copy(e.Facts, facts(changed...).Facts)
				return e
			}
			gpu := &sdk.Placement{Devices: []string{"0"}}
			w := world{
				placed: map[kind.Kind]*sdk.Placement{kind.Inference: gpu, kind.Trainer: gpu},
				estimates: map[kind.Kind]sdk.Estimate{
					kind.Sync: of(c.sync, "transport", "auto", "transports", all, "in_flight", "auto",
						"colocated", "auto"),
					kind.Trainer:   of(c.trainer, "transports", all, "devices", "0"),
					kind.Inference: of(c.server, "transports", all, "devices", "0"),
				},
			}
			said, why, moves := "", "", ""
			for _, f := range w.check() {
				switch {
				case f.Summary == keeps || f.Summary == drains:
					said, why = f.Summary, f.Detail
				case strings.HasPrefix(f.Summary, "weights move by "):
					moves = strings.TrimPrefix(f.Summary, "weights move by ")
				}
			}
			if said != c.want || moves != c.moves || !strings.Contains(why, c.why) {
				t.Errorf("the plan says %q (%s) and that weights move by %q; want %q (%s), %q", said, why, moves, c.want, c.why,
					c.moves)
			}
		})
	}
}
