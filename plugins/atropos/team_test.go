package atropos

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// TestReplicasAreOneBlock: under the SDK's own host, the block is ready once both processes are.
func TestReplicasAreOneBlock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	inference := plugintest.Ref("inference.fake.test", kind.Inference, outputs.Inference{
		BaseURL: w.URL + "/v1", APIKey: "key", Model: "policy", Tokenizer: filepath.Join(repository(t), "plugins", "atropos",
			"testdata", "tokenizer"),
	})
	trajectories := plugintest.Ref("trajectories.fake.test", kind.Trajectories,
		outputs.Trajectories{URL: w.URL, Token: "token"})
	b := plugintest.Harness(t, Plugin())
	b.Start(cty.ObjectVal(map[string]cty.Value{
		"script":    cty.StringVal(filepath.Join(repository(t), "recipes", "environments", "addition.py")),
		"inference": inference.Values, "trajectories": trajectories.Values, "replicas": cty.NumberIntVal(2),
	}), func(r *pluginpb.StartRequest) {
		r.Runtime = &pluginpb.Runtime{Python: python(t)}
		r.Environment = map[string]string{"HF_HUB_OFFLINE": "1"}
	})
	b.Ready()
	if list := proc.Parse(b.Status().GetHandle()); len(list) != 2 {
		t.Errorf("%d processes are recorded, want 2", len(list))
	}
	if err := b.Stop(30 * time.Second); err != nil {
		t.Error(err)
	}
}

// TestGroupsOfAllProcessesAreCountedTogether: one report for each step of the trainer, from the process that sees it
// first.
func TestGroupsOfAllProcessesAreCountedTogether(t *testing.T) {
	t.Parallel()
	h := newHost()
	r := &running{host: h, req: sdk.Request[Config]{Config: Config{TotalSteps: 9}}}
	team := newTeam(h, outputs.Environment{}, 2)
	first, second := &process{running: r, team: team}, &process{running: r, team: team, index: 1}
	group := func(p *process, score float64) {
		_ = p.take(t.Context(), event{Event: "group", Scores: []float64{score, score}, Lengths: []float64{1, 1}, Same: true})
	}
	poll := func(p *process, step int64) { _ = p.take(t.Context(), event{Event: "poll", Step: step}) }
	reported := func(groups, reward float64) {
		t.Helper()
		if h.metrics["env/groups"] != groups || h.metrics["env/reward_all_groups"] != reward {
			t.Errorf("metrics %v, want %v groups of reward %v", h.metrics, groups, reward)
		}
	}
	poll(first, 0)
	poll(second, 0)
	group(first, 1)
	group(second, 0)
	group(second, 0.5)
	poll(second, 2)
	reported(3, 0.5)
	group(first, 0)
	poll(first, 1) // it polled before the other one
	reported(3, 0.5)
	poll(first, 3)
	reported(1, 0)
	group(first, 0.5)
	group(second, 0.5)
	poll(first, 1) // the trainer went back to a checkpoint
	reported(2, 0.5)
}

// TestProcessesOfAnEarlierLifeEnd: processes of an earlier attempt end, also when this attempt cannot begin.
func TestProcessesOfAnEarlierLifeEnd(t *testing.T) {
	t.Parallel()
	old, err := proc.Start(t.Context(), proc.Spec{Name: "old", Argv: []string{"sleep", "600"}, LogDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = old.Stop(context.Background(), 0) })
	inference, trajectories := refs("http://127.0.0.1:1", "http://127.0.0.1:1")
	req := sdk.Request[Config]{
		Block: sdk.Block{Address: "environment.atropos.a", Dir: t.TempDir(), RecipeDir: t.TempDir(),
			Handle: proc.Encode(old.Handle())},
		Config: Config{Script: "none.py", Inference: inference, Trajectories: trajectories},
	}
	if err := (&Environment{}).Run(t.Context(), req, newHost()); err == nil {
		t.Error("a script that is not there was run")
	}
	if old.Handle().Alive() {
		t.Error("a process of the earlier attempt is still there")
	}
}
