package session

import (
	"fmt"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/python"
	"github.com/recipe-rl/recipe/engine/sizing"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/interpreter"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Sizes returns a Sizing that asks built-in plugins, in this process, for the needs of their blocks. Plugins that are
// separate binaries are not asked: a plan starts nothing.
func Sizes(c *host.Catalog, m sizing.Machine) Sizing {
	return func(r *schema.Recipe, kept sizing.Devices) sizing.Result {
		return sizing.Check(r, func(b *schema.Block) (sdk.Estimate, []spec.Problem, error) {
			def := c.Definition(b.Addr.Kind, b.Plugin())
			if def == nil {
				return sdk.Estimate{}, nil, nil
			}
			value, err := settled(b)
			if err != nil {
				return sdk.Estimate{}, nil, err
			}
			placement := placementOf(b.Meta)
			placement.Python = python.Find(b, c.Packages(b.Addr.Kind, b.Plugin(), interpreter.GPU()), r.Dir)
			return def.Plan(value, placement)
		}, m, kept)
	}
}

// settled is a block's body without the values that are unknown before a start.
func settled(b *schema.Block) (cty.Value, error) {
	plain, _ := b.Value.UnmarkDeep()
	v, err := cty.Transform(plain, func(_ cty.Path, v cty.Value) (cty.Value, error) {
		if !v.IsKnown() {
			return cty.NullVal(v.Type()), nil
		}
		return v, nil
	})
	if err != nil {
		return cty.NilVal, fmt.Errorf("read the body of %s: %w", b.Addr, err)
	}
	if v, err = b.Schema.Config.Conform(v); err != nil {
		return cty.NilVal, fmt.Errorf("read the body of %s: %w", b.Addr, err)
	}
	return b.Schema.Config.ApplyDefaults(v), nil
}

func placementOf(m schema.Meta) sdk.Placement {
	if m.Placement == nil {
		return sdk.Placement{}
	}
	return *m.Placement
}
