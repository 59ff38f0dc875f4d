// Package sizing adds up what the blocks of a recipe need and compares it with the machine, and blocks with each other.
// Plugins report estimates and facts; nothing here touches a GPU, a network or a weight.
//
// Facts that are compared, as plugins report them (sdk.Estimate.Facts), all optional:
//
//	weights                           of inference and a trainer: the form of their weights, which must be the same
//	model, tokenizer                  equal between a trainer and the inference blocks that serve its policy
//	chat_template                     digests, separated by blanks: of a block, or of a trainer's checkpoints
//	chat_template_from                where it was found, in words
//	tokenizer_chat_template           of an inference block: digests of its tokenizer's templates
//	renders_chat                      of an environment, "true": it renders chats itself
//	generate                          of an environment: in whose shape it asks for token ids, vllm or sglang
//	logprobs_mode                     processed or raw: sent by an inference block, expected by a trainer
//	dtype                             of inference and a trainer: the precision of the weights in memory
//	publish_dtype                     of a trainer: the precision in which they travel
//	max_model_len                     of an inference block, in tokens
//	max_prompt_tokens, max_completion_tokens, max_total_tokens   of an environment or trainer
//	least_prompt_tokens               of an environment: how long the first prompt of its rollouts is, about
//	least_prompt_of                   of an environment: the agent whose prompt that is
//	max_length                        of a trainer: its longest sequence, in tokens
//	group_size                        of an environment: completions per prompt
//	temperature, top_p                of an environment: how it samples
//	least_group                       of a trainer: completions of which a group needs so many to teach it anything
//	batch_size                        of a trainer: sequences per optimizer step
//	ranks, micro_batch                of a trainer
//	gpu_memory_utilization            of an inference block: its fixed share of a GPU
//	name_of_FACT                      of an inference block: its attribute for a fact, where that has another name
//	sleeps                            of an inference block: it can release its memory ("true")
//	training_only                     of a trainer: parts of its memory used only in training, separated by commas
//	remedy_PART                       of any block: what makes a part of its memory smaller, named before the usual
//	memory_transport_only             of a trainer: parts that only transports through memory need
//	colocated                         of a sync block: auto, share or sleep
//	transport, transports, in_flight  of a sync block: requested, allowed (best first), what requests do
//	corrects                          of a trainer: how it corrects for tokens of older policy versions, if it does
//	transports, devices, no_memory    of both ends: its transports, its GPUs, why its memory is not offered
//	nondeterminism                    of any block: what besides its configuration decides what it does, a line each;
//	                                  empty: nothing; missing: the plugin does not say
//	max_staleness, queued_batches     of a sync block, a trajectories block or a trainer, and of an environment
package sizing

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// Machine is the machine of the run. Zero values are unknown.
type Machine struct {
	Devices   []string // its GPUs, as in CUDA_VISIBLE_DEVICES
	NoGPU     bool     // it is known to have none, or none that may be used
	GPUMemory float64  // bytes of each
	DiskFree  float64  // bytes where checkpoints go
}

// Sizer asks a block's plugin for an estimate. A plugin that has none returns a zero Estimate.
type Sizer func(b *schema.Block) (sdk.Estimate, []spec.Problem, error)

// Result is what a check came to.
type Result struct {
	Findings []plan.Finding // in address order
	Devices  Devices        // the GPUs of each block on this machine
	// Nondeterminism says of blocks why equal seeds may not give equal weights.
	Nondeterminism map[addr.Block][]string
}

// sized is a block with its estimate.
type sized struct {
	*schema.Block
	sdk.Estimate
	problems []spec.Problem
	err      error
}

// fact returns a fact that is a whole number.
func (s sized) fact(name string) (int64, bool) {
	n, err := strconv.ParseInt(s.Facts[name], 10, 64)
	return n, err == nil
}

// Check sizes every block, assigns GPUs to those that ask for some without naming them, and compares. Blocks keep the
// GPUs they had where possible.
func Check(r *schema.Recipe, size Sizer, m Machine, kept Devices) Result {
	c := &checker{blocks: map[addr.Block]sized{}, chosen: map[addr.Block]transport.Name{},
		external: map[addr.Block]*decode.External{}}
	for _, b := range r.Blocks {
		if b.Mock != cty.NilVal {
			continue
		}
		if b.Meta.External == nil {
			c.blocks[b.Addr] = sizedBy(size, b)
			c.order = append(c.order, b.Addr)
		} else {
			c.external[b.Addr] = b.Meta.External
		}
	}
	couples := c.couples()
	c.devices = c.deal(m, couples, kept)
	couples = c.meeting(couples)
	c.settle(size, m)
	for _, a := range c.order {
		c.tell(c.blocks[a])
	}
	c.ports()
	c.batches()
	c.lengths()
	c.leastPrompts()
	c.models()
	c.teachers()
	c.externals()
	c.transports(couples)
	c.templates()
	c.staleness()
	c.memory(m, couples)
	c.disk(m)
	slices.SortStableFunc(c.found, func(a, b plan.Finding) int { return addr.Compare(a.Address, b.Address) })
	return Result{c.found, c.here(m), c.nondeterminism()}
}

type checker struct {
	blocks   map[addr.Block]sized
	order    []addr.Block
	devices  Devices
	chosen   map[addr.Block]transport.Name // transport of a trainer's weights, if known
	found    []plan.Finding
	external map[addr.Block]*decode.External // servers that run elsewhere
}

func sizedBy(size Sizer, b *schema.Block) sized {
	e, problems, err := size(b)
	return sized{b, e, problems, err}
}

// tell turns the notes and problems of a block's plugin into findings.
func (c *checker) tell(b sized) {
	if b.err != nil {
		c.add("warning", b.Addr, "its needs cannot be estimated", b.err.Error())
	}
	for _, p := range b.problems {
		severity := "error"
		if p.Warning {
			severity = "warning"
		}
		where := spec.PathString(p.Path)
		if where != "" {
			where += ": "
		}
		c.add(severity, b.Addr, where+p.Summary, p.Detail)
	}
	for _, n := range b.Notes {
		c.add("info", b.Addr, n, "")
	}
}

func (c *checker) add(severity string, a addr.Block, summary, detail string) {
	c.found = append(c.found, plan.Finding{Severity: severity, Address: a, Summary: summary, Detail: detail})
}

// of returns the blocks of a kind, in address order.
func (c *checker) of(k kind.Kind) (out []sized) {
	for _, a := range c.order {
		if a.Kind == k {
			out = append(out, c.blocks[a])
		}
	}
	return out
}

// needed returns the blocks of a kind that b refers to.
func (c *checker) needed(b sized, k kind.Kind) (out []sized) {
	seen := map[addr.Block]bool{}
	for _, n := range b.Needs {
		if s, ok := c.blocks[n.On]; ok && n.On.Kind == k && !seen[n.On] {
			seen[n.On] = true
			out = append(out, s)
		}
	}
	return out
}

// ports finds blocks that are configured to listen on the same port.
func (c *checker) ports() {
	taken := map[string]addr.Block{}
	for _, a := range c.order {
		b := c.blocks[a]
		for _, n := range b.Amounts {
			if n.Resource != "port" || n.Value == 0 {
				continue
			}
			host := ""
			if b.Meta.Placement != nil {
				host = b.Meta.Placement.Host
			}
			key := fmt.Sprintf("%s:%.0f", host, n.Value)
			if other, ok := taken[key]; ok {
				c.add("error", a, fmt.Sprintf("port %.0f is also used by %s", n.Value, other),
					"Change one of the ports, or remove it: then a free one is chosen.")
			}
			taken[key] = a
		}
	}
}

// batches compares a trainer's batch size with group sizes and the number of ranks.
func (c *checker) batches() {
	for _, t := range c.of(kind.Trainer) {
		batch, ok := t.fact("batch_size")
		if !ok {
			continue
		}
		for _, e := range c.needed(t, kind.Environment) {
			c.samples(t, e)
			group, ok := e.fact("group_size")
			switch {
			case !ok:
			case group > batch:
				c.add("error", t.Addr, fmt.Sprintf("batch_size %d is smaller than a group of %s", batch, e.Addr),
					fmt.Sprintf(
						"A group has %d completions and is never split: raise batch_size to a multiple of %d, or "+
							"lower group_size to %d.", group, group, batch))
			case batch%group != 0 && len(c.needed(t, kind.Environment)) == 1:
				c.add("error", t.Addr, fmt.Sprintf("batch_size %d is not a multiple of the group_size %d of %s", batch,
					group, e.Addr),
					fmt.Sprintf(
						"Whole groups cannot fill a batch exactly, so no batch would be delivered: use %d or %d.",
						batch/group*group, (batch/group+1)*group))
			}
		}
		if ranks, ok := t.fact("ranks"); ok && ranks > 1 && batch%ranks != 0 {
			c.add("warning", t.Addr, fmt.Sprintf("batch_size %d is not a multiple of %d ranks", batch, ranks),
				"Some ranks would have less work than others in every step.")
		}
	}
}

// samples looks whether a trainer can learn from what an environment samples.
func (c *checker) samples(t, e sized) {
	if e.Facts["temperature"] == "0" {
		c.add("error", e.Addr, fmt.Sprintf("%s cannot be trained on samples of temperature 0", t.Addr),
			"They are greedy: all of a group are the same, and none has a probability. Set temperature, such as 1.")
	}
	for _, s := range []struct{ name, neutral, unset, why string }{
		{"top_p", "1", "Set top_p = 1", "Tokens that it leaves out have a probability in training and none in sampling"},
		{"top_k", "", "Leave it out", "Tokens that it leaves out have a probability in training and none in sampling"},
		{"min_p", "0", "Leave it out", "Tokens that it leaves out have a probability in training and none in sampling"},
		{"repetition_penalty", "1", "Leave it out", "Sampling changes the probabilities of tokens and training does not"},
	} {
		if p := e.Facts[s.name]; p != "" && p != s.neutral {
			c.add("warning", e.Addr, fmt.Sprintf("with %s = %s samples are not those of the policy that %s trains", s.name, p,
				t.Addr), fmt.Sprintf("%s, so that importance ratios are off by what they share. %s, unless that is meant.",
				s.why, s.unset))
		}
	}
	if t.Facts["reads_scores"] == "false" && e.Facts["drops_equal_scores"] == "true" {
		c.add("error", e.Addr, "it leaves out groups of equal scores, from which "+t.Addr.String()+" learns",
			"Its loss compares with a teacher and reads no score. Set drop_uninformative = false.")
	}
	group, ok := e.fact("group_size")
	if least, known := t.fact("least_group"); ok && known && group < least {
		c.add("warning", e.Addr, fmt.Sprintf("nothing is learned from groups of %d", group),
			fmt.Sprintf("%s compares the scores of a group, for which it needs %d at least. Raise group_size, or give %s an "+
				"estimator of advantages that does not compare. Advantages that the environment sends itself count all the "+
				"same.", t.Addr, least, t.Addr))
	}
}

// lengths compares the lengths of requests with the context of the inference server.
func (c *checker) lengths() {
	for _, e := range c.of(kind.Environment) {
		prompt, _ := e.fact("max_prompt_tokens")
		completion, hasCompletion := e.fact("max_completion_tokens")
		total, hasTotal := e.fact("max_total_tokens")
		for _, i := range c.needed(e, kind.Inference) {
			limit, ok := i.fact("max_model_len")
			switch {
			case !ok:
			case hasTotal && total > limit:
				c.add("error", e.Addr, fmt.Sprintf("it requests up to %d tokens; %s has a context of %d", total, i.Addr, limit),
					fmt.Sprintf(
						"Prompt and completion together are limited by %s: raise it to %d, or lower the "+
							"environment's limit to %d.", i.setting("max_model_len"), total, limit))
			case hasCompletion && prompt+completion > limit:
				c.add("error", e.Addr, fmt.Sprintf("prompt %d + completion %d = %d tokens; %s has a context of %d", prompt,
					completion, prompt+completion, i.Addr, limit),
					fmt.Sprintf("Raise %s to %d, or lower the completion to %d.", i.setting("max_model_len"),
						prompt+completion, limit-prompt))
			}
		}
	}
}

// staleness compares the length of the queue with the allowed staleness.
func (c *checker) staleness() {
	for _, s := range c.of(kind.Sync) {
		for _, t := range c.needed(s, kind.Trainer) {
			for _, by := range append(c.needed(t, kind.Trajectories), s, t) {
				if limit, ok := by.fact("max_staleness"); ok {
					c.queues(t, by, limit)
				}
			}
		}
	}
}

// queues compares what the environments of a trainer may queue with a limit that a block sets.
func (c *checker) queues(t, by sized, limit int64) {
	for _, e := range c.needed(t, kind.Environment) {
		if queued, ok := e.fact("queued_batches"); ok && queued > limit {
			remedy := fmt.Sprintf("Raise max_staleness to %d", queued)
			if limit > 0 {
				remedy += fmt.Sprintf(", or lower the queue to %d", limit)
			}
			c.add("warning", by.Addr,
				fmt.Sprintf("%s may queue %d batches, but groups older than %d versions are dropped", e.Addr, queued, limit),
				fmt.Sprintf("With one version per step, a batch behind %d others is %d versions old when it is trained. %s.",
					queued, queued, remedy))
		}
	}
}
