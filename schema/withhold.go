package schema

// withholdSensitive covers, in the files that diagnostics quote, what is written as the value of a sensitive variable:
// its default, and the arguments of modules. Values from variable files are covered when they are read.
func (p *evaluator) withholdSensitive() {
	for _, m := range p.loader.modules {
		for _, n := range m.variables {
			if v := n.variable; v.Sensitive && v.Fallback != nil {
				p.loader.files.Cover(v.Fallback.Expr.Range())
			}
		}
		if m.call == nil {
			continue
		}
		for name, argument := range m.call.call.Args {
			if n := m.variables[name]; n != nil && n.variable.Sensitive {
				p.loader.files.Cover(argument.Expr.Range())
			}
		}
	}
}
