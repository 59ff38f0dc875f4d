package grpo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/worker"
	"github.com/recipe-rl/recipe/sdk/spec"
)

type body = map[string]any

// served is a reference to an inference block.
var served = body{"address": "inference.vllm.teacher", "kind": "inference"}

// configured are bodies of the block, and whether the worker accepts them.
var configured = []struct {
	name string
	body body
	ok   bool
}{
	{"defaults", body{}, true},
	{"clip", body{"advantages": body{"clip": []any{5}}}, false},
	{"clip around 0", body{"advantages": body{"clip": []any{-5, 5}}}, true},
	{"clip above 0", body{"advantages": body{"clip": []any{1, 5}}}, false},
	{"dual clip", body{"loss": body{"dual_clip": 0.5}}, false},
	{"no dual clip", body{"loss": body{"dual_clip": 0}}, true},
	{"no tokens", body{"loss": body{"top_entropy": 0}}, false},
	{"more than all tokens", body{"loss": body{"top_entropy": 1.5}}, false},
	{"a fifth of the tokens", body{"loss": body{"top_entropy": 0.2}}, true},
	{"one k", body{"loss": body{"vespo_k": []any{1}}}, false},
	{"three lambdas", body{"loss": body{"vespo_lambda": []any{1, 2, 3}}}, false},
	{"one bound", body{"loss": body{"clip_cov_bounds": []any{1}}}, false},
	{"one delay", body{"data": body{"register_delay": []any{1}}}, false},
	{"weight twice", body{"correction": body{"old_policy": "rollout", "importance": "token"}}, false},
	{"weight of a ratio to the sampler", body{"correction": body{"importance": "token"},
		"loss": body{"name": "dppo"}}, false},
	{"no policy between", body{"correction": body{"old_policy": "rollout"}, "loss": body{"name": "decoupled_ppo"}}, false},
	{"groups of one without a second", body{"advantages": body{"estimator": "grpo_passk", "single": "score"}}, false},
	{"no reference for the reward", body{"reference": body{"source": "none"},
		"kl": body{"coefficient": 0, "reward_coefficient": 0.1}}, false},
	{"a reference that is served", body{"reference": body{"inference": served, "requests": 4, "timeout": 60}}, true},
	{"a reference that is served and one of a path", body{"reference": body{"inference": served, "path": "m"}}, false},
	{"a reference that is served and a copy", body{"reference": body{"inference": served, "source": "copy"}}, false},
	{"a teacher of groups with a winner", body{"loss": body{"name": "distill"}, "kl": body{"coefficient": 0},
		"reference": body{"inference": served}, "advantages": body{"drop_equal_scores": true}}, false},
	{"a target of 0", body{"kl": body{"adaptive_target": 0, "reward_coefficient": 0.1}}, false},
	{"clip below 0", body{"advantages": body{"clip": []any{-5, -1}}}, false},
	{"weights in float16", body{"compute": body{"dtype": "float16"}}, false},
	{"two losses", body{"loss": body{"import": "../../recipes/losses/gspo.py:gspo", "name": "cispo"}}, false},
	{"two estimators", body{"advantages": body{"import": "testdata/leave_one_out.py:leave_one_out",
		"estimator": "gae"}}, false},
	{"weight once", body{"correction": body{"old_policy": "rollout", "importance": "token"},
		"loss": body{"name": "reinforce"}}, true},
	{"weight of a supervised loss", body{"correction": body{"old_policy": "rollout", "importance": "token"},
		"loss": body{"name": "ce"}}, true},
	{"no weight where the loss is one", body{"correction": body{"importance": "none"},
		"loss": body{"name": "decoupled_ppo"}}, false},
	{"another average", body{"loss": body{"name": "gspo", "aggregation": "token-mean"}}, false},
	{"groups of one that are not compared", body{"advantages": body{"estimator": "gae", "single": "score"}}, false},
	{"no teacher", body{"reference": body{"source": "none"}, "kl": body{"coefficient": 0},
		"loss": body{"name": "distill"}}, false},
	{"a teacher", body{"reference": body{"source": "copy"}, "loss": body{"name": "distill"}}, true},
	{"no adapters", body{"reference": body{"source": "lora_off"}}, false},
	{"moments of another optimizer", body{"optimizer": body{"name": "sgd", "offload": true}}, false},
	{"moments in the host's memory", body{"optimizer": body{"offload": true}}, true},
	{"no reference", body{"reference": body{"source": "none"}, "kl": body{"coefficient": 0.1}}, false},
	{"no weights", body{"advantages": body{"estimator": "gdpo"}}, false},
	{"weights", body{"advantages": body{"estimator": "gdpo", "objective_weights": []any{1}}}, true},
	{"length beside objectives", body{"advantages": body{"estimator": "gdpo", "objective_weights": []any{1},
		"length_penalty": true}}, false},
	{"nothing to adapt", body{"kl": body{"adaptive_target": 0.1}}, false},
	{"something to adapt", body{"kl": body{"adaptive_target": 0.1, "reward_coefficient": 0.1}}, true},
	{"float16", body{"compute": body{"compute_dtype": "float16"}}, false},
	{"float8 beside float32", body{"compute": body{"compute_dtype": "float32", "float8": "all"}}, false},
	{"float8 and weights in float32", body{"compute": body{"dtype": "float32", "float8": "backward"}}, false},
	{"float8", body{"compute": body{"float8": "backward"}}, true},
	{"mini batch", body{"batch_size": 4, "mini_batch_size": 8}, false},
	{"no batch", body{"batch_size": 0}, false},
	{"no epochs", body{"epochs": 0}, false},
	{"no rows", body{"compute": body{"row_tokens": 0}}, false},
	{"no chunks", body{"compute": body{"head_chunk": 0}}, false},
	{"no polls", body{"data": body{"batch_retry_attempts": 0}}, false},
	{"no attempt", body{"data": body{"register_attempts": 0}}, false},
	{"no horizon", body{"kl": body{"adaptive_horizon": 0}}, false},
	{"no collective", body{"collective_timeout": 0}, false},
	{"a constant of 0", body{"loss": body{"length_norm": 0}}, false},
	{"a cap of 0", body{"loss": body{"name": "cispo", "cispo_cap": 0}}, false},
	{"a bound of 1", body{"loss": body{"delta": 1}}, false},
	{"a gate divided by 0", body{"loss": body{"name": "sapo", "sapo_tau_positive": 0}}, false},
	{"the other gate divided by 0", body{"loss": body{"name": "sapo", "sapo_tau_negative": 0}}, false},
	{"the first k below 0", body{"loss": body{"vespo_k": []any{-1, 1}}}, false},
	{"the second k below 0", body{"loss": body{"vespo_k": []any{1, -1}}}, false},
	{"the first lambda below 0", body{"loss": body{"vespo_lambda": []any{-1, 1}}}, false},
	{"the second lambda below 0", body{"loss": body{"vespo_lambda": []any{1, -1}}}, false},
	{"more than all tokens without gradient", body{"loss": body{"clip_cov_ratio": 2}}, false},
	{"more than all tokens pay", body{"loss": body{"kl_cov_ratio": 2}}, false},
	{"bounds around nothing", body{"loss": body{"clip_cov_bounds": []any{5, 1}}}, false},
	{"a deviation of 0", body{"advantages": body{"epsilon": 0}}, false},
	{"a discount above 1", body{"advantages": body{"estimator": "gae", "gamma": 1.1}}, false},
	{"a lambda above 1", body{"advantages": body{"estimator": "gae", "lam": 1.1}}, false},
	{"no advantage left", body{"advantages": body{"clip": []any{0, 0}}}, false},
	{"no advantages at all", body{"advantages": body{"use_advantages": false, "fallback_to_grpo": false}}, false},
	{"the deviation of a batch", body{"advantages": body{"estimator": "grpo_passk", "std": "batch"}}, false},
	{"weights below 1", body{"correction": body{"importance_high": 0.5}}, false},
	{"weights without a bound", body{"correction": body{"importance_high": 0, "importance_low": 0.5}}, true},
	{"weights above 1", body{"correction": body{"importance_low": 1.5}}, false},
	{"weights below 0", body{"correction": body{"importance_low": -1}}, false},
	{"a drift below 0", body{"correction": body{"off_policy_threshold": -1}}, false},
	{"all rejected", body{"correction": body{"rejection": []any{body{"rule": "token_k3", "high": 0}}}}, false},
	{"a ratio of 0", body{"correction": body{"rejection": []any{body{"rule": "token_k1", "high": 2, "low": 0}}}}, false},
	{"nothing between", body{"correction": body{"rejection": []any{body{"rule": "token_k3", "high": 1},
		body{"rule": "token_k1", "high": 2, "low": 2}}}}, false},
	{"nothing around 1", body{"correction": body{"rejection": []any{body{"rule": "seq_sum_k1", "high": 1}}}}, false},
	{"a horizon within a batch", body{"kl": body{"adaptive_target": 0.1, "reward_coefficient": 0.1,
		"adaptive_horizon": 63}}, false},
	{"no coefficient between", body{"entropy": body{"adaptive": true, "low": 2}}, false},
	{"two references", body{"lora": body{"rank": 8}, "reference": body{"path": "m", "source": "lora_off"}}, false},
	{"no decay", body{"optimizer": body{"beta1": 1}}, false},
	{"no second decay", body{"optimizer": body{"beta2": 1}}, false},
	{"divided by 0", body{"optimizer": body{"epsilon": 0}}, false},
	{"more than all steps", body{"optimizer": body{"warmup_ratio": 2}}, false},
	{"an end above the peak", body{"optimizer": body{"schedule": "linear", "min_ratio": 2}}, false},
	{"adapters that add nothing", body{"lora": body{"rank": 8, "alpha": 0}}, false},
	{"all left out", body{"lora": body{"rank": 8, "dropout": 1}}, false},
	{"dropout in a sum", body{"lora": body{"rank": 8, "dropout": 0.1, "merged": true}}, false},
	{"all layers and one", body{"lora": body{"rank": 8, "target_modules": []any{"all-linear", "q_proj"}}}, false},
	{"a peak below 0", body{"peak_tflops": -1}, false},
	{"a prompt as long as all", body{"max_length": 512, "max_prompt_length": 512}, false},
	{"an age below 0", body{"max_staleness": -1}, false},
	{"a delay below 0", body{"data": body{"register_delay": []any{-1, 5}}}, false},
	{"delays in the other order", body{"data": body{"register_delay": []any{15, 4}}}, false},
	{"polls without a pause", body{"data": body{"batch_max_wait": 0}}, false},
	{"no time for weights", body{"sync_timeout": 0}, false},
	{"no time for a request", body{"data": body{"timeout": 0}}, false},
	{"no time to connect", body{"data": body{"connect_timeout": 0}}, false},
	{"an unknown rule", body{"correction": body{"rejection": []any{body{"rule": "nonsense", "high": 2}}}}, false},
	{"a rule", body{"correction": body{"rejection": []any{body{"rule": "seq_mean_k3", "high": 2}}}}, true},
}

// value decodes a body of the block with its defaults, as the language does.
func value(t *testing.T, def *sdk.Definition, b body) cty.Value {
	t.Helper()
	full := body{"model": "m"}
	for k, v := range b {
		full[k] = v
	}
	v, err := def.Schema.Conform(ctyOf(full))
	if err != nil {
		t.Fatal(err)
	}
	return def.Schema.ApplyDefaults(v)
}

func ctyOf(x any) cty.Value {
	switch x := x.(type) {
	case body:
		out := map[string]cty.Value{}
		for k, v := range x {
			out[k] = ctyOf(v)
		}
		return cty.ObjectVal(out)
	case []any:
		var out []cty.Value
		for _, v := range x {
			out = append(out, ctyOf(v))
		}
		return cty.TupleVal(out)
	case string:
		return cty.StringVal(x)
	case bool:
		return cty.BoolVal(x)
	case int:
		return cty.NumberIntVal(int64(x))
	case float64:
		return cty.NumberFloatVal(x)
	}
	panic(x)
}

func TestContradictions(t *testing.T) {
	t.Parallel()
	def := Plugin()
	for _, c := range configured {
		v := value(t, def, c.body)
		problems := def.Schema.Check(v)
		own, err := def.Validate(v)
		if err != nil {
			t.Fatal(err)
		}
		bad := false
		for _, p := range append(problems, own...) {
			bad = bad || !p.Warning
		}
		if bad == c.ok {
			t.Errorf("%s: ok is %v, problems: %v", c.name, c.ok, append(problems, own...))
		}
		for _, p := range own {
			if !p.Warning && len(p.Path) == 0 {
				t.Errorf("%s: %s is at no attribute", c.name, p.Summary)
			}
		}
	}
}

// Each rule says something of one of the bodies, so that each that refuses is compared with the worker; and each
// speaks of what there is.
func TestEveryRuleIsTried(t *testing.T) {
	t.Parallel()
	tried := map[string]bool{}
	var bodies []body
	for _, c := range configured {
		bodies = append(bodies, c.body)
	}
	for _, c := range idle {
		bodies = append(bodies, c.body)
	}
	for _, b := range bodies {
		v := valuesOf(decoded(t, b))
		for _, r := range described().Rules {
			if broken(r, v) {
				tried[fmt.Sprint(r.At, r.When)] = true
			}
		}
	}
	known := valuesOf(decoded(t, body{})).with(nil)
	for _, r := range described().Rules {
		if !tried[fmt.Sprint(r.At, r.When)] {
			t.Errorf("no body breaks the rule of %s, %v", r.At, r.When)
		}
		for _, c := range r.When {
			for i, side := range []any{c[0], c[2]} {
				name, isName := side.(string)
				if i == 1 {
					name, isName = strings.CutPrefix(name, "@")
				}
				if _, found := known.get(name); isName && !found {
					t.Errorf("the rule of %s asks for %s, which is nothing", r.At, name)
				}
			}
		}
	}
}

// broken reports whether a rule holds, of one entry at least where it is about entries of a list.
func broken(r rule, v values) bool {
	all := func(v values) bool {
		return !slices.ContainsFunc(r.When, func(c condition) bool { return !c.holds(v) })
	}
	if r.Each == "" {
		return all(v)
	}
	list, _ := v[r.Each].([]any)
	return slices.ContainsFunc(list, func(entry any) bool { return all(v.with(entry)) })
}

// TestTheWorkerRefusesTheSame: the worker accepts what a plan accepts, and refuses what it refuses.
func TestTheWorkerRefusesTheSame(t *testing.T) {
	t.Parallel()
	python := workerPython(t)
	var all bytes.Buffer
	def := Plugin()
	for _, c := range configured {
		var decoded Config
		if err := spec.Decode(value(t, def, c.body), def.Schema, &decoded); err != nil {
			t.Fatal(err)
		}
		line, err := json.Marshal(worker.Settings(decoded))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(append(line, '\n'))
	}
	const program = `
import json, sys
from recipe_sdk.fields import ConfigError
from worker.config import from_dict
for line in sys.stdin:
    try:
        given = json.loads(line)
        given["data"] = {**given.get("data", {}), "url": "http://localhost"}
        from_dict(given); print("ok")
    except ConfigError as e:
        print(str(e).replace("\n", " "))
`
	cmd := exec.CommandContext(t.Context(), python, "-c", program)
	cmd.Env, cmd.Stdin, cmd.Stderr = append(os.Environ(), "OMP_NUM_THREADS=1", "PYTHONPATH="+filepath.Join("..", "..",
		"sdk", "python", "src")), &all, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(configured) {
		t.Fatalf("%d answers to %d questions", len(lines), len(configured))
	}
	for i, c := range configured {
		if (lines[i] == "ok") != c.ok {
			t.Errorf("%s: ok is %v, the worker says %s", c.name, c.ok, lines[i])
		}
	}
}

// A block lora without a rank would train all weights, which nobody means who writes one.
func TestAdaptersSayTheirRank(t *testing.T) {
	t.Parallel()
	def := Plugin()
	problems := def.Schema.Check(value(t, def, body{"lora": body{"alpha": 8}}))
	if len(problems) != 1 || problems[0].Warning || !strings.Contains(problems[0].Detail, `"rank" is required`) {
		t.Errorf("lora without a rank: %v", problems)
	}
	if problems := def.Schema.Check(value(t, def, body{"lora": body{"rank": 0}})); len(problems) > 0 {
		t.Errorf("rank = 0 means all weights: %v", problems)
	}
}
