package schema

import (
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// computeObserver evaluates the body of an alert, an evaluation or a tracking block.
func (ev *evaluation) computeObserver(n *node, mi *moduleInstance) *result {
	o := n.observer
	if n.module.call != nil {
		ev.diags = append(ev.diags, diagnostic.Problem(n.header, "Not in a module",
			fmt.Sprintf("A block %s stands in the recipe that is applied, not in a module: move it there.", o.Kind)))
		return &result{value: cty.DynamicVal}
	}
	s, err := decode.ObserverSchema(o.Kind)
	if err != nil {
		ev.diags = append(ev.diags, diagnostic.Problem(n.header, "Block not usable", err.Error()))
		return &result{value: cty.DynamicVal}
	}
	ctx := ev.context(n.exprs, mi)
	d := decode.Decoder{Shared: ev.p.shared, Values: &blockValues{ev: ev, names: n.module}, Ctx: ctx, Header: n.header,
		Label: n.label, Running: ev.outputs != nil}
	v := d.Observer(s, o.Body)
	known, failed := withoutReferences(s, v).IsWhollyKnown(), ev.diags.HasErrors() || ev.p.diags.HasErrors()
	if !d.Diags.HasErrors() && !known && (!failed || len(ev.uses(n, mi, ctx)) > 0) {
		d.Diags = append(d.Diags, diagnostic.Problem(n.header, "Value known too late",
			fmt.Sprintf("The values of %s must be known before anything starts: they must not use outputs of blocks.", n.label)))
	}
	switch {
	case d.Diags.HasErrors() || !known:
	case failed && !referencesKnown(s, v): // the reference is reported
	case o.Kind == "tracking":
		ev.p.keepTracking(d.Tracking(o, s, v))
	case o.Kind == "evaluation":
		ev.p.keepEvaluation(d.Evaluation(o, s, v))
	default:
		ev.p.keepAlert(d.Alert(o, s, v))
	}
	named := func(e *decode.Evaluation) bool { return e.Name == o.Name }
	if o.Kind == "evaluation" && !slices.ContainsFunc(ev.p.held, named) {
		ev.p.unread = append(ev.p.unread, o.Name)
	}
	ev.diags = append(ev.diags, d.Diags...)
	return &result{value: v}
}

// withoutReferences is the value of a body without those of blocks, whose outputs are not known before they run.
func withoutReferences(s *spec.Schema, v cty.Value) cty.Value {
	values := v.AsValueMap()
	for _, a := range s.Attributes {
		if len(a.References) > 0 {
			delete(values, a.Name)
		}
	}
	return cty.ObjectVal(values)
}

// referencesKnown reports whether each attribute of a body that refers to blocks names some.
func referencesKnown(s *spec.Schema, v cty.Value) bool {
	return !slices.ContainsFunc(s.Attributes, func(a *spec.Attribute) bool {
		return len(a.References) > 0 && !v.GetAttr(a.Name).IsKnown()
	})
}

// keepEvaluation keeps an evaluation in place of an earlier one of its name; nil is none.
func (p *evaluator) keepEvaluation(e *decode.Evaluation) {
	if e == nil {
		return
	}
	p.held = slices.DeleteFunc(p.held, func(f *decode.Evaluation) bool { return f.Name == e.Name })
	p.held = append(p.held, e)
}

// keepTracking keeps a tracking block in place of an earlier one of its name; nil is none.
func (p *evaluator) keepTracking(t *decode.Tracking) {
	if t == nil {
		return
	}
	p.trackers = slices.DeleteFunc(p.trackers, func(u *decode.Tracking) bool {
		return u.Tracker == t.Tracker && u.Name == t.Name
	})
	p.trackers = append(p.trackers, t)
}

// keepAlert keeps an alert in place of an earlier one of its name; nil is none.
func (p *evaluator) keepAlert(a *decode.Alert) {
	if a == nil {
		return
	}
	p.alerts = slices.DeleteFunc(p.alerts, func(b *decode.Alert) bool { return b.Name == a.Name })
	p.alerts = append(p.alerts, a)
	p.secrets.Add(a.Webhook)
}

// checkAlerts reports alerts about blocks that the recipe does not have.
func checkAlerts(alerts []*decode.Alert, blocks []*Block) (diags hcl.Diagnostics) {
	for _, a := range alerts {
		if _, err := addr.Parse(a.Block); a.Block == "" || err != nil || named(a.Block, blocks) != nil {
			continue
		}
		known := make([]string, 0, len(blocks))
		for _, b := range blocks {
			known = append(known, b.Addr.String())
		}
		slices.Sort(known)
		diags = append(diags, diagnostic.Problem(a.Range, "Unknown block",
			fmt.Sprintf("alert.%s is about %s, which the recipe does not have; it has %s.%s", a.Name, a.Block,
				diagnostic.List(known), diagnostic.DidYouMean(a.Block, known))))
	}
	return diags
}
