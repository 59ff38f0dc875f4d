package grpo

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// idle are bodies of the block that are accepted, and the attributes of which a plan warns.
var idle = []struct {
	body body
	want string
}{
	{body{}, ""},
	{body{"mini_batch_size": 16, "loss": body{"clip_low": 0.1, "clip_high": 0.28, "dual_clip": 4, "delta": 2}}, ""},
	{body{"loss": body{"clip_low": 0.1, "clip_high": 0.28, "dual_clip": 4, "delta": 2}},
		"loss.clip_high loss.clip_low loss.delta loss.dual_clip"},
	{body{"mini_batch_size": 64, "loss": body{"clip_low": 0.1, "clip_high": 0.28, "dual_clip": 4, "delta": 2}},
		"loss.clip_high loss.clip_low loss.delta loss.dual_clip"},
	{body{"epochs": 2, "loss": body{"clip_high": 0.28}}, ""},
	{body{"correction": body{"old_policy": "rollout"}, "loss": body{"clip_high": 0.28}}, ""},
	{body{"loss": body{"name": "sapo", "sapo_tau_positive": 2, "sapo_tau_negative": 3}},
		"loss.sapo_tau_negative loss.sapo_tau_positive"},
	{body{"mini_batch_size": 64, "loss": body{"name": "sapo", "sapo_tau_positive": 2, "sapo_tau_negative": 3}},
		"loss.sapo_tau_negative loss.sapo_tau_positive"},
	{body{"loss": body{"name": "sft", "clip_low": 0.1, "clip_high": 0.3, "dual_clip": 4, "delta": 2, "cispo_cap": 5,
		"sapo_tau_positive": 2, "sapo_tau_negative": 2, "vespo_k": []any{1, 1}, "vespo_lambda": []any{1, 1},
		"clip_cov_ratio": 0.1, "clip_cov_bounds": []any{1, 2}, "kl_cov_ratio": 0.1, "kl_cov_coefficient": 0.2,
		"probability_gap": 0.1, "log_ratio_penalty": 0.1, "ratio_level": "sequence"}},
		"loss.cispo_cap loss.clip_cov_bounds loss.clip_cov_ratio loss.clip_high loss.clip_low loss.delta loss.dual_clip " +
			"loss.kl_cov_coefficient loss.kl_cov_ratio loss.log_ratio_penalty loss.probability_gap loss.ratio_level " +
			"loss.sapo_tau_negative loss.sapo_tau_positive loss.vespo_k loss.vespo_lambda"},
	{body{"loss": body{"name": "gspo", "ratio_level": "sequence"}}, "loss.ratio_level"},
	{body{"loss": body{"ratio_level": "sequence"}}, ""},
	{body{"epochs": 2, "loss": body{"ratio_level": "sequence", "dual_clip": 4}}, "loss.dual_clip"},
	{body{"epochs": 2, "loss": body{"name": "luspo", "dual_clip": 4}}, "loss.dual_clip"},
	{body{"epochs": 2, "loss": body{"name": "cispo", "cispo_cap": 5, "clip_low": 0.1, "clip_high": 0.3}},
		"loss.clip_high loss.clip_low"},
	{body{"loss": body{"length_norm": 100}}, "loss.length_norm"},
	{body{"loss": body{"name": "dr_grpo", "length_norm": 100}}, ""},
	{body{"loss": body{"import": "../../recipes/losses/gspo.py:gspo", "clip_high": 0.3}}, ""},
	{body{"kl": body{"coefficient": 0, "estimator": "k1", "bias_correction": true, "reward_estimator": "k3",
		"adaptive_horizon": 5}}, "kl.adaptive_horizon kl.bias_correction kl.estimator kl.reward_estimator"},
	{body{"kl": body{"coefficient": 0}, "reference": body{"source": "copy", "path": "m", "offload": true}},
		"reference.source"},
	{body{"kl": body{"coefficient": 0}, "reference": body{"source": "none"}}, ""},
	{body{"kl": body{"coefficient": 0}, "reference": body{"path": "m", "offload": true}},
		"reference.offload reference.path"},
	{body{"reference": body{"source": "data", "offload": true}}, "reference.offload"},
	{body{"lora": body{"rank": 8}, "reference": body{"offload": true}}, "reference.offload"},
	{body{"lora": body{"rank": 8}, "reference": body{"path": "m", "offload": true}}, ""},
	{body{"loss": body{"name": "distill"}}, "reference.path"},
	{body{"loss": body{"name": "distill"}, "reference": body{"inference": served}}, ""},
	{body{"kl": body{"coefficient": 0}, "reference": body{"inference": served, "timeout": 5}}, "reference.inference"},
	{body{"reference": body{"inference": served, "offload": true}}, "reference.offload"},
	{body{"lora": body{"rank": 8}, "reference": body{"inference": served, "offload": true}}, "reference.offload"},
	{body{"reference": body{"requests": 5, "timeout": 5}}, "reference.requests reference.timeout"},
	{body{"loss": body{"name": "distill"}, "kl": body{"coefficient": 0}, "reference": body{"path": "m"}}, ""},
	{body{"entropy": body{"coefficient": 0.1, "target": 0.3, "step": 0.1, "low": 0.1, "high": 0.5}},
		"entropy.high entropy.low entropy.step entropy.target"},
	{body{"entropy": body{"adaptive": true, "target": 0.3}}, ""},
	{body{"advantages": body{"estimator": "rloo", "std": "none", "epsilon": 1, "gamma": 0.9, "lam": 0.9,
		"zero_tail": true, "objective_weights": []any{1}}}, "advantages.epsilon advantages.gamma advantages.lam " +
		"advantages.objective_weights advantages.std advantages.zero_tail"},
	{body{"advantages": body{"estimator": "dr_grpo", "std": "batch", "epsilon": 1}}, "advantages.epsilon advantages.std"},
	{body{"advantages": body{"std": "none", "epsilon": 1}}, "advantages.epsilon"},
	{body{"advantages": body{"std": "batch", "epsilon": 1, "normalize_scope": "all"}}, "advantages.normalize_scope"},
	{body{"advantages": body{"normalization": "batch", "normalize_scope": "all"}}, ""},
	{body{"advantages": body{"use_advantages": false, "normalization": "batch", "override_scope": "group"}},
		"advantages.normalization advantages.override_scope"},
	{body{"loss": body{"name": "dppo"}, "correction": body{"importance_mode": "mask", "importance_high": 3,
		"importance_low": 0.1, "importance_normalize": true}}, "correction.importance_high correction.importance_low " +
		"correction.importance_mode correction.importance_normalize"},
	{body{"correction": body{"importance_mode": "mask", "importance_high": 0}}, "correction.importance_mode"},
	{body{"correction": body{"old_policy": "rollout", "recompute": "always", "rejection_denominator": "original",
		"off_policy_against": "trainer", "mismatch_limit": 0, "mismatch_action": "warn"}}, "correction.mismatch_action " +
		"correction.off_policy_against correction.recompute correction.rejection_denominator"},
	{body{"correction": body{"rejection": []any{body{"rule": "token_k3", "high": 2, "low": 1}}}},
		"correction.rejection.0"},
	{body{"optimizer": body{"name": "sgd", "beta1": 0.5, "beta2": 0.5, "epsilon": 1, "min_ratio": 0.1,
		"warmup_steps": 5, "warmup_ratio": 0.1}}, "optimizer.beta1 optimizer.beta2 optimizer.epsilon " +
		"optimizer.min_ratio optimizer.warmup_ratio"},
	{body{"steps": 4, "optimizer": body{"schedule": "cosine", "warmup_steps": 5}},
		"optimizer.schedule optimizer.warmup_steps"},
	{body{"steps": 10, "optimizer": body{"schedule": "cosine", "warmup_steps": 5, "min_ratio": 0.1}}, ""},
	{body{"learning_rate": 0}, "learning_rate"},
	{body{"data": body{"batch_retry_delay": 20}}, "data.batch_retry_delay"},
	{body{"lora": body{"rank": 4, "alpha": 8, "dropout": 0.1}}, ""},
	{body{"checkpoints": body{"save_merged": false, "best_metric": "x"}},
		"checkpoints.best_metric checkpoints.save_merged"},
	{body{"checkpoints": body{"keep_last": 0, "keep_best": 3}}, "checkpoints.keep_best"},
}

func TestSettingsWithoutEffect(t *testing.T) {
	t.Parallel()
	def := Plugin()
	for _, c := range idle {
		v := value(t, def, c.body)
		own, err := def.Validate(v)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range append(def.Schema.Check(v), own...) {
			if !p.Warning {
				t.Errorf("%v: %s. %s", c.body, p.Summary, p.Detail)
			}
			if got = append(got, dotted(p.Path)); strings.ContainsAny(p.Summary+p.Detail, "@") ||
				strings.Contains(p.Detail, "{name}") || strings.Contains(p.Detail, "{loss") {
				t.Errorf("%v: %s. %s", c.body, p.Summary, p.Detail)
			}
		}
		slices.Sort(got)
		if found := strings.Join(got, " "); found != c.want {
			t.Errorf("%v: the plan warns of %q, want %q", c.body, found, c.want)
		}
	}
}

func TestSettingsThatAPlacementMakesIdle(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		body      body
		placement sdk.Placement
		want      string
	}{
		{body{"compute": body{"replicate": true}}, sdk.Placement{GPUs: 1}, "compute.replicate warning"},
		{body{"compute": body{"replicate": false}}, sdk.Placement{GPUs: 2}, ""},
		{body{"compute": body{"float8": "backward", "device": "cpu"}}, sdk.Placement{}, "compute.float8 error"},
		{body{"compute": body{"float8": "backward"}}, sdk.Placement{}, ""},
		{body{"compute": body{"device": "cpu"}}, sdk.Placement{GPUs: 1}, "compute.device warning"},
		{body{"compute": body{"device": "cuda:1"}}, sdk.Placement{GPUs: 2}, "compute.device error"},
		{body{"compute": body{"device": "cuda:0"}}, sdk.Placement{GPUs: 1, Nodes: 2}, ""},
		{body{"optimizer": body{"offload": true}, "compute": body{"device": "cpu"}}, sdk.Placement{},
			"optimizer.offload warning"},
		{body{"optimizer": body{"offload": true}}, sdk.Placement{}, ""},
		{body{"reference": body{"offload": true}, "compute": body{"device": "cpu"}}, sdk.Placement{},
			"reference.offload warning"},
		{body{"reference": body{"offload": true}}, sdk.Placement{}, ""},
		{body{"model": "Qwen/Qwen2.5-1.5B-Instruct", "max_length": 40000}, sdk.Placement{}, "max_length warning"},
		{body{"model": "Qwen/Qwen2.5-1.5B-Instruct", "max_length": 32768}, sdk.Placement{}, ""},
	} {
		_, problems := (&Trainer{}).Plan(decoded(t, c.body), c.placement)
		got := ""
		for _, p := range problems {
			got += fmt.Sprintf("%s %s", dotted(p.Path), map[bool]string{true: "warning", false: "error"}[p.Warning])
		}
		if got != c.want {
			t.Errorf("%v on %+v: %q, want %q", c.body, c.placement, got, c.want)
		}
	}
}

func dotted(path cty.Path) string {
	var names []string
	for _, step := range path {
		switch s := step.(type) {
		case cty.GetAttrStep:
			names = append(names, s.Name)
		case cty.IndexStep:
			names = append(names, s.Key.AsBigFloat().String())
		}
	}
	return strings.Join(names, ".")
}

// decoded is a body of the block as the plugin gets it.
func decoded(t *testing.T, b body) Config {
	t.Helper()
	def := Plugin()
	var c Config
	if err := spec.Decode(value(t, def, b), def.Schema, &c); err != nil {
		t.Fatal(fmt.Errorf("%v: %w", b, err))
	}
	return c
}
