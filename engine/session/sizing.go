package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/python"
	"github.com/recipe-rl/recipe/engine/sizing"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
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
			var refused *schema.NotTrusted
			placement.Python, refused = pythonOf(c, b, r.Dir)
			estimate, problems, err := def.Plan(value, placement)
			problems = append(problems, unusable(c, b, r.Dir)...)
			if refused != nil {
				problems = append(problems, spec.Problem{Path: cty.GetAttrPath("runtime"), Warning: true,
					Summary: refused.Error(), Detail: refused.Remedy()})
			}
			return estimate, problems, err
		}, m, kept)
	}
}

// Facts are what the plugin of a block knows of it before it runs, see sdk.Estimate; none of a separate binary.
func Facts(c *host.Catalog, b *schema.Block) map[string]string {
	def := c.Definition(b.Addr.Kind, b.Plugin())
	if def == nil || b.Meta.External != nil {
		return nil
	}
	value, err := settled(b)
	if err != nil {
		return nil
	}
	estimate, _, err := def.Plan(value, placementOf(b.Meta))
	if err != nil {
		return nil
	}
	return estimate.Facts
}

// pythonOf is the interpreter that a trainer's program may be asked with; empty, and why, where the recipe brings it
// and it is not trusted.
func pythonOf(c *host.Catalog, b *schema.Block, dir string) (string, *schema.NotTrusted) {
	path := python.Find(b, c.Packages(b.Addr.Kind, b.Plugin(), interpreter.GPU()), dir)
	if path == "" || b.Addr.Kind != kind.Trainer { // no other plugin asks its program
		return "", nil
	}
	if use, foreign := python.Foreign(b, path, dir); foreign {
		var refused *schema.NotTrusted
		if err := c.Trust.Allow(use); errors.As(err, &refused) {
			return "", refused
		} else if err != nil {
			return "", nil
		}
	}
	return path, nil
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
	return localFolders(b, localModels(b, b.Schema.Config.ApplyDefaults(v))), nil
}

// localFolders makes the paths of folders absolute that count with what they have: a plugin looks into them for a plan.
func localFolders(b *schema.Block, v cty.Value) cty.Value {
	values := v.AsValueMap()
	for _, a := range b.Schema.Config.Attributes {
		m, ok := values[a.Name]
		if a.Format != spec.FormatFile || a.Within != "" || !ok || !m.IsKnown() || m.IsNull() {
			continue
		}
		path := m.AsString()
		if !filepath.IsAbs(path) {
			path = filepath.Join(b.Folder(), path)
		}
		whole, err := filepath.Abs(path)
		if info, missing := os.Stat(path); err == nil && missing == nil && info.IsDir() {
			values[a.Name] = cty.StringVal(whole)
		}
	}
	return cty.ObjectVal(values)
}

// localModels makes the paths of models absolute: a plugin that is asked for a plan does not know the recipe's folder.
func localModels(b *schema.Block, v cty.Value) cty.Value {
	values := v.AsValueMap()
	for _, a := range b.Schema.Config.Attributes {
		m, ok := values[a.Name]
		if a.Format != spec.FormatModel || !ok || !m.IsKnown() || m.IsNull() || filepath.IsAbs(m.AsString()) {
			continue
		}
		path, err := filepath.Abs(filepath.Join(b.Folder(), m.AsString()))
		if err != nil {
			continue
		}
		// A trainer runs in the recipe's folder and finds a folder there by its name alone.
		_, missing := os.Stat(filepath.Join(path, "config.json"))
		if strings.HasPrefix(m.AsString(), ".") || b.Addr.Kind == kind.Trainer && missing == nil {
			values[a.Name] = cty.StringVal(path)
		}
	}
	return cty.ObjectVal(values)
}

func placementOf(m decode.Meta) sdk.Placement {
	if m.Placement == nil {
		return sdk.Placement{}
	}
	return *m.Placement
}
