package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk"
)

// warnOfRenamed warns of live runs of this folder whose recipe files are gone: the file of this plan may be one of them
// under another name, and would start a second run beside the first.
func (s *Session) warnOfRenamed(p *plan.Plan) {
	others, err := filepath.Glob(filepath.Join(filepath.Dir(string(s.Dir)), "*"))
	if err != nil {
		return
	}
	for _, path := range others {
		dir := state.Dir(path)
		if sameFile(path, string(s.Dir)) || !dir.Exists() || state.Holder(dir) == nil {
			continue
		}
		rec, err := state.Read(dir)
		if err != nil {
			continue // it is reported where that run is asked for
		}
		file := filepath.Base(rec.File)
		if _, err := os.Stat(filepath.Join(s.Recipe.Dir, file)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		p.Findings = append(p.Findings, plan.Finding{Severity: "warning",
			Summary: fmt.Sprintf("the run %q of this folder is live, and its recipe file %s is gone", rec.Recipe, file),
			Detail: fmt.Sprintf("this plan is for another run, %q, beside it, on the same machine\n"+
				"if %s was renamed to %s: recipe { name = %q } in that file continues the live run; recipe stop -r %s ends it",
				s.Recipe.Name, file, filepath.Base(s.Recipe.File), rec.Recipe, filepath.Base(path))})
	}
}

// owns rejects a run that was started by another recipe file of the same folder with the same recipe name: applying
// would stop its blocks and continue from its checkpoints. If that file no longer exists, it was renamed to this one.
func (s *Session) owns(rec *state.Run) error {
	mine, theirs := filepath.Base(s.Recipe.File), filepath.Base(rec.File)
	if rec.File == "" || mine == theirs {
		return nil
	}
	other := filepath.Join(s.Recipe.Dir, theirs)
	info, err := os.Stat(other)
	if err != nil {
		return nil //nolint:nilerr // it no longer exists
	}
	if own, err := os.Stat(s.Recipe.File); err == nil && os.SameFile(info, own) {
		return nil
	}
	if r, _ := schema.Load(other, schema.Options{}); r.Name != s.Recipe.Name {
		return nil // its recipe has another name now
	}
	return &sdk.Error{
		Summary: fmt.Sprintf("the run %q in this folder belongs to %s, and %s has the same name", s.Recipe.Name, theirs,
			mine),
		Detail: "an apply would stop the blocks of that run and continue from its checkpoints",
		Remedy: fmt.Sprintf(
			"set another name in recipe { name = \"…\" } of %s; if it replaces %s, remove that file, and the run "+
				"continues with %s", mine, theirs, mine),
	}
}
