// Package scripttest tests environments in Python that a plugin carries in its binary.
package scripttest

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kit/script"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// Described holds the description that a binary carries, the file at path, to the Python code: it must be what Describe
// returns. With RECIPE_UPDATE=1 in the environment the file is written anew. A machine without python3 skips the test.
// Python is the interpreter; empty: python3 of PATH.
func Described(t *testing.T, name string, s script.Source, path, python string) {
	t.Helper()
	if python == "" {
		python = "python3"
	}
	python, err := exec.LookPath(python)
	if err != nil {
		t.Skipf("the description of %s is not compared: %v", name, err)
	}
	d, err := script.Describe(t.Context(), python, name, s, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, want, "", " "); err != nil {
		t.Fatal(err)
	}
	pretty.WriteByte('\n')
	if os.Getenv("RECIPE_UPDATE") != "" {
		if err := os.WriteFile(path, pretty.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, pretty.Bytes()) {
		t.Errorf("%s is not what the Python code says of itself: run RECIPE_UPDATE=1 go test -run %s .\nhave:\n%s\nwant:\n%s",
			path, t.Name(), got, pretty.Bytes())
	}
}

// Python is the interpreter of the environment that scripts/venv.sh NAME makes. The test of a plugin, which runs two
// folders below the root, is skipped where it has not been made.
func Python(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../.cache/venv-"+name, "bin/python"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("scripts/venv.sh %s makes the Python environment that this test needs", name)
	}
	return path
}

// With runs a block with an interpreter.
func With(python string) plugintest.Option {
	return func(r *pluginpb.StartRequest) { r.Runtime = &pluginpb.Runtime{Python: python} }
}

// Body is a configuration over a fake policy and a fake trajectory API: groups of four completions, two groups at once.
// more adds attributes, or replaces some of these.
func Body(t testing.TB, def *sdk.Definition, more map[string]cty.Value) (cty.Value, *plugintest.Trajectories) {
	t.Helper()
	api := plugintest.FakeTrajectories(t, 16)
	server := plugintest.Harness(t, plugintest.FakeInference())
	server.Start(plugintest.FakeConfig{})
	server.Ready()
	values := map[string]cty.Value{
		"inference": server.Reference().Values, "trajectories": api.Reference().Values,
		"group_size": cty.NumberIntVal(4), "concurrency": cty.NumberIntVal(2),
		"max_batches_offpolicy": cty.NumberIntVal(1),
	}
	maps.Copy(values, more)
	v, err := def.Schema.Conform(cty.ObjectVal(values))
	if err != nil {
		t.Fatal(err)
	}
	return def.Schema.ApplyDefaults(v), api
}

// Conversations are those of a group that is in order.
func Conversations(t *testing.T, g trajectory.Group) [][]environment.Message {
	t.Helper()
	plugintest.CheckGroup(t, g)
	var all [][]environment.Message
	if err := json.Unmarshal(g.Messages, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// Evaluated demands that a block evaluates so many held-out tasks.
func Evaluated(t *testing.T, b *plugintest.Block, tasks float64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), plugintest.Deadline)
	defer cancel()
	r, err := b.Client.Evaluate(ctx, &pluginpb.EvaluateRequest{})
	if err != nil || r.GetMetrics()["tasks"] != tasks {
		t.Errorf("%v, %v; want %v held-out tasks", r, err, tasks)
	}
}

// Check runs testdata/check.py of a plugin, which tests the Python side by itself, with arguments and with variables
// besides those of the test's own environment. The file ends with an error where something is wrong.
func Check(t *testing.T, python string, environment map[string]string, args ...string) {
	t.Helper()
	run := exec.CommandContext(t.Context(), python, append([]string{"testdata/check.py"}, args...)...)
	run.Env = os.Environ()
	for name, value := range environment {
		run.Env = append(run.Env, name+"="+value)
	}
	run.Env = append(run.Env, "PYTHONPATH=python:../../sdk/python/src")
	if out, err := run.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
