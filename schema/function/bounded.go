package function

import (
	"fmt"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// maxResult bounds the result of one call, in bytes or elements: a short expression must not exhaust the memory.
const maxResult = 4 << 20

// sized rejects calls whose result would be too large; size estimates it from known arguments.
func sized(f function.Function, size func(args []cty.Value) int) function.Function {
	return function.New(&function.Spec{
		Description: f.Description(),
		Params:      f.Params(),
		VarParam:    f.VarParam(),
		Type:        f.ReturnTypeForValues,
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if n := size(args); n > maxResult || n < 0 {
				return cty.NilVal, fmt.Errorf("the result would be too large (more than %d MiB or as many elements)",
					maxResult>>20)
			}
			return f.Call(args)
		},
	})
}

func textOf(v cty.Value) string {
	v, _ = v.Unmark()
	if v.IsKnown() && !v.IsNull() && v.Type() == cty.String {
		return v.AsString()
	}
	return ""
}

// formatSize bounds the widths and precisions in a format string, which Go's formatting obeys without limit.
func formatSize(args []cty.Value) int {
	total, run := 0, 0
	for _, c := range textOf(args[0]) {
		if c >= '0' && c <= '9' {
			run = min(run*10+int(c-'0'), maxResult+1)
			total = max(total, run)
		} else {
			run = 0
		}
	}
	for _, arg := range args {
		total += sizeOf(arg)
	}
	return total
}

func sizeOf(v cty.Value) int {
	v, _ = v.Unmark()
	switch {
	case !v.IsKnown() || v.IsNull():
		return 0
	case v.Type() == cty.String:
		return len(v.AsString())
	case v.Type() == cty.Number:
		exponent := v.AsBigFloat().MantExp(nil)
		return max(exponent, -exponent)/3 + 16
	case v.CanIterateElements():
		return v.LengthInt()
	}
	return 0
}

func indentSize(args []cty.Value) int {
	v, _ := args[0].Unmark()
	if !v.IsKnown() || v.IsNull() {
		return 0
	}
	n, _ := v.AsBigFloat().Int64()
	if n > maxResult {
		return maxResult + 1
	}
	return int(n)*strings.Count(textOf(args[1]), "\n") + len(textOf(args[1]))
}

func joinSize(args []cty.Value) int {
	n := 0
	for _, list := range args[1:] {
		list, _ = list.Unmark()
		if list.IsKnown() && !list.IsNull() && list.CanIterateElements() {
			n += list.LengthInt()
		}
	}
	return n * len(textOf(args[0]))
}
