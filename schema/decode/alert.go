package decode

import (
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// ObserverSchema is the schema of the attributes of an alert, an evaluation or a tracking block.
func ObserverSchema(kind string) (*spec.Schema, error) {
	switch kind {
	case "tracking":
		return spec.Of(trackingArguments{})
	case "evaluation":
		return spec.Of(evaluationArguments{})
	}
	return spec.Of(alertArguments{})
}

// Alert is one alert block: a condition on the events of a run, and who is told when it begins to hold. Exactly one of
// Metric, State, StalledFor and DiskBelow is set.
type Alert struct {
	Name  string
	Block string // address that the condition is about; empty: any block

	Metric string
	Since  string // from when the metric is reported (spec.Metric); empty: from the first report, or not known
	// Reporters are the addresses of the blocks that report the metric, or may. Empty: none is known, as of a metric of an
	// evaluation.
	Reporters []string
	Op        string // ">", "<", or "fell": by Value below the best mean so far
	Value     float64
	For       int    // reports in a row
	State     string // one of AlertStates
	Stalled   time.Duration
	Disk      float64 // GiB

	Webhook string // sensitive
	Command []string
	Desktop bool
	Every   time.Duration // the least time between two deliveries
	Timeout time.Duration // of a delivery
	Range   hcl.Range
}

type alertArguments struct {
	Block      string         `recipe:"block" doc:"address of the block that the condition is about, such as \"trainer.grpo.policy\"; default: any block"`
	Metric     *string        `recipe:"metric" doc:"name of a metric, with one of above, below and fell"`
	Above      *float64       `recipe:"above"`
	Below      *float64       `recipe:"below"`
	Fell       *float64       `recipe:"fell" doc:"how far the mean over the last for reports is below the best such mean before"`
	For        int            `recipe:"for" default:"1" min:"1" doc:"reports in a row for which the comparison must hold; of fell, how many reports are averaged"`
	State      *string        `recipe:"state" enum:"failed,restarted,degraded,run_failed,run_ended" doc:"a block is failed, is restarted or is degraded; the run has failed or ended"`
	StalledFor *time.Duration `recipe:"stalled_for" min:"1s" doc:"time without progress; stalls are seen after a minute"`
	DiskBelow  *float64       `recipe:"disk_below" min:"0" doc:"free GiB on the disk of the run directory"`
	Webhook    string         `recipe:"webhook" sensitive:"true" doc:"URL to which the alert is posted as JSON"`
	Command    []string       `recipe:"command" doc:"program and arguments; the alert is its standard input, as JSON"`
	Desktop    bool           `recipe:"desktop" default:"false" doc:"notify-send, where it exists"`
	Every      time.Duration  `recipe:"every" default:"10m" min:"0s" doc:"the least time between two deliveries of this alert"`
	Timeout    time.Duration  `recipe:"timeout" default:"10s" min:"100ms" doc:"of one delivery; there are three attempts"`
}

// Alert makes an alert of its decoded body, and checks what a schema cannot say; nil: it cannot be read.
func (d *Decoder) Alert(o *parse.Observer, s *spec.Schema, v cty.Value) *Alert {
	plain, _ := v.UnmarkDeep()
	var b alertArguments
	if err := spec.Decode(plain, s, &b); err != nil {
		d.report(diagnostic.Problem(d.Header, "Invalid alert", err.Error()))
		return nil
	}
	wrong := func(detail string) { d.report(diagnostic.Problem(d.Header, "Invalid alert", detail)) }
	a := &Alert{Name: o.Name, Block: b.Block, For: b.For, Webhook: b.Webhook, Command: b.Command,
		Desktop: b.Desktop, Every: b.Every, Timeout: b.Timeout, Range: d.Header}
	conditions, comparisons := 0, 0
	if b.Metric != nil {
		conditions, a.Metric = conditions+1, *b.Metric
	}
	for op, limit := range map[string]*float64{">": b.Above, "<": b.Below, "fell": b.Fell} {
		if limit != nil {
			comparisons, a.Op, a.Value = comparisons+1, op, *limit
		}
	}
	if b.State != nil {
		conditions, a.State = conditions+1, *b.State
	}
	if b.StalledFor != nil {
		conditions, a.Stalled = conditions+1, *b.StalledFor
	}
	if b.DiskBelow != nil {
		conditions, a.Disk = conditions+1, *b.DiskBelow
	}
	if conditions != 1 || comparisons > 1 || (comparisons == 1) != (b.Metric != nil) {
		wrong(`An alert has exactly one condition: metric = "reward" with one of above, below and fell, or state = ` +
			`"failed", or stalled_for = "10m", or disk_below = 20.`)
	}
	if a.Op == "fell" && a.Value <= 0 {
		wrong("fell says how far the metric falls: expected a positive number.")
	}
	if a.Webhook == "" && len(a.Command) == 0 && !a.Desktop {
		wrong(`An alert tells someone: set webhook = env("ALERT_URL"), command = ["mail", "…"] or desktop = true.`)
	}
	if a.Webhook != "" && !strings.HasPrefix(a.Webhook, "https://") && !strings.HasPrefix(a.Webhook, "http://") {
		wrong("webhook is no URL: expected one that starts with https:// or http://.") // not shown: it is a secret
	}
	if a.Block != "" {
		if _, err := addr.Parse(a.Block); err != nil {
			wrong(fmt.Sprintf("block: %s.", err))
		}
	}
	return a
}
