package script

import (
	"context"
	"encoding/json"
	"path/filepath"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Judge scores the rollouts of an environment in Go by a Python function. It runs in processes of its own, each of
// which is ended when one score takes longer than score_timeout.
type Judge struct{ program *program }

// judged is the configuration of an environment whose scores take at most so long.
type judged interface {
	environment.Config
	ScoreLimit() time.Duration
}

// OpenJudge starts the Python program of a plugin: a class with the method judge and the setting reward. The reward is
// the text of an attribute with `code:"callable"`.
func OpenJudge[C judged](ctx context.Context, plugin string, source Source, reward string,
	setup environment.Setup[C]) (*Judge, error) {
	p, err := openProgram(ctx, plugin, source, opening{setup.Name, setup.Environment, setup.Block, setup.Host,
		setup.Config.ScoreLimit()}, func() (map[string]json.RawMessage, error) {
		conv := converter{recipeDir: setup.RecipeDir, folder: filepath.Join(setup.Dir, "code")}
		code, err := conv.attribute(&spec.Attribute{Format: spec.FormatCallable}, cty.StringVal(reward))
		return map[string]json.RawMessage{"reward": code}, err
	})
	if err != nil {
		return nil, err
	}
	return &Judge{p}, nil
}

// Score returns the score of a rollout and what was recorded beside it. What was made is an object that JSON can hold;
// its members are what the function may take.
func (j *Judge) Score(ctx context.Context, made map[string]any) (float64, map[string]float64, error) {
	var got struct {
		Score   float64            `json:"score"`
		Metrics map[string]float64 `json:"metrics"`
	}
	if err := j.program.call(ctx, "judge", made, &got); err != nil {
		return 0, nil, j.program.explain(err)
	}
	return got.Score, got.Metrics, nil
}

// Python is the interpreter of the block.
func (j *Judge) Python() string { return j.program.python }

// Close ends the program.
func (j *Judge) Close() error { return j.program.Close() }

// Failed is closed when the program has ended; Err then says how.
func (j *Judge) Failed() <-chan struct{} { return j.program.Failed() }

// Err describes how the program ended.
func (j *Judge) Err() error { return j.program.Err() }
