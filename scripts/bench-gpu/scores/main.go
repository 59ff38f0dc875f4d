// Command scores is the environment of the GPU benchmark: one long task with random scores. Random scores keep every
// group informative whatever the model writes, so that weights without any training can be used and no group is left
// out.
package main

import (
	"context"
	"math/rand/v2"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
)

type scores struct{}

// Next returns a prompt of a few tokens. Prompts differ, so that no prefix cache hides the cost of a prompt.
func (scores) Next(context.Context) (environment.Task, error) {
	prompt := make([]byte, 64)
	for i := range prompt {
		prompt[i] = "abcdefghijklmnopqrstuvwxyz     "[rand.IntN(31)]
	}
	return environment.Task{Prompt: string(prompt)}, nil
}

func (scores) Score(context.Context, environment.Task, environment.Completion) (float64, error) {
	return rand.Float64(), nil
}

func main() {
	open := func(context.Context, environment.Setup[environment.Settings]) (scores, error) { return scores{}, nil }
	sdk.Serve(environment.Define("scores", "Random scores, for benchmarks.", open))
}
