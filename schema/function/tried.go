package function

import (
	"github.com/hashicorp/hcl/v2/ext/customdecode"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// tried is can or try of hcl with the marks that they drop: whether an expression that uses a sensitive value fails
// tells something about that value, and so does what takes its place.
func tried(f function.Function) function.Function {
	return function.New(&function.Spec{
		Params: f.Params(), VarParam: f.VarParam(),
		Type: f.ReturnTypeForValues,
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			v, err := f.Call(args)
			if err != nil {
				return v, err
			}
			for _, arg := range args {
				marks, failed := marksOf(arg)
				v = v.WithMarks(marks)
				if !failed { // what follows was not looked at
					break
				}
			}
			return v, nil
		},
	})
}

// marksOf are the marks of an argument's value; where it has none because it fails, of the values that it uses.
func marksOf(arg cty.Value) (marks cty.ValueMarks, failed bool) {
	closure := customdecode.ExpressionClosureFromVal(arg)
	v, diags := closure.Value()
	if !diags.HasErrors() {
		_, marks = v.Unmark()
		return marks, false
	}
	marks = cty.ValueMarks{}
	for _, name := range closure.Expression.Variables() {
		if used, diags := name.TraverseAbs(closure.EvalContext); !diags.HasErrors() {
			_, more := used.UnmarkDeep()
			for m := range more {
				marks[m] = struct{}{}
			}
		}
	}
	return marks, true
}
