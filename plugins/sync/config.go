// Package sync is the plugin that moves weights from a trainer to inference and verifies each transfer.
//
// For each publication of the trainer it holds the gateways, lets them load, compares the log-probabilities of a fixed
// text on both sides, raises the version, opens the gateways and releases the trainer. Between publications it looks
// after the inference blocks: one that was restarted gets the current weights again before it answers anybody.
package sync

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
	sdksync "github.com/recipe-rl/recipe/sdk/sync"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// Config is the body of a sync block.
type Config struct {
	Trainer      spec.Ref      `recipe:"trainer" required:"true" reference:"trainer" doc:"The trainer whose weights are served"`
	Inference    []spec.Ref    `recipe:"inference" required:"true" min:"1" reference:"inference" change:"live" doc:"The inference blocks that serve them"`
	Trajectories *spec.Ref     `recipe:"trajectories" reference:"trajectories" doc:"The trajectory API that receives each new policy version, to measure and limit staleness. Default: the recipe's only one"`
	Every        int64         `recipe:"every" default:"1" min:"1" unit:"optimizer steps" change:"live" doc:"Interval between weight updates"`
	Transport    string        `recipe:"transport" default:"auto" doc:"Transport of the weights: live, ipc, nccl, lora, reload, delta, restart (docs/weights.md), or auto: the fastest that the trainer and every inference block support. auto chooses live where in_flight is keep; every block supports reload, which goes through files, and delta, which sends them to machines that do not see those"`
	InFlight     string        `recipe:"in_flight" default:"auto" enum:"auto,drain,keep,abort" change:"live" doc:"Handling of requests in flight at a weight update: drain finishes them first, keep continues them with the new weights (the versions of their tokens are recorded as a range), abort cancels them and sends them again. auto: keep where the transport supports it, the recipe allows samples that are one version old and the trainer corrects for them, else drain"`
	MaxStaleness *int64        `recipe:"max_staleness" min:"0" unit:"policy versions" doc:"Largest age of the policy that sampled a group. The trajectory API drops and counts older groups, which are not trained on"`
	ProbeTokens  []int64       `recipe:"probe_tokens" min:"2" doc:"Token ids of the fixed text whose log-probabilities are compared to verify a weight update. Default: two plain English sentences, split by the trainer's tokenizer"`
	Tolerance    float64       `recipe:"tolerance" default:"0" min:"0" change:"live" doc:"Largest allowed root mean square of the differences between the log-probabilities of trainer and server. 0 chooses by the lowest of three precisions, that of what is published and those in which trainer and servers compute: 0.001 for float32, 0.03 for float32 that a GPU multiplies as TensorFloat-32, 0.3 for the 16-bit formats"`
	Colocated    string        `recipe:"colocated" default:"auto" enum:"auto,share,sleep" doc:"How trainer and inference share one GPU. sleep: inference releases its memory while the trainer works and allocates it again for the new weights. share: both stay in memory; also for separate GPUs. auto: sleep when every inference block can sleep (vLLM: enable_sleep_mode = true, SGLang: enable_memory_saver = true) and one of them uses a GPU of the trainer, else share, which is as fast when the memory suffices"`
	SleepLevel   int64         `recipe:"sleep_level" default:"0" min:"0" max:"2" change:"live" doc:"Handling of the weights of sleeping inference: 1 keeps them in the host's memory, 2 discards them, which is faster and requires loading them at wake-up. 0: 2 where each step publishes new weights and the current ones are in files, else 1"`
	Timeout      time.Duration `recipe:"timeout" default:"10m" min:"1s" change:"live" doc:"Time limit of one weight update: holding, publishing, loading and verifying together"`
}

// Definition is the plugin sync "weights".
func Definition() *sdk.Definition {
	return sdksync.New("weights",
		"Moves weights from a trainer to inference and verifies that every server has loaded them.",
		func() sdk.Service[Config] {
			return &syncer{updates: make(chan Config, 1)}
		}, sdk.WithMetrics(slices.Concat(
			spec.Metrics("policy_version", "", "version that inference serves"),
			spec.Metrics("sync_seconds", "seconds", "of a weight update"),
			spec.Since("in updates that have this phase", spec.Metrics("sync_*_seconds", "seconds", "of one phase")),
			spec.Since("in updates that a server has loaded", spec.Metrics("sync_logprob_difference", "nats",
				"of the text that verifies an update")))...))
}

var _ sdk.Validator[Config] = (*syncer)(nil)

// Validate checks what the schema cannot say.
func (*syncer) Validate(c Config) []spec.Problem {
	var problems []spec.Problem
	if c.Transport != string(transport.Auto) && !slices.Contains(transport.All(), transport.Name(c.Transport)) {
		problems = append(problems, spec.Problem{
			Path: cty.GetAttrPath("transport"), Summary: "unknown transport",
			Detail: fmt.Sprintf("Expected auto, %s; got %q.", strings.Join(transport.Texts(transport.All()), ", "), c.Transport),
		})
	}
	seen := map[string]bool{}
	for i, r := range c.Inference {
		if r.Address != "" && seen[r.Address] {
			problems = append(problems, spec.Problem{
				Path:    cty.GetAttrPath("inference").IndexInt(i),
				Summary: "the same block twice", Detail: r.Address + " is in the list already; remove one of them.",
			})
		}
		seen[r.Address] = true
		if r.Kind != "" && r.Kind != kind.Inference {
			problems = append(problems, spec.Problem{Path: cty.GetAttrPath("inference").IndexInt(i),
				Summary: "not an inference block", Detail: r.Address + " is of kind " + string(r.Kind) + "."})
		}
	}
	problems = append(problems, spec.Idle(`colocated = "share": inference does not sleep. Leave one of them out.`,
		map[string]bool{"sleep_level": c.Colocated == "share" && c.SleepLevel > 0})...)
	for i, t := range c.ProbeTokens {
		if t < 0 {
			problems = append(problems, spec.Problem{
				Path: cty.GetAttrPath("probe_tokens").IndexInt(i), Summary: "not a token id",
				Detail: fmt.Sprintf("Expected 0 or more, got %d.", t),
			})
		}
	}
	return problems
}
