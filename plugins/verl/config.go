package verl

import (
	"encoding/json"
	"strings"

	"github.com/recipe-rl/recipe/sdk/kit/worker"
)

// Config is the body of `trainer "verl" "name"`. What all trainers have is in Common; everything else is verl's, in its
// own names.
type Config struct {
	worker.Common

	Backend     string              `recipe:"backend" worker:"backend" default:"fsdp2" enum:"fsdp2,fsdp,megatron" change:"resume" doc:"verl's model engine. megatron has not been run by this project"`
	Config      map[string]any      `recipe:"config" change:"resume" doc:"verl's own settings: { actor = { … }, model = { … }, ref = { … }, algorithm = { … } }, or a whole file of verl's: yamldecode(file(\"ppo_trainer.yaml\")). A setting of what recipe does itself (rollout, data, reward, trainer) is refused with what to write instead, unless it is verl's default"`
	Checkpoints *worker.Checkpoints `recipe:"checkpoints,block" doc:"When checkpoints are written and which are kept"`
}

// CheckpointStore implements trainer.Stored.
func (c Config) CheckpointStore() string { return c.Checkpoints.StoreAddress() }

// verl is what the program reads as verl's settings.
func (c Config) verl() map[string]any {
	if c.Config == nil {
		return map[string]any{}
	}
	return c.Config
}

// setting is a value of verl's by its whole name, such as actor_rollout_ref.actor.use_kl_loss, or by the short one that
// leaves the first part out; nil where the recipe does not say it.
func (c Config) setting(name string) any {
	for _, path := range []string{name, strings.TrimPrefix(name, "actor_rollout_ref.")} {
		var at any = c.Config
		for part := range strings.SplitSeq(path, ".") {
			section, ok := at.(map[string]any)
			if !ok {
				at = nil
				break
			}
			at = section[part]
		}
		if at != nil {
			return at
		}
	}
	return nil
}

// corrects says how training corrects for tokens that an older policy version sampled; empty: it does not, which is
// verl's default.
func (c Config) corrects() string {
	const correction = "algorithm.rollout_correction."
	if bypass, _ := c.setting(correction + "bypass_mode").(bool); bypass {
		return "verl's bypass mode: ratios are against the sampler"
	}
	if level, _ := c.setting(correction + "rollout_is").(string); level != "" {
		return "verl's rollout_is = " + level
	}
	return ""
}

// Instead has what to write in a recipe in place of a setting of verl's that config may not hold, by the whole name of
// the setting or of its section. The program reads the same file.
func Instead() map[string]string {
	data, err := source.ReadFile("recipe_verl/instead.json")
	var table map[string]string
	if err == nil {
		err = json.Unmarshal(data, &table)
	}
	if err != nil {
		panic("read recipe_verl/instead.json: " + err.Error())
	}
	return table
}
