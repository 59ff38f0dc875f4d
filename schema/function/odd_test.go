package function_test

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
	ctyfunction "github.com/zclconf/go-cty/cty/function"

	"github.com/recipe-rl/recipe/schema/function"
)

// odd are arguments that a function may not have been written for.
func odd() []cty.Value {
	vast, _, err := big.ParseFloat("1e99999999", 10, 512, big.ToNearestEven)
	if err != nil {
		panic(err)
	}
	numbers := make([]cty.Value, 30)
	for i := range numbers {
		numbers[i] = cty.NumberIntVal(int64(i))
	}
	return []cty.Value{
		cty.NumberIntVal(-1), cty.Zero, cty.NumberFloatVal(0.5), cty.NumberIntVal(-8), cty.NumberIntVal(1e9),
		cty.NumberFloatVal(1e300), cty.NumberIntVal(math.MinInt64), cty.PositiveInfinity, cty.NegativeInfinity,
		cty.NumberVal(vast),
		cty.StringVal(""), cty.StringVal("a\nb"), cty.StringVal("%1000000000d %*d"), cty.StringVal("[{\"a\": 1e99999999}]"),
		cty.StringVal("a: 1e99999999"), cty.StringVal("1e99999999"), cty.StringVal("/(a*)*/"),
		cty.StringVal(strings.Repeat("9\n", 1<<10)),
		cty.True, cty.NullVal(cty.Number), cty.NullVal(cty.DynamicPseudoType), cty.NullVal(cty.List(cty.String)),
		cty.UnknownVal(cty.Number), cty.UnknownVal(cty.List(cty.String)), cty.DynamicVal,
		cty.StringVal("secret").Mark("sensitive"), cty.Zero.Mark("sensitive"),
		cty.EmptyTupleVal, cty.EmptyObjectVal, cty.ListValEmpty(cty.String), cty.TupleVal(numbers), cty.ListVal(numbers),
		cty.ListVal([]cty.Value{cty.NullVal(cty.String), cty.UnknownVal(cty.String)}),
		cty.SetVal([]cty.Value{cty.StringVal("a"), cty.StringVal("b").Mark("sensitive")}),
		cty.TupleVal([]cty.Value{cty.NullVal(cty.DynamicPseudoType), cty.DynamicVal, cty.StringVal("a").Mark("sensitive")}),
		cty.MapVal(map[string]cty.Value{"a": cty.NullVal(cty.Number)}),
		cty.ObjectVal(map[string]cty.Value{"a": cty.DynamicVal, "b": cty.TupleVal([]cty.Value{cty.PositiveInfinity})}),
	}
}

// Whatever a function is given, it answers with a value or with an error that fits two lines, and soon: written out,
// the largest number here would take minutes and all memory.
func TestFunctionsTakeOddArguments(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	all := function.All(function.Options{Files: &function.Files{Dir: t.TempDir()}, Sensitive: "sensitive",
		Ephemeral: "ephemeral"})
	values := odd()
	for name, f := range all {
		if name == "try" || name == "can" { // take expressions
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			least := len(f.Params())
			for n := least; n <= 3 && (n == least || f.VarParam() != nil); n++ {
				each(values, n, func(args []cty.Value) { call(t, name, f, args) })
			}
		})
	}
}

// each calls do with every sequence of n values.
func each(values []cty.Value, n int, do func(args []cty.Value)) {
	args := make([]cty.Value, n)
	var fill func(i int)
	fill = func(i int) {
		if i == n {
			do(args)
			return
		}
		for _, v := range values {
			args[i] = v
			fill(i + 1)
		}
	}
	fill(0)
}

func call(t *testing.T, name string, f ctyfunction.Function, args []cty.Value) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("%s(%s) panics: %v", name, written(args), r)
		}
	}()
	_, err := f.Call(args)
	if err == nil {
		return
	}
	text := err.Error()
	if strings.Count(text, "\n") > 1 || len(text) > 400 || strings.Contains(text, "panic") ||
		strings.Contains(text, "goroutine") {
		t.Errorf("%s(%s): the error is %.300q", name, written(args), text)
	}
}

// What is wrong is said in the terms of the function, not of the library.
func TestErrorsOfOddArguments(t *testing.T) {
	t.Parallel()
	files := &function.Files{Dir: t.TempDir()}
	for src, want := range map[string]string{
		`log(-1, 10)`:                          "expected a number greater than 0, got -1",
		`log(0, 0)`:                            "expected a number greater than 0, got 0",
		`log(8, 1)`:                            "expected a base greater than 0 other than 1, got 1",
		`pow(-8, 0.5)`:                         "expected a whole number, as the base is negative, got 0.5",
		`indent(-1, "a")`:                      "expected a whole number of spaces, 0 or more, got -1",
		`indent(1e9, "a\nb")`:                  "too large",
		`indent(1000000, "a\nb\nc\nd\ne\nf")`:  "too large",
		`format("%1000000000d", 1)`:            "too large",
		`format("%.1000000000f", 1)`:           "too large",
		`format("%*d", 1000000000, 1)`:         "",
		`range(0, 1e9)`:                        "more than 1024 values",
		`setproduct(range(1000), range(1000))`: "too large (more than 32768 elements)",
		`tonumber("1e99999999")`:               "outside of -1.8e308 to 1.8e308",
		`jsondecode("[1e-99999999]")`:          "closer to 0 than 5e-324",
		`yamldecode("a: 1e99999999")`:          "outside of",
		`upper(jsondecode("1e99999999"))`:      "outside of",
		`merge({}, 1)`:                         "expected a map or object, got number",
		`range(1 / 0, 0, -1 / 0)`:              "not defined for these arguments (addition of infinities",
	} {
		_, diags := evaluate(t, files, src)
		if !diags.HasErrors() || !strings.Contains(diags.Error(), want) || strings.Contains(diags.Error(), "panic") {
			t.Errorf("%s: got %v, want an error with %q", src, diags, want)
		}
	}
	for _, src := range []string{`pow(-8, 3)`, `log(8, 0.5)`, `pow(10, 1e9)`, `indent(0, "a\nb")`, `merge({}, null, any)`,
		`setproduct(range(100), range(100))`} {
		if _, diags := evaluate(t, files, src); diags.HasErrors() {
			t.Errorf("%s: %v", src, diags)
		}
	}
}

func written(args []cty.Value) string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = fmt.Sprintf("%.60s", strings.ReplaceAll(fmt.Sprintf("%#v", a), "\n", " "))
	}
	return strings.Join(out, ", ")
}
