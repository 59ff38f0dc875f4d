package decode

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// perTask records the files beside the recipe that an attribute filled in for each task names, such as the program of a
// command, and the members of the task, which columns compares.
func (d *Decoder) perTask(a *spec.Attribute, v cty.Value, attr *hclsyntax.Attribute, where string) {
	if !a.PerTask || d.Running || !v.IsWhollyKnown() || v.IsNull() {
		return
	}
	c := claim{attribute: a, at: attr.Expr.Range(), where: where}
	for _, element := range texts(v) {
		if path.Ext(element) != "" && filepath.IsLocal(element) && len(element) <= 4096 {
			d.program(element)
		}
		c.members = append(c.members, spec.TaskMembers(element)...)
	}
	if a.Columns != nil && len(c.members) > 0 {
		d.claimed = append(d.claimed, c)
	}
}

// texts are the texts in a value: itself, or its elements. Secrets are left out.
func texts(v cty.Value) []string {
	switch {
	case v.IsMarked() || v.IsNull():
		return nil
	case v.Type() == cty.String:
		return []string{v.AsString()}
	case !v.CanIterateElements():
		return nil
	}
	var out []string
	for _, element := range v.AsValueSlice() {
		out = append(out, texts(element)...)
	}
	return out
}

// program records a file, if there is one, and the modules beside it that it imports.
func (d *Decoder) program(file string) {
	digest, err := d.Shared.code.files.Content(file)
	if err != nil {
		return
	}
	d.note(file, digest)
	if path.Ext(file) != ".py" {
		return
	}
	if source, err := d.Shared.code.load(file); err == nil {
		d.imported(file, source) // too much code: what it imports does not count
	}
}

// compareMembers reports a member that the first task does not have. Ok: it has all.
func (d *Decoder) compareMembers(c claim, file string, has []string) (ok bool) {
	for _, name := range c.members {
		if slices.Contains(has, name) {
			continue
		}
		d.report(diagnostic.Problem(c.at, "Member not found", fmt.Sprintf("%q in %s: the first task of %s has no member %q. "+
			"It has %s.%s", c.attribute.Name, c.where, file, name, diagnostic.Some(has), diagnostic.DidYouMean(name, has))))
		return false
	}
	return true
}
