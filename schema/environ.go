package schema

import (
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/budget"
)

// names is a set that functions add to while expressions are evaluated, possibly concurrently.
type names struct {
	mu  sync.Mutex
	set map[string]bool
}

func (n *names) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.set == nil {
		n.set = map[string]bool{}
	}
	n.set[name] = true
}

// Environ returns the entries of an environment (as os.Environ) that the recipe reads: those that its expressions have
// read so far, those that an env("NAME") anywhere in its files names, and RECIPE_VAR_NAME of its variables. A
// process that has these loads the recipe with the same result.
func (r *Recipe) Environ(environ []string) []string {
	wanted := map[string]bool{}
	if r.eval != nil {
		r.eval.read.mu.Lock()
		for name := range r.eval.read.set {
			wanted[name] = true
		}
		r.eval.read.mu.Unlock()
	}
	for _, f := range r.Files {
		if body, ok := f.Body.(*hclsyntax.Body); ok {
			namedBy(body, wanted)
		}
	}
	for _, v := range r.Variables {
		wanted["RECIPE_VAR_"+v.Name] = true
	}
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return !wanted[name]
	})
}

// namedBy adds the constant names in calls of env below a node, also of calls not evaluated yet: what depends on
// another block's outputs is evaluated when that block is ready.
func namedBy(below hclsyntax.Node, into map[string]bool) {
	_ = hclsyntax.VisitAll(below, func(n hclsyntax.Node) hcl.Diagnostics {
		e, ok := n.(hclsyntax.Expression)
		if !ok {
			return nil
		}
		call, ok := budget.Plain(e).(*hclsyntax.FunctionCallExpr)
		if !ok || call.Name != "env" || len(call.Args) == 0 {
			return nil
		}
		if v, diags := call.Args[0].Value(nil); !diags.HasErrors() && v.IsKnown() && !v.IsNull() &&
			v.Type() == cty.String {
			into[v.AsString()] = true
		}
		return nil
	})
}
