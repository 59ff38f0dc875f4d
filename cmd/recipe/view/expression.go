package view

import (
	"encoding/json"
	"math/big"

	"github.com/zclconf/go-cty/cty"
)

// Expression writes a value as it would stand in a recipe. Secrets are named, not shown; so is what is not known yet.
func Expression(v cty.Value) string {
	raw, err := json.Marshal(plain(v))
	if err != nil {
		return v.GoString()
	}
	return Value(raw)
}

// plain is a value as Value reads it: the same markers that a recorded value has.
func plain(v cty.Value) any {
	if v.IsMarked() {
		return map[string]any{"sensitive": true}
	}
	if !v.IsKnown() {
		return map[string]any{"unknown": true}
	}
	if v.IsNull() {
		return nil
	}
	ty := v.Type()
	switch {
	case ty == cty.String:
		return v.AsString()
	case ty == cty.Bool:
		return v.True()
	case ty == cty.Number:
		return json.Number(v.AsBigFloat().Text('g', digits(v.AsBigFloat())))
	case ty.IsObjectType() || ty.IsMapType():
		out := map[string]any{}
		for it := v.ElementIterator(); it.Next(); {
			key, element := it.Element()
			out[key.AsString()] = plain(element)
		}
		return out
	case v.CanIterateElements():
		out := []any{}
		for it := v.ElementIterator(); it.Next(); {
			_, element := it.Element()
			out = append(out, plain(element))
		}
		return out
	default:
		return v.GoString()
	}
}

// digits is how many a number needs: all for whole numbers, as many as a float64 holds otherwise.
func digits(f *big.Float) int {
	if f.IsInt() {
		return max(len(f.Text('f', 0)), 1)
	}
	return 16
}
