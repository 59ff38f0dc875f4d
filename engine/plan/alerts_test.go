package plan

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/decode"
)

// A plan says when an alert fires and who is told, and repeats no address and no argument.
func TestAlertsInWords(t *testing.T) {
	t.Parallel()
	for want, a := range map[string]decode.Alert{
		"reward of trainer.x.y is 0.2 below its best, over 10 reports": {Block: "trainer.x.y", Metric: "reward", Op: "fell",
			Value: 0.2, For: 10},
		"kl of any block > 3, 1 in a row":             {Metric: "kl", Op: ">", Value: 3, For: 1},
		"any block makes no progress for 10m0s":       {Stalled: 10 * time.Minute},
		"less than 20 GiB of the run's disk are free": {Disk: 20},
		"the run has failed":                          {State: "run_failed"},
		"the run has ended":                           {State: "run_ended"},
		"trainer.x.y is degraded":                     {Block: "trainer.x.y", State: "degraded"},
	} {
		a.Name, a.Webhook, a.Command, a.Desktop = "n", "https://planted", []string{"mail", "planted"}, true
		got := alerts(&schema.Recipe{Alerts: []decode.Alert{a}})[0]
		if got.When != want || !reflect.DeepEqual(got.Tells, []string{"webhook", "command mail", "desktop"}) {
			t.Errorf("got %+v, want %q", got, want)
		}
		if strings.Contains(got.When+strings.Join(got.Tells, ""), "planted") {
			t.Errorf("a secret is in %+v", got)
		}
	}
}
