package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/lineage"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/python"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

// lineagePath is the path of the lineage of a run.
func (e *Engine) lineagePath() string { return filepath.Join(string(e.opts.Dir), lineage.FileName) }

// openLineage reads what an earlier engine has recorded, for checkpoints that were written without an engine.
func (e *Engine) openLineage() {
	l, err := lineage.Read(e.lineagePath())
	if err == nil {
		e.lineage.Store(l)
	} else if !errors.Is(err, os.ErrNotExist) {
		e.notice("warn", err.Error())
	}
}

// buildOf identifies the build of this program; empty when that is unknown.
func buildOf(p schema.Plugins) string {
	if known, ok := p.(interface{ ProgramBuild() string }); ok {
		return known.ProgramBuild()
	}
	return ""
}

// recordLineage records what the run comes from, when a plan is applied.
func (s *supervisor) recordLineage(p *plan.Plan) {
	e := s.e
	rec := e.store.Run()
	var parent *lineage.Parent
	if before := e.lineage.Load(); before != nil {
		parent = before.Parent
	}
	program := ""
	if known, ok := e.opts.Plugins.(schema.Program); ok {
		program = known.ProgramVersion()
	}
	l := lineage.Of(lineage.Run{ID: rec.ID, Recipe: e.opts.Name, File: e.opts.File, Digest: p.Digest,
		Applied: e.now().UTC()}, s.recipe, p, program, e.interpreter(s.recipe.Dir),
		lineage.Here(context.WithoutCancel(s.ctx)), parent)
	if before := e.lineage.Load(); before != nil { // a plan for a part of the recipe leaves the rest as it is
		for a, b := range before.Blocks {
			if _, planned := l.Blocks[a]; !planned && s.recipe.Lookup(a) != nil {
				l.Blocks[a] = b
			}
		}
	}
	e.lineage.Store(l)
	if err := l.Write(e.lineagePath()); err != nil {
		e.notice("warn", fmt.Sprintf("record what the run comes from: %v", err))
	}
}

// lineageFor writes the lineage of the run into the folder of a trainer whose machine may not see that of the run: it
// goes into a store with the trainer's checkpoints.
func (e *Engine) lineageFor(dir string) {
	l := e.lineage.Load()
	if l == nil {
		return
	}
	if err := l.Write(filepath.Join(dir, lineage.FileName)); err != nil {
		e.notice("warn", err.Error())
	}
}

// interpreter finds the Python of blocks whose program runs on this machine.
func (e *Engine) interpreter(dir string) lineage.Interpreter {
	return func(b *schema.Block) string {
		known, ok := e.opts.Plugins.(interface {
			Packages(k kind.Kind, name string, gpu bool) sdk.Packages
		})
		if !ok {
			return ""
		}
		return python.Find(b, known.Packages(b.Addr.Kind, b.Plugin(), interpreter.GPU()), dir)
	}
}

// besideCheckpoint writes the lineage of a checkpoint beside it.
func (e *Engine) besideCheckpoint(a addr.Block, ev event.Event) {
	l := e.lineage.Load()
	if l == nil {
		return
	}
	l = l.Resolve(filepath.Dir(e.opts.File))
	err := l.WriteBeside(lineage.Checkpoint{Address: a, Path: ev.Path, Step: ev.Step, Version: ev.Version,
		Written: e.now().UTC()})
	if err != nil {
		e.notice("warn", fmt.Sprintf("%s: record what checkpoint %s comes from: %v", a, ev.Path, err))
	}
}
