package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/recipe-rl/recipe/sdk"
)

// TestMain lets the test binary be the program: the scripts run it as `recipe`, and the engine starts it as a plugin.
func TestMain(m *testing.M) {
	if _, plugin := os.LookupEnv(sdk.BuiltinKey); plugin {
		sdk.ServeBuiltin(builtins())
	}
	testscript.Main(m, map[string]func(){"recipe": func() { os.Exit(program()) }})
}

// TestScripts runs testdata/script: each file is one thing that a person does at the command line. With
// `go test -run TestScripts ./cmd/recipe -args -update` their golden parts are written anew.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
	})
}
