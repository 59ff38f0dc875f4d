package define

import (
	"math/rand/v2"
	"slices"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/spec"
)

// A plugin's Validate is an ordinary function of a decoded configuration: it has no idea of values that are not known
// yet. So it is asked several times, with different values in the place of those, and only what it finds every time is
// certain. What it finds nothing wrong with the first time, as almost always, costs one call.

// trials is how many configurations are tried. They differ at random, so that two values that are not known vary
// independently.
const trials = 32

// certain asks check about a configuration that holds unknown values and returns the problems that no value of theirs
// could mend. Problems that are about an unknown value itself are left out.
func certain(schema *spec.Schema, config cty.Value, check func(cty.Value) ([]spec.Problem, error)) []spec.Problem {
	var found []spec.Problem
	for i := range trials {
		t := trial{first: i == 0, random: rand.New(rand.NewPCG(uint64(i), 1))}
		problems := tryCheck(check, t.body(schema, config, nil))
		if i == 0 {
			found = slices.DeleteFunc(problems, func(p spec.Problem) bool { return t.about(p.Path) })
		} else {
			found = slices.DeleteFunc(found,
				func(p spec.Problem) bool { return !slices.ContainsFunc(problems, p.Equal) })
		}
		if len(found) == 0 {
			return nil
		}
	}
	return found
}

// tryCheck is check with a made-up value, which need not even decode: the real one is checked again at the start.
func tryCheck(check func(cty.Value) ([]spec.Problem, error), config cty.Value) (problems []spec.Problem) {
	defer func() {
		if recover() != nil {
			problems = nil
		}
	}()
	problems, err := check(config)
	if err != nil {
		return nil
	}
	return problems
}

// trial puts made-up values in the place of unknown ones.
type trial struct {
	first  bool // take the most ordinary value of each
	random *rand.Rand
	paths  []cty.Path // of what was not known
}

// about reports whether a path leads to, or into, a value that was not known.
func (t *trial) about(path cty.Path) bool {
	return slices.ContainsFunc(t.paths, path.HasPrefix)
}

func pick[T any](t *trial, from []T) T {
	if t.first {
		return from[0]
	}
	return from[t.random.IntN(len(from))]
}

func step(path cty.Path, name string) cty.Path {
	return append(path.Copy(), cty.GetAttrStep{Name: name})
}

// body fills in a body of the schema, which is null or an object.
func (t *trial) body(s *spec.Schema, v cty.Value, path cty.Path) cty.Value {
	if v.IsNull() || v.IsWhollyKnown() {
		return v
	}
	values := v.AsValueMap()
	for _, a := range s.Attributes {
		if in, ok := values[a.Name]; ok && !in.IsWhollyKnown() {
			values[a.Name] = t.attribute(a, in, step(path, a.Name))
		}
	}
	for _, b := range s.Blocks {
		if in, ok := values[b.Name]; ok && !in.IsWhollyKnown() {
			values[b.Name] = t.block(b, in, step(path, b.Name))
		}
	}
	return cty.ObjectVal(values)
}

func (t *trial) block(b *spec.Block, v cty.Value, path cty.Path) cty.Value {
	if !v.IsKnown() {
		t.paths = append(t.paths, path)
		made := t.made(b.Schema)
		if b.Nesting == spec.Single {
			return pick(t, []cty.Value{cty.NullVal(made.Type()), made})
		}
		if b.Required {
			return cty.TupleVal([]cty.Value{made})
		}
		return pick(t, []cty.Value{cty.EmptyTupleVal, cty.TupleVal([]cty.Value{made})})
	}
	if b.Nesting == spec.Single {
		return t.body(b.Schema, v, path)
	}
	var out []cty.Value
	for it := v.ElementIterator(); it.Next(); {
		key, elem := it.Element()
		out = append(out, t.body(b.Schema, elem, append(path.Copy(), cty.IndexStep{Key: key})))
	}
	return cty.TupleVal(out)
}

// made is a nested block that is wholly made up.
func (t *trial) made(s *spec.Schema) cty.Value {
	inner := trial{first: t.first, random: t.random}
	values := map[string]cty.Value{}
	for _, a := range s.Attributes {
		values[a.Name] = inner.attribute(a, cty.UnknownVal(a.Type.WithoutOptionalAttributesDeep()), nil)
	}
	return s.ApplyDefaults(cty.ObjectVal(values))
}

// attribute fills in one attribute. What is not known inside of a reference is an output of the other block.
func (t *trial) attribute(a *spec.Attribute, v cty.Value, path cty.Path) cty.Value {
	filled, err := cty.Transform(v, func(inner cty.Path, v cty.Value) (cty.Value, error) {
		switch {
		case v.IsKnown():
			return v, nil
		case len(a.References) > 0 && (len(inner) == 0 || a.List && len(inner) == 1):
			t.paths = append(t.paths, append(path.Copy(), inner...))
			return t.reference(a, len(inner) == 0), nil
		case len(a.References) > 0:
			return cty.NullVal(v.Type()), nil
		}
		t.paths = append(t.paths, append(path.Copy(), inner...))
		if len(inner) > 0 && v.Type() == cty.DynamicPseudoType {
			return cty.NullVal(cty.DynamicPseudoType), nil // its neighbors must be of the same type
		}
		return t.value(a, v.Type(), len(inner) == 0), nil
	})
	if err != nil {
		return cty.NullVal(v.Type())
	}
	return filled
}

func (t *trial) reference(a *spec.Attribute, whole bool) cty.Value {
	ref := cty.ObjectVal(map[string]cty.Value{
		"address": cty.StringVal(string(a.References[0]) + ".unknown.unknown"),
		"kind":    cty.StringVal(string(a.References[0])),
	})
	if !whole || !a.List {
		return ref
	}
	return cty.TupleVal([]cty.Value{ref})
}

// value makes up a value of a type. Whole: of the attribute itself, whose default and bounds hold, and not of an
// element of it.
func (t *trial) value(a *spec.Attribute, ty cty.Type, whole bool) cty.Value {
	var from []cty.Value
	if whole && a.Default != cty.NilVal {
		from = append(from, a.Default)
	} else if whole && !a.Required {
		from = append(from, cty.NullVal(ty))
	}
	switch {
	case ty == cty.String && a.Format == spec.FormatDuration:
		from = append(from, cty.StringVal("1s"), cty.StringVal("10m"), cty.StringVal("100h"))
	case ty == cty.String && len(a.Enum) > 0:
		for _, e := range a.Enum {
			from = append(from, cty.StringVal(e))
		}
	case ty == cty.String:
		from = append(from, cty.StringVal("x"), cty.StringVal("another"))
	case ty == cty.Bool:
		from = append(from, cty.False, cty.True)
	case ty == cty.Number:
		from = append(from, numbers(a, whole)...)
	case ty.IsListType():
		from = append(from, cty.ListValEmpty(ty.ElementType()),
			cty.ListVal([]cty.Value{t.value(a, ty.ElementType(), false)}))
	case ty.IsSetType():
		from = append(from, cty.SetValEmpty(ty.ElementType()),
			cty.SetVal([]cty.Value{t.value(a, ty.ElementType(), false)}))
	case ty.IsMapType():
		from = append(from, cty.MapValEmpty(ty.ElementType()),
			cty.MapVal(map[string]cty.Value{"x": t.value(a, ty.ElementType(), false)}))
	default:
		from = append(from, cty.NullVal(ty))
	}
	return pick(t, from)
}

// numbers are the ends of what an attribute allows, and some between.
func numbers(a *spec.Attribute, whole bool) []cty.Value {
	low, high := -1e6, 1e9
	if whole && a.Min != nil {
		low, high = *a.Min, *a.Min+1e9
	}
	if whole && a.Max != nil {
		high = *a.Max
		low = min(low, high)
	}
	out := []cty.Value{cty.NumberFloatVal(low), cty.NumberFloatVal(high)}
	for _, x := range []float64{0, 0.5, 1, 2, 64, 1e4, 1e6} {
		if x > low && x < high && (a.Format != spec.FormatInteger || x == float64(int64(x))) {
			out = append(out, cty.NumberFloatVal(x))
		}
	}
	return out
}
