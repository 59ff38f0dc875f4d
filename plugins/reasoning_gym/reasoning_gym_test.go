package reasoninggym

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/environment/script/scripttest"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheDescriptionIsTheCodes(t *testing.T) {
	t.Parallel()
	scripttest.Described(t, "reasoning_gym", source(), "description.json", "")
}

// python is an interpreter with reasoning-gym, that of scripts/python/atropos.txt.
func python(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../.cache/venv-atropos/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("scripts/venv.sh atropos makes the Python environment that this test needs")
	}
	return path
}

func interpreter(python string) plugintest.Option {
	return func(r *pluginpb.StartRequest) { r.Runtime = &pluginpb.Runtime{Python: python} }
}

// body is a configuration over a fake policy and a fake trajectory API.
func body(t *testing.T, def *sdk.Definition, more map[string]cty.Value) (cty.Value, *plugintest.Trajectories) {
	t.Helper()
	api := plugintest.FakeTrajectories(t, 16)
	server := plugintest.Harness(t, plugintest.FakeInference())
	server.Start(plugintest.FakeConfig{})
	server.Ready()
	values := map[string]cty.Value{
		"inference": server.Reference().Values, "trajectories": api.Reference().Values,
		"group_size": cty.NumberIntVal(4), "concurrency": cty.NumberIntVal(4), "max_tokens": cty.NumberIntVal(16),
		"max_batches_offpolicy": cty.NumberIntVal(1), "drop_uninformative": cty.False,
		"eval_tasks": cty.NumberIntVal(4), "datasets": cty.TupleVal([]cty.Value{
			dataset("letter_counting", nil), dataset("chain_sum", map[string]cty.Value{"weight": cty.NumberIntVal(2)})}),
	}
	for name, v := range more {
		values[name] = v
	}
	v, err := def.Schema.Conform(cty.ObjectVal(values))
	if err != nil {
		t.Fatal(err)
	}
	return def.Schema.ApplyDefaults(v), api
}

func dataset(name string, more map[string]cty.Value) cty.Value {
	values := map[string]cty.Value{"name": cty.StringVal(name)}
	for n, v := range more {
		values[n] = v
	}
	return cty.ObjectVal(values)
}

func setting(name string, value int64) map[string]cty.Value {
	return map[string]cty.Value{"config": cty.ObjectVal(map[string]cty.Value{name: cty.NumberIntVal(value)})}
}

func TestCompliance(t *testing.T) {
	def, path := Plugin(), python(t)
	groups := func(t *testing.T) (any, *plugintest.Trajectories) { return body(t, def, nil) }
	bad := func(value cty.Value) func(*testing.T) any {
		return func(t *testing.T) any {
			c, _ := body(t, def, map[string]cty.Value{"datasets": cty.TupleVal([]cty.Value{value})})
			return c
		}
	}
	plugintest.Compliance(t, def, plugintest.Suite{
		Config:  func(t *testing.T) any { c, _ := groups(t); return c },
		Groups:  groups,
		Options: []plugintest.Option{interpreter(path)},
		Bad: map[string]func(*testing.T) any{
			"no such dataset":    bad(dataset("chain_sums", nil)),
			"no such setting":    bad(dataset("chain_sum", setting("terms", 2))),
			"no such difficulty": bad(dataset("chain_sum", setting("min_terms", -2))),
			"a level below 0":    bad(dataset("chain_sum", map[string]cty.Value{"level": cty.NumberIntVal(-1)})),
		},
	})
}

// The scores that are posted are those of the package, of what stands in the completions.
func TestThePackageVerifiesTheAnswers(t *testing.T) {
	def := Plugin()
	c, api := body(t, def, map[string]cty.Value{
		"prompt_template": cty.StringVal("Q: {question}\nA: "), "answer_pattern": cty.StringVal("[a-p]"),
		"datasets": cty.TupleVal([]cty.Value{dataset("letter_counting", nil)}),
	})
	path := python(t)
	b := plugintest.Harness(t, def)
	b.Start(c, interpreter(path))
	for _, g := range api.Wait(2) {
		plugintest.CheckGroup(t, g)
		var all [][]environment.Message
		if err := json.Unmarshal(g.Messages, &all); err != nil ||
			!strings.HasPrefix(all[0][0].Content, "Q: How many times") ||
			!strings.HasSuffix(all[0][0].Content, "\nA: ") {
			t.Errorf("the model reads %+v, %v", all, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), plugintest.Deadline)
	defer cancel()
	if r, err := b.Client.Evaluate(ctx, &pluginpb.EvaluateRequest{}); err != nil || r.GetMetrics()["tasks"] != 4 {
		t.Errorf("%v, %v", r, err)
	}
}

// The Python side by itself: what is right scores 1, the difficulty rises with good answers and is kept, and no
// held-out question is trained on.
func TestDifficultyRisesWithTheAnswers(t *testing.T) {
	t.Parallel()
	code, err := filepath.Abs("testdata/check.py")
	if err != nil {
		t.Fatal(err)
	}
	own, err := filepath.Abs("python")
	if err != nil {
		t.Fatal(err)
	}
	sdkCode, err := filepath.Abs("../../sdk/python/src")
	if err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), python(t), code, t.TempDir())
	run.Env = append(os.Environ(), "PYTHONPATH="+own+":"+sdkCode)
	if out, err := run.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
