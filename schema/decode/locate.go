package decode

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Locate follows a path through attributes and nested blocks in the source, as far as they match.
func Locate(body *hclsyntax.Body, at hcl.Range, p spec.Problem) hcl.Range {
	path := p.Path
	for len(path) > 0 {
		step, ok := path[0].(cty.GetAttrStep)
		if !ok {
			return at
		}
		if attr := body.Attributes[step.Name]; attr != nil {
			return descend(attr.Expr, path[1:]).Range()
		}
		path = path[1:]
		index := 0
		if len(path) > 0 {
			if i, ok := path[0].(cty.IndexStep); ok {
				if k, ok := addr.KeyOf(i.Key); ok {
					index, _ = k.Int()
				}
				path = path[1:]
			}
		}
		inner := nthBlock(body, step.Name, index)
		if inner == nil {
			return at
		}
		if at = parse.Header(inner); inner.Type == "dynamic" {
			if inner = nthBlock(inner.Body, "content", 0); inner == nil {
				return at
			}
		}
		body = inner.Body
	}
	return at
}

// nthBlock is the nested block that the nth value of a name stands for; a dynamic block stands for any number of
// values.
func nthBlock(body *hclsyntax.Body, name string, n int) *hclsyntax.Block {
	for _, block := range body.Blocks {
		if block.Type == "dynamic" && len(block.Labels) == 1 && block.Labels[0] == name {
			return block
		}
		if block.Type == name {
			if n--; n < 0 {
				return block
			}
		}
	}
	return nil
}

// IsReference reports whether the attribute of that name takes blocks.
func IsReference(s *spec.Schema, name string) bool {
	a := s.Attribute(name)
	return a != nil && len(a.References) > 0
}

// IsPerTask reports whether the attribute of that name may hold members of a task.
func IsPerTask(s *spec.Schema, name string) bool {
	a := s.Attribute(name)
	return a != nil && a.PerTask
}
