package schema

import "github.com/recipe-rl/recipe/schema/parse"

// withholdSensitive covers, in the files that diagnostics quote, what is written as the value of a sensitive variable:
// its default, and the arguments of modules. Values from variable files are covered when they are read.
func withholdSensitive(modules []*module, files *parse.Files) {
	for _, m := range modules {
		for _, n := range m.variables {
			if v := n.variable; v.Sensitive && v.Fallback != nil {
				files.Cover(v.Fallback.Expr.Range())
			}
		}
		if m.call == nil {
			continue
		}
		for name, argument := range m.call.call.Args {
			if n := m.variables[name]; n != nil && n.variable.Sensitive {
				files.Cover(argument.Expr.Range())
			}
		}
	}
}
