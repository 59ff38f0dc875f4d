package atropos

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/chat"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// attributes that config may not set, because an attribute of the block does.
var managed = map[string]string{
	"rollout_server_url": "", "wandb_name": "name", "group_size": "group_size", "total_steps": "total_steps",
	"max_token_length": "max_token_length",
	"steps_per_eval":   "steps_per_eval", "inference_weight": "weight", "min_batch_allocation": "min_batch_allocation",
	"max_batches_offpolicy": "max_batches_offpolicy",
	"max_num_workers":       "max_num_workers", "use_wandb": "wandb", "tokenizer_name": "tokenizer",
	"include_messages":           "include_messages",
	"ensure_scores_are_not_same": "keep_same_scores", "data_path_to_save_groups": "save_groups",
}

// Validate finds what the schema cannot express.
func (e *Environment) Validate(c Config) []spec.Problem {
	var problems []spec.Problem
	add := func(path cty.Path, summary, detail string) {
		problems = append(problems, spec.Problem{Path: path, Summary: summary, Detail: detail})
	}
	if (c.Script == "") == (c.Module == "") {
		add(
			cty.GetAttrPath("script"),
			"script or module, exactly one of them",
			"script names a file that ends in Class.cli(), module an importable module that does.",
		)
	}
	for _, name := range sortedNames(c.Config) {
		attribute, ok := managed[name]
		if !ok {
			continue
		}
		detail := "It is where scored groups go: set trajectories instead."
		if attribute != "" {
			detail = fmt.Sprintf("Write %s = … in the block itself.", attribute)
		}
		add(cty.GetAttrPath("config"), name+" does not belong into config", detail)
	}
	for _, name := range []string{"base_url", "api_key", "model_name"} {
		if _, ok := c.OpenAI[name]; ok {
			add(
				cty.GetAttrPath("openai"),
				name+" does not belong into openai",
				"It follows from inference = …, which names who samples.",
			)
		}
	}
	if c.ServerType == "openai" || c.ServerType == "trl" {
		problems = append(problems, spec.Problem{
			Warning: true, Path: cty.GetAttrPath("server_type"),
			Summary: c.ServerType + " gives no token ids and log-probabilities",
			Detail:  "Training needs both. Keep vllm unless this environment only evaluates.",
		})
	}
	return problems
}

// Plan gives the facts that are compared with other blocks.
func (e *Environment) Plan(c Config, _ sdk.Placement) (sdk.Estimate, []spec.Problem) {
	// With these servers the environment renders conversations itself, by its tokenizer, and sends token ids.
	facts := map[string]string{
		"nondeterminism": "Atropos samples while the trainer trains and posts groups as they are done, so time decides " +
			"which policy version samples a group, and the order of groups",
		"group_size":   strconv.FormatInt(c.GroupSize, 10),
		"renders_chat": strconv.FormatBool(c.ServerType == "vllm" || c.ServerType == "sglang"),
	}
	if facts["renders_chat"] == "true" {
		facts["generate"] = c.ServerType
	}
	if c.MaxTokenLength > 0 {
		facts["max_completion_tokens"] = strconv.FormatInt(c.MaxTokenLength, 10)
	}
	if c.MaxBatchesOffpolicy > 0 {
		facts["queued_batches"] = strconv.FormatInt(c.MaxBatchesOffpolicy, 10)
	}
	if c.Tokenizer != "" {
		facts["tokenizer"] = c.Tokenizer
		templates, _, err := chat.Of(c.Tokenizer)
		if err != nil {
			return sdk.Estimate{
					Facts: facts,
				}, []spec.Problem{
					{
						Path:    cty.GetAttrPath("tokenizer"),
						Summary: "the tokenizer's chat templates cannot be read",
						Detail:  err.Error(),
					},
				}
		}
		if text, ok := templates[chat.Default]; ok {
			facts["chat_template"], facts["chat_template_from"] = chat.Digest(text), c.Tokenizer
		}
	}
	memory := float64(max(1, c.Replicas)) * 400 * (1 << 20)
	return sdk.Estimate{
		Facts: facts,
		Amounts: []sdk.Amount{
			{
				Resource: "host_memory",
				Part:     "environment",
				Value:    memory,
				How:      fmt.Sprintf("%d Python processes × about 400 MiB", max(1, c.Replicas)),
			},
		},
	}, nil
}

func sortedNames(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
