package session

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk"
)

// owns refuses a run that another recipe file of the same folder, with the same name, has started: its blocks would be
// stopped and its checkpoints gone on from. A file that is there no more was renamed to this one, or replaced by it.
func (s *Session) owns(rec *state.Run) error {
	mine, theirs := filepath.Base(s.Recipe.File), filepath.Base(rec.File)
	if rec.File == "" || mine == theirs {
		return nil
	}
	other := filepath.Join(s.Recipe.Dir, theirs)
	info, err := os.Stat(other)
	if err != nil {
		return nil //nolint:nilerr // it is gone
	}
	if own, err := os.Stat(s.Recipe.File); err == nil && os.SameFile(info, own) {
		return nil
	}
	if r, _ := schema.Load(other, schema.Options{}); r.Name != s.Recipe.Name {
		return nil // it has a name of its own by now
	}
	return &sdk.Error{
		Summary: fmt.Sprintf("the run %q in this folder belongs to %s, and %s has the same name", s.Recipe.Name, theirs,
			mine),
		Detail: "applied, it would stop the blocks of that run and go on from its checkpoints",
		Remedy: fmt.Sprintf(
			"write recipe { name = \"…\" } with another name in %s; if it replaces %s, remove that file, and the run "+
				"goes on with %s", mine, theirs, mine),
	}
}
