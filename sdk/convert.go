package sdk

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Validate runs the plugin's own checks on a block's values, in this process. Unknown values are allowed: only what is
// wrong for every value of theirs is a problem; the rest is checked again at Start. It touches nothing.
func (d *Definition) Validate(config cty.Value) (problems []spec.Problem, err error) {
	if !slices.Contains(d.Capabilities, "validate") {
		return nil, nil
	}
	config, _ = config.UnmarkDeep()
	config = d.Schema.ApplyDefaults(config)
	if config.IsNull() || !config.IsKnown() {
		return nil, nil
	}
	check := func(config cty.Value) ([]spec.Problem, error) { return d.impl.instance().validate(config) }
	if !config.IsWhollyKnown() {
		return certain(d.Schema, config, check), nil
	}
	err = guard(d.ID(), func() (err error) {
		problems, err = check(config)
		return err
	})
	return problems, err
}

// Plan asks the plugin what the block will need, in this process. Values that are unknown are handed over as their zero
// values, references among them, so that an estimate can be made before anything runs.
func (d *Definition) Plan(config cty.Value, placement Placement) (estimate Estimate, problems []spec.Problem,
	err error) {
	config = knownPart(d.Schema.ApplyDefaults(config))
	err = guard(d.ID(), func() (err error) {
		estimate, problems, err = d.impl.instance().plan(config, placement)
		return err
	})
	return estimate, problems, err
}

// knownPart replaces unknown values by null.
func knownPart(config cty.Value) cty.Value {
	config, _ = config.UnmarkDeep()
	changed, err := cty.Transform(config, func(_ cty.Path, v cty.Value) (cty.Value, error) {
		if v.IsKnown() {
			return v, nil
		}
		return cty.NullVal(v.Type()), nil
	})
	if err != nil {
		return config
	}
	return changed
}

func diagnosticsOf(problems []spec.Problem) ([]*pluginpb.Diagnostic, error) {
	list := make([]*pluginpb.Diagnostic, 0, len(problems))
	for _, p := range problems {
		path, err := spec.MarshalPath(p.Path)
		if err != nil {
			return nil, fmt.Errorf("encode the path of %q: %w", p.Summary, err)
		}
		list = append(list, &pluginpb.Diagnostic{Warning: p.Warning, Summary: p.Summary, Detail: p.Detail, Path: path})
	}
	return list, nil
}

// describe puts problems into one text.
func describe(problems []spec.Problem) string {
	var b strings.Builder
	for i, p := range problems {
		if i > 0 {
			b.WriteString("; ")
		}
		if len(p.Path) > 0 {
			b.WriteString(spec.PathString(p.Path) + ": ")
		}
		b.WriteString(p.Summary)
		if p.Detail != "" {
			b.WriteString(": " + p.Detail)
		}
	}
	return b.String()
}

func estimateTo(e Estimate) *pluginpb.Estimate {
	out := &pluginpb.Estimate{Notes: e.Notes, Facts: e.Facts}
	for _, a := range e.Amounts {
		out.Amounts = append(out.Amounts, &pluginpb.Amount{Resource: a.Resource, Part: a.Part, Value: a.Value,
			How: a.How})
	}
	return out
}
