package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/internal/nearest"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// checkMetrics reports names of metrics, in alerts and stop rules, that no block in question reports. Where a block may
// report others than its plugin declares, a name that is not declared is a warning.
func (p *evaluator) checkMetrics() {
	for _, a := range p.alerts {
		at, err := addr.Parse(a.Block)
		if a.Metric == "" || a.Block != "" && (err != nil || p.instances[at] == nil) {
			continue
		}
		var about []*Block
		for _, inst := range p.instances {
			if a.Block == "" || inst.block.Addr == at {
				about = append(about, inst.block)
			}
		}
		p.checkMetric(a.Metric, "alert."+a.Name, about, a.Range)
	}
	for _, inst := range p.instances {
		for _, rule := range inst.block.Meta.StopWhen {
			if rule.Metric != "" {
				p.checkMetric(rule.Metric, "stop_when of "+inst.block.Addr.String(), []*Block{inst.block}, rule.Range)
			}
		}
	}
}

func (p *evaluator) checkMetric(name, where string, about []*Block, at hcl.Range) {
	slices.SortFunc(about, func(x, y *Block) int { return addr.Compare(x.Addr, y.Addr) })
	reporting, meant, open := []string{}, "", false
	for _, b := range about {
		if b.Addr.Kind == kind.Trajectories || b.Addr.Kind.Life() == kind.Config {
			continue // report none
		}
		if b.Schema == nil || b.Schema.Config == nil {
			return
		}
		if b.Schema.Config.Metrics == nil {
			if b.Addr.Kind == kind.Trainer || b.Addr.Kind == kind.Environment || len(about) == 1 {
				return // its plugin does not say what it reports
			}
			continue
		}
		found, more := b.Schema.Config.Reports(name)
		if found {
			return
		}
		open = open || more
		if len(b.Schema.Config.Metrics) > 0 || len(about) == 1 {
			reporting = append(reporting, b.Addr.String())
		}
		near := nearest.Name(name, b.Schema.Config.MetricNames())
		if meant == "" || b.Addr.Kind == kind.Trainer && near != "" {
			meant = near
		}
	}
	hint := ""
	if meant != "" {
		hint = fmt.Sprintf(" Did you mean %q?", meant)
	}
	if open {
		p.diags = append(p.diags, warning(at, "Metric not known", fmt.Sprintf("%s is about the metric %q, which is not "+
			"among those that %s is known to report: it holds only if the metric comes.%s", where, name,
			strings.Join(reporting, ", "), hint)))
		return
	}
	p.diags = append(p.diags, problem(at, "Unknown metric", fmt.Sprintf("%s is about the metric %q, which %s does not "+
		"report.%s Pages of the blocks list the metrics: recipe docs.", where, name, orNothing(reporting), hint)))
}
