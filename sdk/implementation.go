package sdk

import (
	"context"
	"errors"
	"fmt"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/spec"
)

// implementation makes instances of a plugin. It is the generic interfaces with the configuration's type erased.
type implementation interface {
	// instance makes a fresh plugin value. Nothing has been started.
	instance() instance
	// capabilities are found on the plugin value: "update", "evaluate", "checkpoint", "plan", "prepare",
	// "validate".
	capabilities() []string
}

// instance is one plugin value, with the configuration's type erased.
type instance interface {
	run(ctx context.Context, start StartRequest, h *host) error
	prepare(ctx context.Context, start StartRequest, h Host, started <-chan struct{}) error
	update(ctx context.Context, config cty.Value) error
	validate(config cty.Value) ([]spec.Problem, error)
	plan(config cty.Value, placement Placement) (Estimate, []spec.Problem, error)
	evaluate(ctx context.Context, limit int) (map[string]float64, int64, error)
	checkpoint(ctx context.Context) (CheckpointInfo, error)
}

// errUnsupported says that the plugin lacks an optional ability.
var errUnsupported = errors.New("the plugin does not support this")

// erased makes instances whose configuration is a C. The plugin value is of type P, one of the interfaces of the kinds.
type erased[C, P any] struct {
	schema  *spec.Schema
	factory func() P
	start   func(ctx context.Context, plugin P, req Request[C], h KindHost) error
}

func (e erased[C, P]) instance() instance {
	return &typed[C, P]{schema: e.schema, plugin: e.factory(), start: e.start}
}

func (e erased[C, P]) capabilities() []string {
	plugin := any(e.factory())
	var found []string
	add := func(name string, ok bool) {
		if ok {
			found = append(found, name)
		}
	}
	_, checkpointer := plugin.(Checkpointer)
	_, evaluator := plugin.(Evaluator)
	_, planner := plugin.(Planner[C])
	_, preparer := plugin.(Preparer[C])
	_, updater := plugin.(Updater[C])
	_, validator := plugin.(Validator[C])
	add("checkpoint", checkpointer)
	add("evaluate", evaluator)
	add("plan", planner)
	add(CanPrepare, preparer)
	add("update", updater)
	add("validate", validator)
	return found
}

type typed[C, P any] struct {
	schema *spec.Schema
	plugin P
	start  func(ctx context.Context, plugin P, req Request[C], h KindHost) error
}

func (t *typed[C, P]) decode(config cty.Value) (C, error) {
	var c C
	if err := spec.Decode(config, t.schema, &c); err != nil {
		return c, fmt.Errorf("decode the block's configuration: %w", err)
	}
	return c, nil
}

func (t *typed[C, P]) run(ctx context.Context, start StartRequest, h *host) error {
	config, err := t.decode(start.Config)
	if err != nil {
		return err
	}
	return t.start(ctx, t.plugin, Request[C]{Block: start.Block, Config: config}, h)
}

func (t *typed[C, P]) prepare(ctx context.Context, start StartRequest, h Host, started <-chan struct{}) error {
	preparer, ok := any(t.plugin).(Preparer[C])
	if !ok {
		return errUnsupported
	}
	config, err := t.decode(start.Config)
	if err != nil {
		return err
	}
	return preparer.Prepare(ctx, Request[C]{Block: start.Block, Config: config}, h, started)
}

func (t *typed[C, P]) update(ctx context.Context, value cty.Value) error {
	updater, ok := any(t.plugin).(Updater[C])
	if !ok {
		return errUnsupported
	}
	config, err := t.decode(value)
	if err != nil {
		return err
	}
	return updater.Update(ctx, config)
}

func (t *typed[C, P]) validate(value cty.Value) ([]spec.Problem, error) {
	validator, ok := any(t.plugin).(Validator[C])
	if !ok {
		return nil, nil
	}
	config, err := t.decode(value)
	if err != nil {
		return nil, err
	}
	return validator.Validate(config), nil
}

func (t *typed[C, P]) plan(value cty.Value, placement Placement) (Estimate, []spec.Problem, error) {
	planner, ok := any(t.plugin).(Planner[C])
	if !ok {
		return Estimate{}, nil, nil
	}
	config, err := t.decode(value)
	if err != nil {
		return Estimate{}, nil, err
	}
	estimate, problems := planner.Plan(config, placement)
	return estimate, problems, nil
}

func (t *typed[C, P]) evaluate(ctx context.Context, limit int) (map[string]float64, int64, error) {
	evaluator, ok := any(t.plugin).(Evaluator)
	if !ok {
		return nil, 0, errUnsupported
	}
	return evaluator.Evaluate(ctx, limit)
}

func (t *typed[C, P]) checkpoint(ctx context.Context) (CheckpointInfo, error) {
	checkpointer, ok := any(t.plugin).(Checkpointer)
	if !ok {
		return CheckpointInfo{}, errUnsupported
	}
	return checkpointer.SaveCheckpoint(ctx)
}
