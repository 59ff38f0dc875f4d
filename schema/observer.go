package schema

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// observerSchema is the schema of the attributes of an alert or a tracking block.
func observerSchema(kind string) (*spec.Schema, error) {
	if kind == "tracking" {
		return spec.Of(trackingArguments{})
	}
	return spec.Of(alertArguments{})
}

// Alert is one alert block: a condition on the events of a run, and who is told when it begins to hold. Exactly one of
// Metric, State, StalledFor and DiskBelow is set.
type Alert struct {
	Name  string
	Block string // address that the condition is about; empty: any block

	Metric  string
	Since   string // from when the metric is reported (spec.Metric); empty: from the first report, or not known
	Op      string // ">", "<", or "fell": by Value below the best mean so far
	Value   float64
	For     int    // reports in a row
	State   string // one of AlertStates
	Stalled time.Duration
	Disk    float64 // GiB

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

// computeObserver evaluates the body of an alert or a tracking block.
func (ev *evaluation) computeObserver(n *node, mi *moduleInstance) *result {
	o := n.observer
	if n.module.call != nil {
		ev.diags = append(ev.diags, diagnostic.Problem(n.header, "Not in a module",
			fmt.Sprintf("A block %s stands in the recipe that is applied, not in a module: move it there.", o.Kind)))
		return &result{value: cty.DynamicVal}
	}
	keep := (*decoder).alert
	if o.Kind == "tracking" {
		keep = (*decoder).tracking
	}
	s, err := observerSchema(o.Kind)
	if err != nil {
		ev.diags = append(ev.diags, diagnostic.Problem(n.header, "Block not usable", err.Error()))
		return &result{value: cty.DynamicVal}
	}
	d := decoder{ev: ev, ctx: ev.context(n.exprs, mi), header: n.header, label: n.label, scope: n.module}
	v := d.body(s, o.Body, d.ctx, n.label, n.header, false)
	known, failed := v.IsWhollyKnown(), ev.diags.HasErrors() || ev.p.diags.HasErrors()
	if !d.diags.HasErrors() && !known && (!failed || len(ev.uses(n, mi, d.ctx)) > 0) {
		d.report(diagnostic.Problem(n.header, "Value known too late",
			fmt.Sprintf("The values of %s must be known before anything starts: they must not use outputs of blocks.", n.label)))
	}
	if !d.diags.HasErrors() && known {
		keep(&d, n, s, v)
	}
	ev.diags = append(ev.diags, d.diags...)
	return &result{value: v}
}

// alert checks what a schema cannot say, and keeps the alert.
func (d *decoder) alert(n *node, s *spec.Schema, v cty.Value) {
	plain, _ := v.UnmarkDeep()
	var b alertArguments
	if err := spec.Decode(plain, s, &b); err != nil {
		d.report(diagnostic.Problem(n.header, "Invalid alert", err.Error()))
		return
	}
	wrong := func(detail string) { d.report(diagnostic.Problem(n.header, "Invalid alert", detail)) }
	a := &Alert{Name: n.observer.Name, Block: b.Block, For: b.For, Webhook: b.Webhook, Command: b.Command,
		Desktop: b.Desktop, Every: b.Every, Timeout: b.Timeout, Range: n.header}
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
	d.ev.p.keepAlert(a)
}

func (p *evaluator) keepAlert(a *Alert) {
	p.alerts = slices.DeleteFunc(p.alerts, func(b *Alert) bool { return b.Name == a.Name })
	p.alerts = append(p.alerts, a)
	p.secrets.add(a.Webhook)
}

// checkAlerts reports alerts about blocks that the recipe does not have.
func (p *evaluator) checkAlerts() {
	for _, a := range p.alerts {
		at, err := addr.Parse(a.Block)
		if a.Block == "" || err != nil || p.instances[at] != nil {
			continue
		}
		var known []string
		for _, inst := range p.instances {
			known = append(known, inst.block.Addr.String())
		}
		slices.Sort(known)
		p.diags = append(p.diags, diagnostic.Problem(a.Range, "Unknown block",
			fmt.Sprintf("alert.%s is about %s, which the recipe does not have; it has %s.%s", a.Name, a.Block,
				diagnostic.List(known), diagnostic.DidYouMean(a.Block, known))))
	}
}
