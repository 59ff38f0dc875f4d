package decode

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// mostDropped is how many attributes are named of one value.
const mostDropped = 10

// Dropped are warnings about attributes of objects in a value that a type does not have: the conversion to the type
// leaves them out. what names the value, as in "The variable \"o\"".
func Dropped(what string, v cty.Value, t cty.Type, at hcl.Range) hcl.Diagnostics {
	d := drops{what: what, at: at, seen: map[string]bool{}}
	d.object(v, t, "")
	return d.diags
}

type drops struct {
	what  string
	at    hcl.Range
	seen  map[string]bool
	diags hcl.Diagnostics
}

func (d *drops) object(v cty.Value, t cty.Type, path string) {
	v, _ = v.Unmark()
	if v.IsNull() || !v.IsKnown() || len(d.seen) >= mostDropped || !v.CanIterateElements() || !hasObject(t) {
		return
	}
	if t.IsObjectType() {
		if !v.Type().IsObjectType() && !v.Type().IsMapType() {
			return
		}
		known := slices.Sorted(maps.Keys(t.AttributeTypes()))
		given := v.AsValueMap()
		for _, name := range slices.Sorted(maps.Keys(given)) {
			if t.HasAttribute(name) {
				d.object(given[name], t.AttributeType(name), path+"."+name)
			} else {
				d.warn(path, name, known)
			}
		}
		return
	}
	if !t.IsCollectionType() {
		return
	}
	for it := v.ElementIterator(); it.Next(); { // elements may differ: a tuple is converted to a list
		_, elem := it.Element()
		d.object(elem, t.ElementType(), path+"[*]")
	}
}

func (d *drops) warn(path, name string, known []string) {
	if d.seen[path+"."+name] || len(d.seen) >= mostDropped {
		return
	}
	d.seen[path+"."+name] = true
	where := d.what
	if path != "" {
		where += " at " + strings.TrimPrefix(path, ".")
	}
	d.diags = append(d.diags, diagnostic.Warning(d.at, "Unknown attribute", fmt.Sprintf(
		"%s has no attribute %q: the value is left out. Its type has %s.%s", where, name, diagnostic.List(known),
		diagnostic.DidYouMean(name, known))))
}

// hasObject reports whether values of a type have objects, so that attributes can be dropped.
func hasObject(t cty.Type) bool {
	switch {
	case t.IsObjectType():
		return true
	case t.IsTupleType():
		return slices.ContainsFunc(t.TupleElementTypes(), hasObject)
	case t.IsCollectionType():
		return hasObject(t.ElementType())
	}
	return false
}
