package run

import (
	"fmt"
	"path/filepath"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// hasCheckpoint compares the recorded checkpoint of a trainer with the disk before a start. With no checkpoint left it
// refuses the start at step 0: the files may have been moved, or their disk is not mounted. With an older one left it
// warns and records that one.
func (s *supervisor) hasCheckpoint(b *blockState) error {
	rec := s.e.store.Block(b.addr())
	if rec == nil || rec.Checkpoint == nil || b.addr().Kind != kind.Trainer {
		return nil
	}
	kept, err := s.e.opts.Dir.CheckpointOnDisk(b.addr(), rec.Checkpoint)
	if err != nil || !kept.Gone {
		return err
	}
	gone := fmt.Sprintf("its checkpoint of step %d, %s, is gone", rec.Checkpoint.Step, rec.Checkpoint.Path)
	switch {
	case kept.Left != nil:
		s.e.notice("warn", fmt.Sprintf("%s: %s; it continues from step %d, %s, the newest that is left", b.addr(), gone,
			kept.Left.Step, kept.Left.Path))
		s.e.note(b.addr(), func(rec *state.Block) { rec.Checkpoint, rec.Step = kept.Left, kept.Left.Step })
		return nil
	case plan.Stored(rec.Config):
		s.e.notice("warn", fmt.Sprintf("%s: %s; it continues from the newest checkpoint in its store", b.addr(), gone))
		return nil
	}
	return &sdk.Error{Summary: gone + ", and it would start at step 0",
		Remedy: fmt.Sprintf("put it back into %s, or start over with recipe apply --from-scratch",
			filepath.Dir(rec.Checkpoint.Path))}
}
