package define

import (
	"context"
	"slices"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/internal/attempt"
	"github.com/recipe-rl/recipe/sdk/internal/process"
	"github.com/recipe-rl/recipe/sdk/protocol"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// erased is the implementation of a definition whose configuration is a C. The plugin value is of type P, one of the
// interfaces of the kinds.
type erased[C, P any] struct {
	def     *sdk.Definition
	factory func() P
	start   func(ctx context.Context, plugin P, req sdk.Request[C], h attempt.Host) error
}

// New implements process.Factory.
func (e *erased[C, P]) New() attempt.Plugin { return e.plugin() }

func (e *erased[C, P]) plugin() *typed[C, P] {
	return &typed[C, P]{schema: e.def.Schema, plugin: e.factory(), start: e.start}
}

// Serve implements sdk.Implementation.
func (e *erased[C, P]) Serve() error { return process.Serve(e.def) }

// capabilities are the optional abilities of the plugin value.
func (e *erased[C, P]) capabilities() []string {
	plugin := any(e.factory())
	var found []string
	add := func(name string, ok bool) {
		if ok {
			found = append(found, name)
		}
	}
	_, checkpointer := plugin.(sdk.Checkpointer)
	_, evaluator := plugin.(sdk.Evaluator)
	_, taskEvaluator := plugin.(sdk.TaskEvaluator)
	_, planner := plugin.(sdk.Planner[C])
	_, preparer := plugin.(sdk.Preparer[C])
	_, rescorer := plugin.(sdk.Rescorer)
	_, nodesUser := plugin.(sdk.NodesUser)
	_, updater := plugin.(sdk.Updater[C])
	_, validator := plugin.(sdk.Validator[C])
	add("checkpoint", checkpointer)
	add("evaluate", evaluator)
	add(protocol.EvaluatesTasks, taskEvaluator)
	add("plan", planner)
	add(protocol.CanPrepare, preparer)
	add(protocol.UsesNodes, nodesUser)
	add(protocol.CanRescore, rescorer)
	add("update", updater)
	add("validate", validator)
	return found
}

// Validate implements sdk.Implementation.
func (e *erased[C, P]) Validate(config cty.Value) (problems []spec.Problem, err error) {
	if !slices.Contains(e.def.Capabilities, "validate") {
		return nil, nil
	}
	config, _ = config.UnmarkDeep()
	config = e.def.Schema.ApplyDefaults(config)
	if config.IsNull() || !config.IsKnown() {
		return nil, nil
	}
	check := func(config cty.Value) ([]spec.Problem, error) { return e.plugin().validate(config) }
	if !config.IsWhollyKnown() {
		return certain(e.def.Schema, config, check), nil
	}
	err = attempt.Guard(e.def.ID(), func() (err error) {
		problems, err = check(config)
		return err
	})
	return problems, err
}

// Plan implements sdk.Implementation.
func (e *erased[C, P]) Plan(config cty.Value, placement sdk.Placement) (estimate sdk.Estimate, problems []spec.Problem,
	err error) {
	config = spec.KnownPart(e.def.Schema.ApplyDefaults(config))
	err = attempt.Guard(e.def.ID(), func() (err error) {
		estimate, problems, err = e.plugin().plan(config, placement)
		return err
	})
	return estimate, problems, err
}
