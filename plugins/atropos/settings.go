package atropos

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"go.yaml.in/yaml/v3"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// endpoints are what the environment is connected to.
type endpoints struct {
	BaseURL, APIKey, Model, Tokenizer string
	Trajectories                      string // with the token in its path
	ControlURL, ControlToken          string // of the gateway; only for this plugin, never for the environment
}

// endpointsOf reads them from the blocks that the configuration refers to.
func endpointsOf(c Config) (endpoints, error) {
	e := endpoints{}
	for _, want := range []struct {
		ref  *spec.Ref
		name string
		into *string
		must bool
	}{
		{&c.Inference, "base_url", &e.BaseURL, true},
		{&c.Inference, "api_key", &e.APIKey, false},
		{&c.Inference, "model", &e.Model, true},
		{&c.Inference, "tokenizer", &e.Tokenizer, false},
		{&c.Inference, "control_url", &e.ControlURL, false},
		{&c.Inference, "control_token", &e.ControlToken, false},
	} {
		text, err := output(want.ref, want.name)
		if err != nil || (want.must && text == "") {
			return e, fmt.Errorf("output %s of %s is not known: %w", want.name, want.ref.Address, err)
		}
		*want.into = text
	}
	if c.Trajectories == nil {
		return e, &sdk.Error{
			Summary: "no trajectory API to send groups to",
			Remedy:  "add a block trajectories to the recipe, or set trajectories = … here",
		}
	}
	url, err := output(c.Trajectories, "url")
	if err != nil || url == "" {
		return e, fmt.Errorf("output url of %s is not known: %w", c.Trajectories.Address, err)
	}
	token, err := output(c.Trajectories, "token")
	if err != nil {
		return e, err
	}
	e.Trajectories = strings.TrimRight(url, "/") // paths are appended as they stand
	if token != "" {
		// An unmodified environment accepts only a URL, so the token is in it.
		e.Trajectories += "/t/" + token
	}
	return e, nil
}

// output reads a text output of another block; empty when it has none of that name.
func output(ref *spec.Ref, name string) (string, error) {
	if ref.Values == cty.NilVal || !ref.Values.Type().IsObjectType() || !ref.Values.Type().HasAttribute(name) {
		return "", nil
	}
	v, _ := ref.Values.GetAttr(name).Unmark()
	if v.IsNull() || !v.IsKnown() || v.Type() != cty.String {
		return "", nil
	}
	return v.AsString(), nil
}

// settings is the file that the environment reads.
type settings struct {
	Env     map[string]any   `yaml:"env"`
	OpenAI  []map[string]any `yaml:"openai"`
	Slurm   bool             `yaml:"slurm"`
	Testing bool             `yaml:"testing"`
}

// makeSettings turns the block into atroposlib's settings for one of its processes. Dir is the process's own directory.
func makeSettings(c Config, e endpoints, name, dir string) settings {
	replicas := float64(max(1, c.Replicas))
	tokenizer := c.Tokenizer
	if tokenizer == "" {
		tokenizer = e.Tokenizer
	}
	env := map[string]any{
		"rollout_server_url":     e.Trajectories,
		"wandb_name":             name, // a null name is refused by the trajectory API and ends the environment
		"use_wandb":              c.Wandb,
		"group_size":             c.GroupSize,
		"total_steps":            c.TotalSteps,
		"inference_weight":       c.Weight / replicas,
		"data_dir_to_save_evals": filepath.Join(dir, "evals"),
	}
	if tokenizer != "" {
		env["tokenizer_name"] = tokenizer
	}
	set := func(name string, value int64) {
		if value > 0 {
			env[name] = value
		}
	}
	set("max_token_length", c.MaxTokenLength)
	set("max_batches_offpolicy", c.MaxBatchesOffpolicy)
	set("max_num_workers", c.MaxNumWorkers)
	if c.StepsPerEval != nil {
		env["steps_per_eval"] = *c.StepsPerEval
	}
	if c.MinBatchAllocation > 0 {
		env["min_batch_allocation"] = c.MinBatchAllocation / replicas
	}
	if c.KeepSameScores {
		env["ensure_scores_are_not_same"] = false
	}
	if c.IncludeMessages {
		env["include_messages"] = true
	}
	if c.SaveGroups {
		env["data_path_to_save_groups"] = filepath.Join(dir, "groups.jsonl")
	}
	maps.Copy(env, c.Config)

	server := map[string]any{
		"base_url":    e.BaseURL,
		"api_key":     e.APIKey,
		"model_name":  e.Model,
		"server_type": c.ServerType,
		"timeout":     int64(c.RequestTimeout.Seconds()),
	}
	if e.APIKey == "" {
		server["api_key"] = "none" // the client refuses an empty one
	}
	if tokenizer != "" {
		server["tokenizer_name"] = tokenizer
	}
	// Two entries, see below: each gets half of the requests.
	if c.NumMaxRequestsAtOnce > 0 {
		server["num_max_requests_at_once"] = (c.NumMaxRequestsAtOnce + 1) / 2
	}
	if c.NumRequestsForEval > 0 {
		server["num_requests_for_eval"] = (c.NumRequestsForEval + 1) / 2
	}
	maps.Copy(server, c.OpenAI)
	// A list of two equal servers is the one form that every environment takes over: flags and a single entry are
	// ignored where config_init returns a single server, and rollouts then go to ports 9004 to 9007 of this machine.
	return settings{Env: env, OpenAI: []map[string]any{server, maps.Clone(server)}}
}

// encode writes settings as YAML with sorted keys.
func (s settings) encode() ([]byte, error) {
	data, err := yaml.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("write the environment's settings as YAML: %w", err)
	}
	return data, nil
}
