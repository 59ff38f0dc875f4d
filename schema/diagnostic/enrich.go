package diagnostic

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/addr"
)

// enrich adds the valid names or indices to messages of hcl that only say that one is wrong.
func enrich(d *hcl.Diagnostic) {
	if d.Summary != "Unsupported attribute" && d.Summary != "Invalid index" {
		return
	}
	switch e := d.Expression.(type) {
	case *hclsyntax.ScopeTraversalExpr:
		for i := len(e.Traversal) - 1; i > 0; i-- {
			if v, diags := e.Traversal[:i].TraverseAbs(d.EvalContext); !diags.HasErrors() {
				d.Detail += choices(v, e.Traversal[i])
				return
			}
		}
	case *hclsyntax.RelativeTraversalExpr:
		v, diags := e.Source.Value(d.EvalContext)
		for i := len(e.Traversal) - 1; i >= 0 && !diags.HasErrors(); i-- {
			if inner, diags := e.Traversal[:i].TraverseRel(v); !diags.HasErrors() {
				d.Detail += choices(inner, e.Traversal[i])
				return
			}
		}
	case *hclsyntax.IndexExpr:
		v, diags := e.Collection.Value(d.EvalContext)
		key, keyDiags := e.Key.Value(d.EvalContext)
		if !diags.HasErrors() && !keyDiags.HasErrors() {
			d.Detail += choices(v, hcl.TraverseIndex{Key: key})
		}
	}
}

// choices lists the names or indices that a value has, as the end of a message.
func choices(v cty.Value, step hcl.Traverser) string {
	if v.ContainsMarked() || !v.IsKnown() || v.IsNull() {
		return ""
	}
	t := v.Type()
	switch {
	case t.IsObjectType() || t.IsMapType():
		names := slices.Sorted(maps.Keys(v.AsValueMap()))
		given := ""
		switch step := step.(type) {
		case hcl.TraverseAttr:
			given = step.Name
		case hcl.TraverseIndex:
			if k, ok := addr.KeyOf(step.Key); ok {
				given, _ = k.Str()
			}
		}
		if len(names) > 40 {
			return DidYouMean(given, names)
		}
		return fmt.Sprintf(" It has %s.%s", List(names), DidYouMean(given, names))
	case t.IsTupleType() || t.IsListType():
		if _, isIndex := step.(hcl.TraverseIndex); !isIndex {
			return fmt.Sprintf(" It is a list of %d: write [0] for its first element, or [*] for the attribute of all.",
				v.LengthInt())
		}
		if n := v.LengthInt(); n > 0 {
			return fmt.Sprintf(" It has the indices 0 to %d.", n-1)
		}
		return " It is empty."
	}
	return ""
}
