package function

import (
	"fmt"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// env reads an environment variable; its value is never shown and never stored. A second argument is the value of a
// variable that is not set.
func env(o Options) function.Function {
	return function.New(&function.Spec{
		Params:   []function.Parameter{text("name")},
		VarParam: &function.Parameter{Name: "default", Type: cty.String, AllowNull: true},
		Type:     function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if len(args) > 2 {
				return cty.NilVal, fmt.Errorf("expected a name and at most one default, got %d arguments", len(args))
			}
			name := args[0].AsString()
			value, ok := o.lookup(name)
			switch {
			case ok:
				if o.Secret != nil {
					o.Secret(value)
				}
				return cty.StringVal(value).Mark(o.Sensitive).Mark(o.Ephemeral), nil
			case len(args) == 2:
				return args[1].Mark(o.Sensitive).Mark(o.Ephemeral), nil
			}
			return cty.NilVal, function.NewArgErrorf(0,
				"the environment variable %s is not set; set it, or give a default: env(%q, \"…\")", name, name)
		},
	})
}

// lookup reads a variable of the environment.
func (o Options) lookup(name string) (string, bool) {
	if o.Reads != nil {
		o.Reads(name)
	}
	value, ok := o.Environ[name]
	return value, ok
}

func anyMarked(name string) function.Parameter {
	return function.Parameter{Name: name, Type: cty.DynamicPseudoType, AllowNull: true, AllowUnknown: true,
		AllowDynamicType: true, AllowMarked: true}
}

func same(args []cty.Value) (cty.Type, error) { return args[0].Type(), nil }

func sensitive(o Options) function.Function {
	return function.New(&function.Spec{Params: []function.Parameter{anyMarked("value")}, Type: same,
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return args[0].Mark(o.Sensitive), nil }})
}

// nonsensitive removes the marks: the author of the recipe declares that the value is not secret.
func nonsensitive(Options) function.Function {
	return function.New(&function.Spec{Params: []function.Parameter{anyMarked("value")}, Type: same,
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			v, _ := args[0].UnmarkDeep()
			return v, nil
		}})
}

func isSensitive(o Options) function.Function {
	return function.New(&function.Spec{Params: []function.Parameter{anyMarked("value")},
		Type: function.StaticReturnType(cty.Bool),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			_, marks := args[0].UnmarkDeep()
			_, yes := marks[o.Sensitive]
			return cty.BoolVal(yes), nil
		}})
}
