// Command broken is a plugin with three mistakes that the compliance suite must find: an attribute without doc, a
// configuration that is accepted although it is wrong, and an end that is reported as a failure.
package main

import (
	"context"
	"errors"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Config is the block's body.
type Config struct {
	Inference spec.Ref `recipe:"inference" required:"true" reference:"inference" doc:"The inference block"`
	Letters   int64    `recipe:"letters" default:"3"`
}

type plugin struct{}

// Run implements sdk.Service.
func (plugin) Run(ctx context.Context, _ sdk.Request[Config], host sdk.Host) error {
	host.Ready(outputs.Environment{Name: "broken", GroupSize: 4})
	<-ctx.Done()
	return errors.New("it was asked to stop and calls that a failure")
}

func main() {
	sdk.Serve(environment.New("broken", "A plugin with mistakes.", func() sdk.Service[Config] { return plugin{} }))
}
