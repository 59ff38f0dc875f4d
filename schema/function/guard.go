package function

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

const (
	maxProduct = 1 << 15 // elements: cty takes seconds for so many
	maxMessage = 300     // characters of an error, which may quote an argument of any length
)

// errVast is the error for a number that cty holds but takes minutes to write out.
var errVast = errors.New("a number is outside of -1.8e308 to 1.8e308, or closer to 0 than 5e-324")

// Vast reports whether a float64 cannot hold a number. One that is infinite is: hcl reads 1e1000000000 as such.
func Vast(x *big.Float) bool {
	near, _ := x.Float64()
	return math.IsInf(near, 0) || near == 0 && x.Sign() != 0
}

// guarded makes each function answer with a value or with a short error, whatever it is given: those of cty panic on
// some arguments, and their errors then contain the stack. try, can and templatefile evaluate expressions, in which the
// other functions are called, and do so more than once: they are left as they are.
func guarded(all map[string]function.Function, result func(cty.Value)) map[string]function.Function {
	for name, f := range all {
		if name != "try" && name != "can" {
			all[name] = guard(f, required()[name], result)
		}
	}
	return all
}

// guard wraps one function; check, if any, says what is wrong with known arguments for which the function panics.
func guard(f function.Function, check func(args []cty.Value) error, result func(cty.Value)) function.Function {
	return function.New(&function.Spec{
		Description: f.Description(),
		Params:      f.Params(),
		VarParam:    f.VarParam(),
		Type: func(args []cty.Value) (cty.Type, error) {
			for i, arg := range args {
				if vast(arg) {
					return cty.NilType, function.NewArgError(i, errVast)
				}
			}
			if check != nil {
				if err := check(args); err != nil {
					return cty.NilType, err
				}
			}
			t, err := f.ReturnTypeForValues(args)
			return t, brief(err)
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			v, err := f.Call(args)
			if err == nil && vast(v) {
				err = errVast
			}
			if err == nil && result != nil {
				result(v)
			}
			return v, brief(err)
		},
	})
}

// brief turns a panic into an error, and cuts a long one.
func brief(err error) error {
	if err == nil {
		return nil
	}
	var panicked function.PanicError
	if errors.As(err, &panicked) {
		return fmt.Errorf("it is not defined for these arguments (%s)", cut(fmt.Sprint(panicked.Value)))
	}
	text := err.Error()
	if len(text) <= maxMessage && strings.Count(text, "\n") <= 1 {
		return err
	}
	var arg function.ArgError
	if errors.As(err, &arg) {
		return function.NewArgErrorf(arg.Index, "%s", cut(arg.Error()))
	}
	return errors.New(cut(text))
}

// cut shortens a text in the middle: what is wrong stands at its beginning or at its end.
func cut(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage/2], "") + " … " + strings.ToValidUTF8(text[len(text)-maxMessage/2:], "")
	}
	return text
}

// vast reports that a number outside the range of a float64 is in a value.
func vast(v cty.Value) bool {
	v, _ = v.Unmark()
	switch {
	case !v.IsKnown() || v.IsNull():
		return false
	case v.Type() == cty.Number:
		x := v.AsBigFloat()
		return !x.IsInf() && Vast(x)
	case v.Type().IsPrimitiveType() || !v.CanIterateElements():
		return false
	}
	for it := v.ElementIterator(); it.Next(); {
		if _, elem := it.Element(); vast(elem) {
			return true
		}
	}
	return false
}

// required are what functions demand of their arguments beside a type.
func required() map[string]func(args []cty.Value) error {
	number := func(at int, ok func(x *big.Float) bool, expected string) func(args []cty.Value) error {
		return func(args []cty.Value) error {
			v, _ := args[at].Unmark()
			if v.Type() == cty.Number && v.IsKnown() && !v.IsNull() && !ok(v.AsBigFloat()) {
				return function.NewArgErrorf(at, "expected %s, got %s", expected, v.AsBigFloat().Text('g', 10))
			}
			return nil
		}
	}
	positive := func(x *big.Float) bool { return x.Sign() > 0 && !x.IsInf() }
	return map[string]func(args []cty.Value) error{
		"log": every(number(0, positive, "a number greater than 0"), number(1, func(x *big.Float) bool {
			return positive(x) && x.Cmp(big.NewFloat(1)) != 0
		}, "a base greater than 0 other than 1")),
		"indent": number(0, func(x *big.Float) bool { return x.Sign() >= 0 && x.IsInt() },
			"a whole number of spaces, 0 or more"),
		"pow": func(args []cty.Value) error {
			if number(0, func(x *big.Float) bool { return x.Sign() >= 0 }, "")(args) != nil {
				return number(1, (*big.Float).IsInt, "a whole number, as the base is negative")(args)
			}
			return nil
		},
		"setproduct": func(args []cty.Value) error {
			n := 1
			for _, arg := range args {
				if arg, _ = arg.Unmark(); arg.IsKnown() && !arg.IsNull() && arg.CanIterateElements() {
					n *= arg.LengthInt()
				}
				if n > maxProduct {
					return fmt.Errorf("the result would be too large (more than %d elements)", maxProduct)
				}
			}
			return nil
		},
		"merge": func(args []cty.Value) error {
			for i, arg := range args {
				if t := arg.Type(); t != cty.DynamicPseudoType && !t.IsObjectType() && !t.IsMapType() {
					return function.NewArgErrorf(i, "expected a map or object, got %s", t.FriendlyName())
				}
			}
			return nil
		},
	}
}

func every(checks ...func(args []cty.Value) error) func(args []cty.Value) error {
	return func(args []cty.Value) error {
		for _, check := range checks {
			if err := check(args); err != nil {
				return err
			}
		}
		return nil
	}
}
