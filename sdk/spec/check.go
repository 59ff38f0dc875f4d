package spec

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/kind"
)

// Check finds everything in v, a body of the schema, that its types alone do not rule out: missing and unknown names,
// wrong types, values outside enum, min, max and pattern, references to a block of the wrong kind. Unknown values pass
// (they are checked again when they are known) and marks are ignored. Details never show a value that is sensitive.
func (s *Schema) Check(v cty.Value) []Problem {
	if v == cty.NilVal {
		return nil
	}
	return s.checkBody(v, nil)
}

func (s *Schema) checkBody(v cty.Value, path cty.Path) []Problem {
	if v == cty.NilVal || v.IsNull() || !v.IsKnown() {
		return nil
	}
	if !v.Type().IsObjectType() && !v.Type().IsMapType() {
		return []Problem{{Path: path, Summary: "Wrong type", Detail: "Expected an object, got " +
			v.Type().FriendlyName() + "."}}
	}
	v, _ = v.Unmark()
	values := v.AsValueMap()
	var problems []Problem
	for _, a := range s.Attributes {
		problems = append(problems, a.Check(values[a.Name], append(path.Copy(), cty.GetAttrStep{Name: a.Name}))...)
	}
	for _, b := range s.Blocks {
		problems = append(problems, b.check(values[b.Name], append(path.Copy(), cty.GetAttrStep{Name: b.Name}))...)
	}
	for name := range values {
		if s.Attribute(name) == nil && s.Block(name) == nil {
			problems = append(problems, Problem{Path: append(path.Copy(), cty.GetAttrStep{Name: name}),
				Summary: "Unknown attribute",
				Detail:  fmt.Sprintf("There is no attribute %q here.", name)})
		}
	}
	return problems
}

func (b *Block) check(v cty.Value, path cty.Path) []Problem {
	if v != cty.NilVal {
		v, _ = v.Unmark()
	}
	absent := v == cty.NilVal || v.IsNull() || (b.Nesting == List && v.IsKnown() && v.CanIterateElements() &&
		v.LengthInt() == 0)
	if absent {
		if b.Required {
			return []Problem{{Path: path, Summary: "Missing block",
				Detail: fmt.Sprintf("A block %q is required: write %s { … }.", b.Name, b.Name)}}
		}
		return nil
	}
	if b.Nesting == Single {
		return b.Schema.checkBody(v, path)
	}
	if !v.IsKnown() {
		return nil
	}
	if !v.CanIterateElements() || v.Type().IsObjectType() || v.Type().IsMapType() {
		return []Problem{{Path: path, Summary: "Wrong type", Detail: "Expected a list of objects, got " +
			v.Type().FriendlyName() + "."}}
	}
	var problems []Problem
	i := int64(0)
	for it := v.ElementIterator(); it.Next(); i++ {
		_, elem := it.Element()
		problems = append(problems,
			b.Schema.checkBody(elem, append(path.Copy(), cty.IndexStep{Key: cty.NumberIntVal(i)}))...)
	}
	return problems
}

// Check is Schema.Check for the value of one attribute; cty.NilVal means that it is not set. Path is put before
// the paths of the problems.
func (a *Attribute) Check(v cty.Value, path cty.Path) []Problem {
	if v == cty.NilVal || v.IsNull() {
		if a.Required {
			return []Problem{{Path: path, Summary: "Missing attribute",
				Detail: fmt.Sprintf("The attribute %q is required: %s.", a.Name, a.expected())}}
		}
		return nil
	}
	if v.ContainsMarked() {
		v, _ = v.UnmarkDeep()
		hidden := *a
		hidden.Sensitive = true // a marked value is not shown either
		a = &hidden
	}
	return a.check(v, path)
}

func (a *Attribute) check(v cty.Value, path cty.Path) []Problem {
	if !v.IsKnown() {
		return nil
	}
	if len(a.References) > 0 {
		return a.checkReferences(v, path)
	}
	if a.Type != cty.DynamicPseudoType && !v.Type().Equals(a.Type.WithoutOptionalAttributesDeep()) {
		converted, err := Convert(v, a.Type)
		if err != nil {
			return []Problem{a.problem(path, "Wrong type", "got "+describe(v.Type())+conversionHint(err))}
		}
		v = converted
	}
	if problems := a.checkNumbers(v, path); len(problems) > 0 {
		return problems
	}
	var problems []Problem
	if p := a.checkRange(v, path); p != nil {
		problems = append(problems, *p)
	}
	if !v.Type().IsCollectionType() && a.Format != FormatMap && a.Format != FormatList {
		return append(problems, a.checkElement(v, path)...)
	}
	if !v.CanIterateElements() {
		return append(problems, a.problem(path, "Wrong type", "got "+describe(v.Type())))
	}
	if isMap := v.Type().IsMapType() || v.Type().IsObjectType(); a.Type == cty.DynamicPseudoType &&
		isMap != (a.Format == FormatMap) {
		return append(problems, a.problem(path, "Wrong type", "got "+describe(v.Type())))
	}
	if a.Type == cty.DynamicPseudoType {
		return problems
	}
	for it := v.ElementIterator(); it.Next(); {
		key, elem := it.Element()
		problems = append(problems, a.checkElement(elem, append(path.Copy(), cty.IndexStep{Key: key}))...)
	}
	return problems
}

func conversionHint(err error) string {
	if errors.As(err, new(cty.PathError)) {
		return " (" + err.Error() + ")"
	}
	return ""
}

// checkElement applies format, enum and pattern to the value or to one element of it.
func (a *Attribute) checkElement(v cty.Value, path cty.Path) []Problem {
	if !v.IsKnown() {
		return nil
	}
	if v.IsNull() {
		return []Problem{a.problem(path, "Null element", "got null inside a collection; leave the element out")}
	}
	var problems []Problem
	switch {
	case a.Format == FormatInteger && v.Type() == cty.Number && !v.AsBigFloat().IsInt():
		problems = append(problems, a.problem(path, "Not a whole number", "got "+a.show(v)))
	case a.Format == FormatDuration && v.Type() == cty.String:
		if _, err := time.ParseDuration(v.AsString()); err != nil {
			problems = append(problems, a.problem(path, "Not a duration", "got "+a.show(v)))
		}
	}
	if a.Format == FormatCode && v.Type() == cty.String {
		if _, err := ParseCode(v.AsString()); err != nil {
			problems = append(problems, a.problem(path, "Not a function in a file", "got "+a.show(v)))
		}
	}
	if a.Format == FormatCallable && v.Type() == cty.String {
		if _, err := ParseCallable(v.AsString()); err != nil {
			problems = append(problems, a.problem(path, "Not a function in a file or a module", "got "+a.show(v)))
		}
	}
	if len(a.Enum) > 0 && v.Type() == cty.String && !slices.Contains(a.Enum, v.AsString()) {
		problems = append(problems, a.problem(path, "Value not allowed", "got "+a.show(v)))
	}
	if a.Pattern != "" && v.Type() == cty.String && !a.matches(v.AsString()) {
		problems = append(problems, a.problem(path, "Value not allowed", "got "+a.show(v)))
	}
	return problems
}

// checkNumbers finds the numbers in a value that no plugin could be given: a recipe's numbers have no bounds, a
// program's have.
func (a *Attribute) checkNumbers(v cty.Value, path cty.Path) []Problem {
	if v.Type() == cty.String || v.Type() == cty.Bool {
		return nil
	}
	var problems []Problem
	_ = cty.Walk(v, func(inner cty.Path, v cty.Value) (bool, error) { // the function returns no error
		if v.Type() == cty.Number && v.IsKnown() && !v.IsNull() {
			if why := unfit(v.AsBigFloat(), a.Format == FormatInteger); why != "" {
				problems = append(problems, a.problem(append(path.Copy(), inner...), "Number out of range",
					"got "+a.show(v)+", "+why))
			}
		}
		return true, nil
	})
	return problems
}

// unfit explains why a number fits into no variable of a program; empty: it fits.
func unfit(x *big.Float, whole bool) string {
	switch f, _ := x.Float64(); {
	case whole && x.IsInt() && !x.IsInf() && (x.Cmp(big.NewFloat(math.MinInt64)) < 0 ||
		x.Cmp(big.NewFloat(math.MaxInt64)) >= 0):
		return "and a whole number has at most 64 bits: it lies between -9.2e18 and 9.2e18"
	case math.IsInf(f, 0):
		return "and a number is at most 1.8e308"
	case f == 0 && x.Sign() != 0:
		return "which cannot be distinguished from 0: the smallest number is 5e-324"
	}
	return ""
}

func (a *Attribute) matches(s string) bool {
	re := a.pattern
	if re == nil { // a schema written by hand
		var err error
		if re, err = regexp.Compile(`^(?:` + a.Pattern + `)$`); err != nil {
			return false
		}
	}
	return re.MatchString(s)
}

func (a *Attribute) checkRange(v cty.Value, path cty.Path) *Problem {
	if a.Min == nil && a.Max == nil {
		return nil
	}
	var x *big.Float
	switch {
	case v.Type() == cty.Number:
		x = v.AsBigFloat()
	case a.Format == FormatDuration && v.Type() == cty.String:
		d, err := time.ParseDuration(v.AsString())
		if err != nil {
			return nil // reported by checkElement
		}
		x = big.NewFloat(d.Seconds())
	case v.CanIterateElements():
		x = big.NewFloat(float64(v.LengthInt()))
	default:
		return nil
	}
	if (a.Min != nil && x.Cmp(big.NewFloat(*a.Min)) < 0) || (a.Max != nil && x.Cmp(big.NewFloat(*a.Max)) > 0) {
		given := "got " + a.show(v)
		if v.CanIterateElements() {
			given = fmt.Sprintf("got %d elements", v.LengthInt())
		}
		p := a.problem(path, "Value out of range", given)
		return &p
	}
	return nil
}

func (a *Attribute) checkReferences(v cty.Value, path cty.Path) []Problem {
	if !a.List {
		return a.checkReference(v, path)
	}
	if t := v.Type(); !t.IsTupleType() && !t.IsListType() && !t.IsSetType() {
		return []Problem{a.problem(path, "Wrong type", "got "+describeBlock(v)+"; put it in brackets: [ … ]")}
	}
	var problems []Problem
	if p := a.checkRange(v, path); p != nil {
		problems = append(problems, *p)
	}
	i := int64(0)
	for it := v.ElementIterator(); it.Next(); i++ {
		_, elem := it.Element()
		problems = append(problems,
			a.checkReference(elem, append(path.Copy(), cty.IndexStep{Key: cty.NumberIntVal(i)}))...)
	}
	return problems
}

func (a *Attribute) checkReference(v cty.Value, path cty.Path) []Problem {
	if !v.IsKnown() {
		return nil
	}
	k, ok := stringMember(v, "kind")
	_, hasAddress := stringMember(v, "address")
	if ok && hasAddress && slices.Contains(a.References, kind.Kind(k)) {
		return nil
	}
	if v.Type().IsObjectType() && (unknownMember(v, "kind") || unknownMember(v, "address")) {
		return nil
	}
	return []Problem{a.problem(path, "Reference to the wrong kind", "got "+describeBlock(v))}
}

func unknownMember(v cty.Value, name string) bool {
	m, ok := member(v, name)
	return ok && !m.IsKnown()
}

func describeBlock(v cty.Value) string {
	address, ok := stringMember(v, "address")
	k, ok2 := stringMember(v, "kind")
	if ok && ok2 {
		return address + ", " + article(k) + " block"
	}
	if v.IsNull() {
		return "null"
	}
	return describe(v.Type())
}

// problem words what was expected and what was given.
func (a *Attribute) problem(path cty.Path, summary, given string) Problem {
	return Problem{Path: path, Summary: summary, Detail: fmt.Sprintf("The attribute %q %s; %s.", a.Name, a.expected(),
		given)}
}

// expected says in words what the attribute takes.
func (a *Attribute) expected() string {
	var b strings.Builder
	b.WriteString("expects " + a.Friendly())
	if len(a.Enum) > 0 {
		quoted := make([]string, len(a.Enum))
		for i, e := range a.Enum {
			quoted[i] = strconv.Quote(e)
		}
		b.WriteString(", one of " + strings.Join(quoted, ", "))
	}
	if a.Pattern != "" {
		b.WriteString(" that matches " + a.Pattern)
	}
	if r := a.Range(); r != "" {
		b.WriteString(" " + r)
	}
	return b.String()
}

// Friendly names the type in words: "a whole number", "a list of inference blocks".
func (a *Attribute) Friendly() string {
	switch {
	case len(a.References) > 0 && a.List:
		return "a list of " + orKinds(a.References) + " blocks"
	case len(a.References) > 0:
		return article(orKinds(a.References)) + " block"
	case a.Format == FormatInteger && a.Type == cty.Number:
		return "a whole number"
	case a.Format == FormatDuration && a.Type == cty.String:
		return `a duration like "30s"`
	case a.Format == FormatCode:
		return `a function in a Python file like "my_loss.py:my_loss"`
	case a.Format == FormatCallable:
		return `a function in a Python file like "rewards.py:accuracy", or in a module like "mylib.rewards:accuracy"`
	case a.Format == FormatMap:
		return "a map"
	case a.Format == FormatList:
		return "a list"
	}
	return describe(a.Type)
}

// Range says in words what min and max allow, or nothing.
func (a *Attribute) Range() string {
	with, unit := "of", ""
	switch {
	case a.Format == FormatDuration:
		unit = " seconds"
	case a.Type != cty.Number:
		with, unit = "with", " element(s)"
	case a.Unit != "":
		unit = " " + a.Unit
	}
	show := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
	switch {
	case a.Min != nil && a.Max != nil && *a.Min == *a.Max:
		return with + " exactly " + show(*a.Min) + unit
	case a.Min != nil && a.Max != nil:
		return "from " + show(*a.Min) + " to " + show(*a.Max) + unit
	case a.Min != nil:
		return with + " at least " + show(*a.Min) + unit
	case a.Max != nil:
		return with + " at most " + show(*a.Max) + unit
	}
	return ""
}

func (a *Attribute) show(v cty.Value) string {
	if a.Sensitive {
		return "another value (not shown: sensitive)"
	}
	switch v.Type() {
	case cty.String:
		return strconv.Quote(v.AsString())
	case cty.Number:
		x := v.AsBigFloat()
		if e := x.MantExp(nil); e > 4096 || e < -4096 { // all of its digits would take minutes
			return fmt.Sprintf("a number of about 10^%.0f", float64(e)*math.Log10(2))
		}
		return x.Text('g', -1)
	}
	return describe(v.Type())
}

func describe(t cty.Type) string {
	switch {
	case t == cty.DynamicPseudoType:
		return "any value"
	case t.IsTupleType():
		return "a list"
	case t.IsObjectType():
		return "an object"
	}
	return article(t.FriendlyNameForConstraint())
}

func article(noun string) string {
	if noun != "" && strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

func orKinds(kinds []kind.Kind) string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k)
	}
	return strings.Join(names, " or ")
}
