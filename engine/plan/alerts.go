package plan

import (
	"fmt"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Alert is one alert that an apply would watch. It holds no webhook and no argument of a command: they may be secrets.
type Alert struct {
	Name  string   `json:"name"`
	When  string   `json:"when"`  // its condition in words
	Tells []string `json:"tells"` // "webhook", "command PROGRAM", "desktop"
}

func alerts(r *schema.Recipe) []Alert {
	out := []Alert{}
	for _, a := range r.Alerts {
		told := Alert{Name: a.Name, When: when(a), Tells: []string{}}
		if a.Webhook != "" {
			told.Tells = append(told.Tells, "webhook")
		}
		if len(a.Command) > 0 {
			told.Tells = append(told.Tells, "command "+a.Command[0])
		}
		if a.Desktop {
			told.Tells = append(told.Tells, "desktop")
		}
		out = append(out, told)
	}
	return out
}

// when is the condition of an alert in words.
func when(a decode.Alert) string {
	block := a.Block
	if block == "" {
		block = "any block"
	}
	switch {
	case a.Op == "fell":
		return fmt.Sprintf("%s of %s is %g below its best, over %d reports%s", a.Metric, block, a.Value, a.For,
			spec.Reported(a.Since))
	case a.Metric != "":
		return fmt.Sprintf("%s of %s %s %g, %d in a row%s", a.Metric, block, a.Op, a.Value, a.For, spec.Reported(a.Since))
	case a.Stalled > 0:
		return fmt.Sprintf("%s makes no progress for %s", block, a.Stalled)
	case a.Disk > 0:
		return fmt.Sprintf("less than %g GiB of the run's disk are free", a.Disk)
	case a.State == "run_failed":
		return "the run has failed"
	case a.State == "run_ended":
		return "the run has ended"
	}
	return block + " is " + a.State
}
