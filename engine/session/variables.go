package session

import (
	"bytes"
	"fmt"
	"path/filepath"

	"github.com/recipe-rl/recipe/engine/lineage"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// reset warns about each variable that had a value when the run was applied last and has its default now: a forgotten
// --var changes a run without a word.
func (s *Session) reset() []plan.Finding {
	l, err := lineage.Read(filepath.Join(string(s.Dir), lineage.FileName))
	if err != nil {
		return nil // none was applied, or its reader reports it
	}
	now, err := s.Recipe.Planned()
	if err != nil {
		return nil // the value itself is reported where it is used
	}
	var out []plan.Finding
	for _, v := range s.Recipe.Variables {
		before, ok := l.Variables[v.Name]
		if !ok || v.Given() || before.Secret || now[v.Name].Secret || bytes.Equal(before.Value, now[v.Name].Value) {
			continue
		}
		value, err := before.Get()
		if err != nil {
			continue
		}
		was := schema.Variable{Type: v.Type, Value: value}
		out = append(out, plan.Finding{Severity: "warning", Range: diagnostic.RangeOf(v.Range),
			Summary: fmt.Sprintf("the variable %s goes back to its default, %s", v.Name, v.Argument()),
			Detail: fmt.Sprintf("It was %s when the run was applied last (%s). Keep that with --var %s.", was.Argument(),
				before.Source, printable.ShellWord(v.Name+"="+was.Argument()))})
	}
	return out
}
