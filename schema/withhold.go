package schema

import (
	"bytes"

	"github.com/hashicorp/hcl/v2"
)

// withholdSensitive covers, in the files that diagnostics quote, what is written as the value of a sensitive variable:
// its default, and the arguments of modules. Values from variable files are covered when they are read.
func (p *evaluator) withholdSensitive() {
	for _, m := range p.loader.modules {
		for _, n := range m.variables {
			if v := n.variable; v.sensitive && v.fallback != nil {
				p.withhold(v.fallback.Expr.Range())
			}
		}
		if m.call == nil {
			continue
		}
		for name, argument := range m.call.call.args {
			if n := m.variables[name]; n != nil && n.variable.sensitive {
				p.withhold(argument.Expr.Range())
			}
		}
	}
}

// withhold covers a part of a file in what diagnostics quote of it. Lines and columns stay where they are.
func (p *evaluator) withhold(r hcl.Range) {
	file := p.loader.files[r.Filename]
	if file == nil || r.Start.Byte < 0 || r.End.Byte > len(file.Bytes) || r.Start.Byte > r.End.Byte {
		return
	}
	covered := *file // the parsed file may be used by a later load, too
	covered.Bytes = bytes.Clone(file.Bytes)
	for i := r.Start.Byte; i < r.End.Byte; i++ {
		if c := covered.Bytes[i]; c != '\n' && c != '\r' {
			covered.Bytes[i] = '*'
		}
	}
	p.loader.files[r.Filename] = &covered
}
