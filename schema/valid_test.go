package schema_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/decode"
)

// TestValidRecipes loads every file of testdata/valid and compares the result with the golden text.
func TestValidRecipes(t *testing.T) {
	t.Parallel()
	for _, path := range valid(t) {
		if strings.HasSuffix(path, ".vars.hcl") {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(path), ".hcl"), func(t *testing.T) {
			t.Parallel()
			r, diags := load(t, path)
			for _, d := range diags {
				if d.Severity == hcl.DiagError {
					t.Error(d)
				}
			}
			golden(t, strings.TrimSuffix(path, ".hcl")+".golden", describe(r))
		})
	}
}

// describe writes the whole result of loading a recipe, with secrets hidden and unknown values marked.
func describe(r *schema.Recipe) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "recipe %s\n", r.Name)
	for _, v := range r.Variables {
		fmt.Fprintf(&out, "variable %s = %s (%s)\n", v.Name, text(v.Value), v.Source)
	}
	for _, b := range r.Blocks {
		fmt.Fprintf(&out, "\n%s\n", b.Addr)
		for _, n := range b.Needs {
			fmt.Fprintf(&out, "  needs %s %s for %s\n", n.On, n.Condition, n.Attribute)
		}
		values := b.Value.AsValueMap()
		names := make([]string, 0, len(values))
		for name := range values {
			names = append(names, name)
		}
		sort.Strings(names)
		for _, name := range names {
			fmt.Fprintf(&out, "  %s = %s\n", name, text(values[name]))
		}
		describeMeta(&out, b.Meta)
	}
	for _, o := range r.Outputs {
		fmt.Fprintf(&out, "\noutput %s = %s\n", o.Name, text(o.Value))
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(&out, "\nwarning: %s\n", w.Error())
	}
	return out.Bytes()
}

func describeMeta(out *bytes.Buffer, m decode.Meta) {
	if m.Placement != nil {
		fmt.Fprintf(out, "  placement %+v\n", *m.Placement)
	}
	if m.Restart != nil {
		fmt.Fprintf(out, "  restart %+v\n", *m.Restart)
	}
	if m.Health != nil {
		fmt.Fprintf(out, "  health %+v\n", *m.Health)
	}
	if m.Runtime != nil {
		fmt.Fprintf(out, "  runtime %+v\n", *m.Runtime)
	}
	names := make([]string, 0, len(m.Environment))
	for name := range m.Environment {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintf(out, "  environment %s = %s\n", name, text(m.Environment[name]))
	}
	for _, rule := range m.StopWhen {
		fmt.Fprintf(out, "  stop when metric=%q %s %v for=%d tokens=%d wall=%s\n", rule.Metric, rule.Op, rule.Value,
			rule.For, rule.Tokens, rule.Wall)
	}
	for _, check := range m.Lifecycle {
		fmt.Fprintf(out, "  check post=%t line %d\n", check.Post, check.Range.Start.Line)
	}
	if m.External != nil {
		fmt.Fprintf(out, "  external %s %s\n", text(m.External.Endpoint), text(cty.ObjectVal(m.External.Values)))
	}
}

// text writes a value in HCL's syntax; a reference is its address.
func text(v cty.Value) string {
	v, marks := v.Unmark()
	if len(marks) > 0 {
		names := make([]string, 0, 2)
		for m := range marks {
			names = append(names, fmt.Sprint(m))
		}
		sort.Strings(names)
		return "(" + strings.Join(names, ", ") + ")"
	}
	switch t := v.Type(); {
	case !v.IsKnown():
		return "?"
	case v.IsNull():
		return "null"
	case t == cty.String:
		return fmt.Sprintf("%q", v.AsString())
	case t == cty.Number:
		return v.AsBigFloat().Text('g', -1)
	case t == cty.Bool:
		return fmt.Sprint(v.True())
	case t.IsObjectType() && t.HasAttribute("address") && t.HasAttribute("kind"):
		return "→" + v.GetAttr("address").AsString()
	case t.IsObjectType() || t.IsMapType():
		var parts []string
		for it := v.ElementIterator(); it.Next(); {
			key, elem := it.Element()
			parts = append(parts, key.AsString()+" = "+text(elem))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	var parts []string
	for it := v.ElementIterator(); it.Next(); {
		_, elem := it.Element()
		parts = append(parts, text(elem))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}
