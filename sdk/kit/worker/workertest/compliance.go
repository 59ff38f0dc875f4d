package workertest

import (
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Compliance runs the checks that every trainer must pass, over a real gRPC connection, with this test binary as the
// worker's program: TestMain must call Main. The trainer must refuse a block with the attributes of bad.
func Compliance(t *testing.T, trainer *sdk.Definition, bad map[string]cty.Value) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	config := func() map[string]cty.Value {
		api := plugintest.Ref("trajectories.builtin.default", kind.Trajectories,
			outputs.Trajectories{URL: "http://127.0.0.1:8000", Token: "token"})
		return map[string]cty.Value{"model": cty.StringVal("org/model"), "steps": cty.NumberIntVal(1000),
			"trajectories": api.Values}
	}
	plugintest.Compliance(t, trainer, plugintest.Suite{
		Config: func(*testing.T) any { return cty.ObjectVal(config()) },
		Options: []plugintest.Option{func(r *pluginpb.StartRequest) {
			r.Runtime = &pluginpb.Runtime{Python: exe}
			r.Environment = Environment("patient")
		}},
		Bad: map[string]func(t *testing.T) any{
			"refused attributes": func(*testing.T) any {
				values := config()
				maps.Copy(values, bad)
				return cty.ObjectVal(values)
			},
		},
	})
}

// Problem checks that a trainer finds one problem in a configuration, at path and with part in its detail, or, where
// path is empty, none.
func Problem(t *testing.T, name string, found []spec.Problem, path, part string) {
	t.Helper()
	switch {
	case path == "" && len(found) > 0:
		t.Errorf("%s: %v, want no problem", name, found)
	case path != "" && (len(found) != 1 || spec.PathString(found[0].Path) != path ||
		!strings.Contains(found[0].Detail, part)):
		t.Errorf("%s: %+v; want one problem of %s that says %s", name, found, path, part)
	}
}
