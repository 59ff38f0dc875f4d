package define

import (
	"context"
	"fmt"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/wire"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/internal/attempt"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// typed is one plugin value; it decodes the configuration before each call.
type typed[C, P any] struct {
	schema *spec.Schema
	plugin P
	start  func(ctx context.Context, plugin P, req sdk.Request[C], h attempt.Host) error
}

func (t *typed[C, P]) decode(config cty.Value) (C, error) {
	var c C
	if err := spec.Decode(config, t.schema, &c); err != nil {
		return c, fmt.Errorf("decode the block's configuration: %w", err)
	}
	if dynamic, ok := any(&c).(sdk.Dynamic); ok {
		dynamic.SetBody(config)
	}
	return c, nil
}

func (t *typed[C, P]) Run(ctx context.Context, start wire.Start, h attempt.Host) error {
	config, err := t.decode(start.Config)
	if err != nil {
		return err
	}
	return t.start(ctx, t.plugin, sdk.Request[C]{Block: start.Block, Config: config}, h)
}

func (t *typed[C, P]) Prepare(ctx context.Context, start wire.Start, h sdk.Host,
	started, settled <-chan struct{}) error {
	preparer, ok := any(t.plugin).(sdk.Preparer[C])
	if !ok {
		return attempt.ErrUnsupported
	}
	config, err := t.decode(start.Config)
	if err != nil {
		return err
	}
	return preparer.Prepare(ctx, sdk.Request[C]{Block: start.Block, Config: config, Settled: settled}, h, started)
}

func (t *typed[C, P]) Update(ctx context.Context, value cty.Value) error {
	updater, ok := any(t.plugin).(sdk.Updater[C])
	if !ok {
		return attempt.ErrUnsupported
	}
	config, err := t.decode(value)
	if err != nil {
		return err
	}
	return updater.Update(ctx, config)
}

func (t *typed[C, P]) validate(value cty.Value) ([]spec.Problem, error) {
	validator, ok := any(t.plugin).(sdk.Validator[C])
	if !ok {
		return nil, nil
	}
	config, err := t.decode(value)
	if err != nil {
		return nil, err
	}
	return validator.Validate(config), nil
}

func (t *typed[C, P]) plan(value cty.Value, placement sdk.Placement) (sdk.Estimate, []spec.Problem, error) {
	planner, ok := any(t.plugin).(sdk.Planner[C])
	if !ok {
		return sdk.Estimate{}, nil, nil
	}
	config, err := t.decode(value)
	if err != nil {
		return sdk.Estimate{}, nil, err
	}
	estimate, problems := planner.Plan(config, placement)
	return estimate, problems, nil
}

func (t *typed[C, P]) Evaluate(ctx context.Context, limit int) (map[string]float64, sdk.TaskScores, error) {
	switch evaluator := any(t.plugin).(type) {
	case sdk.RecordedEvaluator:
		return evaluator.EvaluateRecorded(ctx, limit)
	case sdk.Evaluator:
		metrics, version, err := evaluator.Evaluate(ctx, limit)
		return metrics, sdk.TaskScores{PolicyVersion: version}, err
	}
	return nil, sdk.TaskScores{}, attempt.ErrUnsupported
}

func (t *typed[C, P]) EvaluateTasks(ctx context.Context, req sdk.EvaluateTasks) (sdk.TaskScores, error) {
	evaluator, ok := any(t.plugin).(sdk.TaskEvaluator)
	if !ok {
		return sdk.TaskScores{}, attempt.ErrUnsupported
	}
	return evaluator.EvaluateTasks(ctx, req)
}

func (t *typed[C, P]) Rescore(ctx context.Context, group sdk.RecordedGroup) (sdk.RescoredGroup, error) {
	rescorer, ok := any(t.plugin).(sdk.Rescorer)
	if !ok {
		return sdk.RescoredGroup{}, attempt.ErrUnsupported
	}
	return rescorer.Rescore(ctx, group)
}

func (t *typed[C, P]) Checkpoint(ctx context.Context) (sdk.CheckpointInfo, error) {
	checkpointer, ok := any(t.plugin).(sdk.Checkpointer)
	if !ok {
		return sdk.CheckpointInfo{}, attempt.ErrUnsupported
	}
	return checkpointer.SaveCheckpoint(ctx)
}
