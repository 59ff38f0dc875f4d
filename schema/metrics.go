package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/nearest"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// checkMetrics reports names of metrics, in alerts and stop rules, that no block in question reports. Where a block may
// report others than its plugin declares, a name that is not declared is a warning, and so is one that is reported only
// with an attribute that is not set.
func checkMetrics(alerts []*decode.Alert, held evaluations, blocks []*Block) (diags hcl.Diagnostics) {
	for _, a := range alerts {
		about := blocks
		if a.Block != "" {
			about = named(a.Block, blocks)
		}
		if a.Metric == "" || a.Block != "" && about == nil {
			continue
		}
		if strings.HasPrefix(a.Metric, decode.EvaluationPrefix) {
			diags = append(diags, checkEvaluationMetric(a.Metric, "alert."+a.Name, held, a.Range)...)
			continue
		}
		var d *hcl.Diagnostic
		if a.Since, a.Reporters, d = checkMetric(a.Metric, "alert."+a.Name, about, a.Range); d != nil {
			diags = append(diags, d)
		}
	}
	for _, b := range blocks {
		rules := b.Meta.StopWhen
		for i, rule := range rules {
			if rule.Metric == "" {
				continue
			}
			if strings.HasPrefix(rule.Metric, decode.EvaluationPrefix) {
				rules[i].Since = "with each evaluation"
				diags = append(diags, checkEvaluationMetric(rule.Metric, "stop_when of "+b.Addr.String(), held, rule.Range)...)
				continue
			}
			var d *hcl.Diagnostic
			rules[i].Since, _, d = checkMetric(rule.Metric, "stop_when of "+b.Addr.String(), []*Block{b}, rule.Range)
			if d != nil {
				diags = append(diags, d)
			}
		}
	}
	return diags
}

// named is the block of that address, alone; nil: there is none.
func named(address string, blocks []*Block) []*Block {
	at, err := addr.Parse(address)
	i := slices.IndexFunc(blocks, func(b *Block) bool { return b.Addr == at })
	if err != nil || i < 0 {
		return nil
	}
	return blocks[i : i+1]
}

// checkMetric returns which of the blocks in question report a metric, or may, and from when, where their plugins
// declare that.
func checkMetric(name, where string, about []*Block, at hcl.Range) (since string, reporters []string,
	wrong *hcl.Diagnostic) {
	var declared, may, reporting, unset []string
	meant, open, undeclared := "", false, false
	for _, b := range about {
		if b.Addr.Kind == kind.Trajectories || b.Addr.Kind.Life() == kind.Config {
			continue // report none
		}
		if b.Schema == nil || b.Schema.Config == nil {
			return "", nil, nil
		}
		if b.Schema.Config.Metrics == nil { // its plugin does not say what it reports
			if b.Addr.Kind == kind.Trainer || b.Addr.Kind == kind.Environment || len(about) == 1 {
				undeclared, may = true, append(may, b.Addr.String())
			}
			continue
		}
		found, more := b.Schema.Config.Reports(name)
		if found != nil && len(found.Of) > 0 {
			if functions, known := functionsOf(b.Value, found.Of); known && !found.OneOf(name, functions) {
				open, may, reporting = true, append(may, b.Addr.String()), append(reporting, b.Addr.String())
				for i := range functions {
					functions[i] = strings.Replace(found.Name, "*", functions[i], 1)
				}
				meant = nearest.Name(name, functions)
				continue
			}
		}
		if found != nil && (found.With == "" || isSet(b.Value, found.With)) {
			if len(declared) == 0 {
				since = found.Since
			}
			declared = append(declared, b.Addr.String())
			continue
		}
		if found != nil {
			unset = append(unset, fmt.Sprintf("%s reports it only with %s", b.Addr, found.With))
			continue
		}
		if more {
			open, may = true, append(may, b.Addr.String())
		}
		if len(b.Schema.Config.Metrics) > 0 || len(about) == 1 {
			reporting = append(reporting, b.Addr.String())
		}
		near := nearest.Name(name, b.Schema.Config.MetricNames())
		if meant == "" || b.Addr.Kind == kind.Trainer && near != "" {
			meant = near
		}
	}
	switch {
	case len(declared) > 0:
		return since, declared, nil
	case undeclared:
		return "", may, nil
	}
	if len(unset) > 0 {
		return "", nil, diagnostic.Warning(at, "Metric not reported", fmt.Sprintf("%s is about the metric %q, "+
			"which does not "+
			"come: %s, which is not set.", where, name, strings.Join(unset, ", ")))
	}
	hint := ""
	if meant != "" {
		hint = fmt.Sprintf(" Did you mean %q?", meant)
	}
	if open {
		return "", may, diagnostic.Warning(at, "Metric not known", fmt.Sprintf("%s is about the metric %q, "+
			"which is not "+
			"among those that %s is known to report: it holds only if the metric comes.%s", where, name,
			strings.Join(reporting, ", "), hint))
	}
	return "", nil, diagnostic.Problem(at, "Unknown metric", fmt.Sprintf("%s is about the metric %q, which "+
		"%s does not "+
		"report.%s recipe plugin docs KIND NAME lists the metrics of a block.", where, name, diagnostic.List(reporting),
		hint))
}

// functionsOf are the functions that attributes of a body name, also of nested blocks (functions.function).
// Not known: one of them is not.
func functionsOf(body cty.Value, attributes []string) (names []string, known bool) {
	for _, path := range attributes {
		outer, inner, nested := strings.Cut(path, ".")
		plain, _ := body.UnmarkDeep()
		if !plain.IsKnown() || plain.IsNull() || !plain.Type().IsObjectType() || !plain.Type().HasAttribute(outer) {
			continue
		}
		values := []cty.Value{plain.GetAttr(outer)}
		if list := values[0]; nested {
			if values = nil; list.IsNull() {
				continue
			}
			if !list.IsKnown() {
				return nil, false
			}
			for _, one := range list.AsValueSlice() {
				values = append(values, one.GetAttr(inner))
			}
		}
		for _, v := range values {
			if !v.IsKnown() {
				return nil, false
			}
			if v.IsNull() || v.Type() != cty.String {
				continue
			}
			if code, err := spec.ParseCallable(v.AsString()); err == nil {
				names = append(names, code.Function)
			}
		}
	}
	return names, true
}

// isSet reports whether the attribute at a dotted path of a body has a value other than null, false and 0, or one that
// is not known yet.
func isSet(body cty.Value, path string) bool {
	v, _ := body.Unmark()
	for name := range strings.SplitSeq(path, ".") {
		if !v.IsKnown() {
			return true
		}
		if v.IsNull() || !v.Type().IsObjectType() || !v.Type().HasAttribute(name) {
			return false
		}
		v, _ = v.GetAttr(name).Unmark()
	}
	return !v.IsKnown() || !v.IsNull() && !v.RawEquals(cty.False) && !v.RawEquals(cty.Zero)
}
