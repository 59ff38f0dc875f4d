package run

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/evaluated"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// bestOutput is the output of a trainer that the engine sets: the trainer may have ended before the last result.
const bestOutput = "best_checkpoint"

// noteBest records which checkpoint of a trainer has the best result of the evaluation by which it keeps them. It
// changes with a result and with a checkpoint.
func (s *supervisor) noteBest(b *blockState) {
	if b == nil || b.addr().Kind != kind.Trainer || b.block == nil {
		return
	}
	keeps := schema.KeepsOf(b.block)
	rec := s.e.store.Block(b.addr())
	if _, _, ok := evaluated.Split(keeps.Metric); !ok || rec == nil {
		return
	}
	best := s.e.best(b.addr(), rec.Checkpoint, keeps.Metric)
	if reflect.DeepEqual(best, rec.Best) {
		return
	}
	s.e.note(b.addr(), func(rec *state.Block) { rec.Best = best })
	if b.outputs == cty.NilVal {
		return
	}
	s.setOutputs(b, b.outputs)
	s.e.note(b.addr(), func(rec *state.Block) { rec.Outputs = s.e.storedOutputs(b.outputs, b.block.Schema) })
}

// best is the best of the checkpoints on the disk; nil: none has a result.
func (e *Engine) best(a addr.Block, recorded *state.Checkpoint, metric string) *state.Best {
	found, err := e.opts.Dir.CheckpointsOnDisk(a, recorded)
	if err != nil || len(found) == 0 {
		return nil
	}
	f, err := evaluated.Read(absolute(e.opts.Dir.Checkpoints(a)))
	if err != nil {
		return nil // the trainer reports it where it decides
	}
	best, ok := f.Best(metric, slices.Sorted(maps.Keys(found)))
	if !ok {
		return nil
	}
	return &state.Best{Path: absolute(found[best.Step]), Step: best.Step, Metric: best.Metric, Value: best.Value}
}

// withBest is the outputs of a block with the best checkpoint that is recorded for it.
func (e *Engine) withBest(a addr.Block, outputs cty.Value) cty.Value {
	if a.Kind != kind.Trainer || outputs == cty.NilVal || outputs.IsNull() || !outputs.IsKnown() ||
		!outputs.Type().IsObjectType() || !outputs.Type().HasAttribute(bestOutput) {
		return outputs
	}
	rec := e.store.Block(a)
	if rec == nil || rec.Best == nil && rec.Checkpoint == nil {
		return outputs
	}
	values := outputs.AsValueMap()
	values[bestOutput] = cty.StringVal(cmp.Or(rec.Best, &state.Best{}).Path)
	return cty.ObjectVal(values)
}
