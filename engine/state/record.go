package state

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/recipe-rl/recipe/sdk/spec"
)

// Recordable turns the body of a block into a form to store and compare: one JSON text per attribute or nested block.
// References are reduced to the address, unknown values to {"unknown": true}, sensitive ones to a keyed fingerprint.
// Two bodies are the same declaration if and only if their recordable forms are equal.
func Recordable(v cty.Value, schema *spec.Schema, dir Dir) (map[string]json.RawMessage, error) {
	v, _ = v.Unmark()
	out := map[string]json.RawMessage{}
	if v.IsNull() || !v.IsKnown() {
		return out, nil
	}
	sensitive := map[string]bool{}
	for _, a := range schema.Attributes {
		sensitive[a.Name] = a.Sensitive
	}
	for name := range v.Type().AttributeTypes() {
		j, err := recordable(v.GetAttr(name), sensitive[name], dir)
		if err != nil {
			return nil, fmt.Errorf("record attribute %s: %w", name, err)
		}
		b, err := json.Marshal(j)
		if err != nil {
			return nil, fmt.Errorf("record attribute %s: %w", name, err)
		}
		if string(b) != "null" {
			out[name] = b
		}
	}
	return out, nil
}

func recordable(v cty.Value, sensitive bool, dir Dir) (any, error) {
	if v.IsMarked() || sensitive {
		return fingerprint(v, dir)
	}
	if !v.IsKnown() {
		return map[string]any{"unknown": true}, nil
	}
	if v.IsNull() {
		return nil, nil
	}
	ty := v.Type()
	if address, ok := reference(v); ok {
		return map[string]any{"ref": address}, nil
	}
	switch {
	case ty == cty.Number:
		return number(v.AsBigFloat()), nil
	case ty.IsPrimitiveType():
		b, err := ctyjson.Marshal(v, ty)
		return json.RawMessage(b), err
	case ty.IsObjectType() || ty.IsMapType():
		out := map[string]any{}
		for it := v.ElementIterator(); it.Next(); {
			k, e := it.Element()
			j, err := recordable(e, false, dir)
			if err != nil {
				return nil, err
			}
			if j != nil {
				out[k.AsString()] = j
			}
		}
		return out, nil
	case ty.IsTupleType() || ty.IsListType() || ty.IsSetType():
		out := []any{}
		for it := v.ElementIterator(); it.Next(); {
			_, e := it.Element()
			j, err := recordable(e, false, dir)
			if err != nil {
				return nil, err
			}
			out = append(out, j)
		}
		return out, nil
	default:
		return nil, fmt.Errorf("a value of type %s cannot be recorded", ty.FriendlyName())
	}
}

// reference returns the address in the object of another block.
func reference(v cty.Value) (string, bool) {
	ty := v.Type()
	if !ty.IsObjectType() || !ty.HasAttribute("address") || !ty.HasAttribute("kind") {
		return "", false
	}
	a, _ := v.GetAttr("address").Unmark()
	if a.Type() != cty.String || !a.IsKnown() || a.IsNull() {
		return "", false
	}
	return a.AsString(), true
}

func fingerprint(v cty.Value, dir Dir) (any, error) {
	v, _ = v.UnmarkDeep()
	if !v.IsWhollyKnown() {
		return map[string]any{"sensitive": "unknown"}, nil
	}
	if v.IsNull() {
		return nil, nil
	}
	b, err := ctyjson.Marshal(v, v.Type())
	if err != nil {
		return nil, err
	}
	return map[string]any{"sensitive": dir.Fingerprint(b)}, nil
}

// number formats whole numbers and float64s directly; the general way costs more than all the rest of a plan.
func number(f *big.Float) json.RawMessage {
	if i, exact := f.Int64(); exact == big.Exact {
		return strconv.AppendInt(nil, i, 10)
	}
	if x, exact := f.Float64(); exact == big.Exact {
		return strconv.AppendFloat(nil, x, 'g', -1, 64)
	}
	return []byte(f.Text('g', -1))
}
