package session

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk"
)

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
