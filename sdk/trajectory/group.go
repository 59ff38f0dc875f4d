package trajectory

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
)

// Group is the n completions of one prompt, scored. Tokens, Masks and Scores are required; what else is nil was not
// given. Lists with one element a sequence have the length of Tokens, lists with one element a token the length of
// that sequence.
type Group struct {
	// Tokens holds the token ids of each sequence, prompt and completion together.
	Tokens [][]int `json:"tokens"`
	// Masks holds -100 where a token is not trained on (the prompt), and the token id where it is.
	Masks [][]int `json:"masks"`
	// Scores holds one reward a sequence.
	Scores []float64 `json:"scores"`
	// Advantages overrides the advantage of each token.
	Advantages [][]float64 `json:"advantages,omitempty"`
	// RefLogprobs are the reference model's log-probabilities of the tokens.
	RefLogprobs [][]float64 `json:"ref_logprobs,omitempty"`
	// InferenceLogprobs are the sampling policy's log-probabilities: entry i belongs to token i, 1.0 stands on the prompt.
	InferenceLogprobs [][]float64 `json:"inference_logprobs,omitempty"`
	// Messages holds the conversation of each sequence, for people and for SFT.
	Messages json.RawMessage `json:"messages,omitempty"`
	// GenerationParams are the sampling parameters of the group, such as temperature.
	GenerationParams map[string]any `json:"generation_params,omitempty"`
	// Overrides are hints to the trainer, one a sequence (set_advantage_to_zero, temperature). The key policy_versions
	// holds []VersionSpan where several versions sampled the sequence and it is known which token came from which; the
	// key metrics an object of numbers that the environment gave beside the score, for people.
	Overrides []map[string]any `json:"overrides,omitempty"`
	// GroupOverrides are hints to the trainer for the whole group. The key expected holds the right answer, for people.
	GroupOverrides map[string]any `json:"group_overrides,omitempty"`
	// Images is whatever the environment attached.
	Images json.RawMessage `json:"images,omitempty"`
	// EnvID names the environment, as RegisterEnv returned it.
	EnvID *int `json:"env_id,omitempty"`
	// DistillTokenIDs and DistillLogprobs hold a teacher's top k for each position: [sequence][position][k].
	DistillTokenIDs [][][]int     `json:"distill_token_ids,omitempty"`
	DistillLogprobs [][][]float64 `json:"distill_logprobs,omitempty"`
	// PolicyVersion names which policy versions sampled the tokens; nil when unknown.
	PolicyVersion *Versions `json:"policy_version,omitempty"`
	// Task is what the scorer was given beside the completions, for the record of samples: the trajectory API gives it to
	// no trainer. It is the last field: so the API leaves it out without copying the others.
	Task json.RawMessage `json:"task,omitempty"`
}

// UnmarshalJSON reads a group. It refuses null where a number is expected, which encoding/json would read as 0: a score
// that nobody gave would count as a bad one.
func (g *Group) UnmarshalJSON(text []byte) error {
	type plain Group
	read := struct {
		*plain
		Scores            numbers   `json:"scores"`
		Advantages        []numbers `json:"advantages"`
		RefLogprobs       []numbers `json:"ref_logprobs"`
		InferenceLogprobs []numbers `json:"inference_logprobs"`
	}{plain: (*plain)(g)}
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	g.Scores, g.Advantages = read.Scores, floats(read.Advantages)
	g.RefLogprobs, g.InferenceLogprobs = floats(read.RefLogprobs), floats(read.InferenceLogprobs)
	return nil
}

// numbers is a list of numbers without null.
type numbers []float64

func (n *numbers) UnmarshalJSON(text []byte) error {
	*n = nil
	if string(text) == "null" {
		return nil
	}
	if bytes.Contains(text, []byte("null")) {
		return fmt.Errorf("want a number for each score, advantage and log-probability, got null in %.60s", text)
	}
	return json.Unmarshal(text, (*[]float64)(n))
}

func floats(lists []numbers) [][]float64 {
	if lists == nil {
		return nil
	}
	out := make([][]float64, len(lists))
	for i, l := range lists {
		out[i] = l
	}
	return out
}

// Versions is the range of policy versions that sampled a group's tokens, both ends included.
type Versions struct{ Min, Max int64 }

// VersionSpan reports that the tokens Start to End (exclusive) of a sequence were sampled by a policy version.
type VersionSpan struct {
	Version int64 `json:"version"`
	Start   int   `json:"start"`
	End     int   `json:"end"`
}

// OverrideVersions is the key of Overrides under which a sequence's spans stand.
const OverrideVersions = "policy_versions"

// OverrideMetrics is the key of Overrides under which the numbers beside a sequence's score stand, by name.
const OverrideMetrics = "metrics"

// OverrideFinish is the key of Overrides under which stands how the model's last answer ended: "stop" by itself or at a
// stop text, "length" cut off at max_tokens.
const OverrideFinish = "finish_reason"

// OverrideExpected is the key of GroupOverrides under which the right answer stands, for people.
const OverrideExpected = "expected"

// OverrideFailed is the key of Overrides under which stands why a sequence has no score: none of its tokens is trained,
// and its score, the mean of its group, counts for nothing.
const OverrideFailed = "failed"

// MaskedSpan explains why the sampled tokens Start to End (exclusive) of a sequence are not trained.
type MaskedSpan struct {
	Start int    `json:"start"`
	End   int    `json:"end"`
	Why   string `json:"why"`
}

// OverrideMasked is the key of Overrides under which the spans of sampled tokens stand that are not trained, for
// people.
const OverrideMasked = "masked"

// OverrideStop is the key of Overrides under which the text stands that ended the answer of a sequence, where one did.
const OverrideStop = "stop"

// OverrideRollout is the key of Overrides under which stands of which rollout of the group the sequence is a part, a
// number. The parts of a rollout follow each other, have one score, and count as one: in a batch, in a group's baseline
// and in means over sequences. A sequence without it is a rollout of its own.
const OverrideRollout = "rollout"

// Continues reports whether a sequence is a further part of the rollout of the sequence before it.
func (g *Group) Continues(i int) bool {
	if i == 0 || i >= len(g.Overrides) {
		return false
	}
	before, known := g.Overrides[i-1][OverrideRollout].(float64) // as JSON is read
	of, same := g.Overrides[i][OverrideRollout].(float64)
	return known && same && of == before
}

// At is the range of a group that one version sampled.
func At(version int64) *Versions { return &Versions{version, version} }

// MarshalJSON writes one number when both ends are the same, and [min, max] otherwise.
func (v Versions) MarshalJSON() ([]byte, error) {
	if v.Min == v.Max {
		return json.Marshal(v.Min)
	}
	return json.Marshal([]int64{v.Min, v.Max})
}

// UnmarshalJSON reads both forms.
func (v *Versions) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &v.Min); err == nil {
		v.Max = v.Min
		return nil
	}
	var list []int64
	if err := json.Unmarshal(text, &list); err != nil || len(list) < 1 || len(list) > 2 {
		return fmt.Errorf("policy_version is %s, expected a version such as 3 or a range such as [2,3]", text)
	}
	v.Min, v.Max = list[0], list[len(list)-1]
	return nil
}

// Registration is what a trainer says about itself.
type Registration struct {
	WandbGroup             string `json:"wandb_group"`
	WandbProject           string `json:"wandb_project"`
	BatchSize              int    `json:"batch_size"`    // rollouts
	MaxTokenLen            int    `json:"max_token_len"` // of prompt and completion together
	CheckpointDir          string `json:"checkpoint_dir"`
	SaveCheckpointInterval int    `json:"save_checkpoint_interval"` // steps
	StartingStep           int    `json:"starting_step"`
	NumSteps               int    `json:"num_steps"`
	// RolloutParts: it trains on rollouts of several sequences (OverrideRollout). Without it, environments send one
	// sequence a rollout.
	RolloutParts bool `json:"rollout_parts,omitempty"`
}

// EnvRegistration is what an environment says about itself.
type EnvRegistration struct {
	DesiredName    string  `json:"desired_name"`
	MaxTokenLength int     `json:"max_token_length"`
	Weight         float64 `json:"weight"`
	GroupSize      int     `json:"group_size"`
	// MinBatchAllocation is the fraction of every batch that must come from this environment; nil claims nothing.
	MinBatchAllocation *float64 `json:"min_batch_allocation"`
}

// EnvWelcome is the answer to an environment's registration.
type EnvWelcome struct {
	Status             string `json:"status"`
	EnvID              int    `json:"env_id"`
	WandbName          string `json:"wandb_name"`
	CheckpointDir      string `json:"checkpoint_dir"`
	StartingStep       int    `json:"starting_step"`
	CheckpointInterval int    `json:"checkpoint_interval"`
	NumSteps           int    `json:"num_steps"`
}

// Status is the state of the queue.
type Status struct {
	CurrentStep int `json:"current_step"` // batches delivered
	QueueSize   int `json:"queue_size"`   // groups waiting
}

// EnvStatus is what an environment steers by: it pauses when QueueSize groups are enough.
type EnvStatus struct {
	CurrentStep         int     `json:"current_step"`
	QueueSize           int     `json:"queue_size"` // in groups of this environment's size
	UnallocatedFraction float64 `json:"unallocated_fraction"`
	SelfQueueSize       int     `json:"self_queue_size"`
	MaxGroupSize        int     `json:"max_group_size"`
	EnvWeight           float64 `json:"env_weight"`
}

// Receipt is the answer to a posted group.
type Receipt struct {
	Status     string `json:"status"`      // "received" or "buffered"
	BufferSize int    `json:"buffer_size"` // sequences that wait to complete a group of the registered size
}

// Info is what a trainer has registered; -1 before.
type Info struct {
	BatchSize   int `json:"batch_size"`
	MaxTokenLen int `json:"max_token_len"`
	// RolloutParts: it trains on rollouts of several sequences.
	RolloutParts bool `json:"rollout_parts"`
}

// Trained is what a trainer computed for the tokens of a leased batch, for people to look at: POST /batch/{id}/trained.
type Trained struct {
	Step    int64          `json:"step"`              // from 1
	Version *int64         `json:"version,omitempty"` // policy version of the weights before the step; nil: unknown
	Groups  []TrainedGroup `json:"groups"`
}

// TrainedGroup holds one float32 (little-endian) for each trained token of a group, sequence after sequence. A trainer
// leaves out what it does not have.
type TrainedGroup struct {
	Index      int    `json:"index"` // of the group in the batch, from 0
	Logprobs   []byte `json:"logprobs,omitempty"`
	Advantages []byte `json:"advantages,omitempty"`
}

// Floats packs values for a TrainedGroup.
func Floats(values []float64) []byte {
	out := make([]byte, 0, 4*len(values))
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(v)))
	}
	return out
}
