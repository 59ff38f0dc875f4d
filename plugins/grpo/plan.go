package grpo

import (
	"fmt"
	"math"
	"strconv"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/modelinfo"
	"github.com/recipe-rl/recipe/sdk/kit/worker"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Validate finds what the schema cannot express.
func (t *Trainer) Validate(c Config) []spec.Problem {
	problems := append(c.Problems(), contradictions(c)...)
	if c.Checkpoints != nil {
		problems = append(problems, c.Checkpoints.Problems()...)
	}
	if c.Compute != nil && c.Compute.Dtype != "float32" && c.Compute.Dtype != "" && (c.Lora == nil || c.Lora.Rank == 0) {
		problems = append(problems, spec.Problem{
			Path: cty.GetAttrPath("compute").GetAttr("dtype"), Warning: true,
			Summary: "training all weights in " + c.Compute.Dtype + " rounds small updates away",
			Detail: "At a learning rate of 1e-5 most steps do not change a bfloat16 weight at all. Keep dtype = \"float32\" " +
				"and set compute_dtype = \"bfloat16\".",
		})
	}
	if c.Compute != nil && c.Compute.Device != "" && !devices.MatchString(c.Compute.Device) {
		problems = append(problems, spec.Problem{
			Path: cty.GetAttrPath("compute").GetAttr("device"), Summary: "unknown device",
			Detail: fmt.Sprintf("Expected auto, cpu, cuda or cuda:N, got %q.", c.Compute.Device),
		})
	}
	if c.Compute != nil && c.Compute.Float8 == "all" && !c.adapted() {
		problems = append(problems, spec.Problem{
			Path: cty.GetAttrPath("compute").GetAttr("float8"), Warning: true,
			Summary: "training all weights through a forward pass in float8 trains another policy than is served",
			Detail: "Small updates stay within a step of float8, so that trainer and inference drift apart (metric " +
				"mismatch/kl). Use float8 = \"backward\", or train adapters.",
		})
	}
	return problems
}

var devices = lazyregexp.New(`^(auto|cpu|cuda(:\d+)?)$`)

// Plan describes what training will need on each GPU, or of the machine when it has none.
func (t *Trainer) Plan(c Config, placement sdk.Placement) (sdk.Estimate, []spec.Problem) {
	gpu := placement.Count() > 0
	dtype, _ := c.dtypes(gpu)
	facts, unreadable := c.Facts(dtype, worker.Transports(c.adapted()), placement)
	e := sdk.Estimate{Facts: facts}
	l := learningOf(c)
	e.Facts["loss"], e.Facts["aggregation"], e.Facts["correction"] = l.loss, l.aggregation, l.correction
	e.Facts["corrects"] = c.corrects()
	if l.taught() {
		e.Facts["reads_scores"] = "false"
	}
	if least := c.leastGroup(); least > 1 {
		e.Facts["least_group"] = strconv.Itoa(least)
	}
	if c.adapted() {
		e.Facts["lora_rank"] = strconv.FormatInt(c.Lora.Rank, 10)
	}
	if ref := c.served(); ref != nil {
		e.Facts["teacher"] = ref.Address
	}
	e.Notes = append(e.Notes, l.notes()...)
	if c.Correction != nil && c.Correction.LogprobsMode != "" {
		e.Facts["logprobs_mode"] = c.Correction.LogprobsMode
	}
	problems := c.misplaced(placement)
	if name := optimizerOf(c); placement.Ranks() > 1 && c.divided("optimizer") &&
		(name == "adafactor" || name == "adamw_8bit") {
		problems = append(problems, spec.Problem{
			Path: cty.GetAttrPath("optimizer").GetAttr("name"), Summary: name + " works on one GPU only",
			Detail: "Its state does not fit weights that are spread over several. Use adamw or sgd, one GPU, adapters " +
				"(lora), or compute { replicate = true }, with which each GPU holds the whole model.",
		})
	}
	if unreadable != nil {
		return e, append(problems, spec.Problem{Path: cty.GetAttrPath("model"), Summary: "the model's chat templates " +
			"cannot be read", Detail: unreadable.Error()})
	}
	e.Facts["training_only"] = "gradients,activations,logits"
	if offloaded := c.offloaded(); gpu && offloaded {
		e.Facts["training_only"] += ",pieces"
	} else if gpu && optimizerOf(c) == "adamw" {
		e.Facts["remedy_optimizer"] = "keep it in the host's memory with optimizer { offload = true }"
	}
	m, known, err := modelinfo.Of(c.Model)
	if err != nil {
		return e, append(problems, spec.Problem{Path: cty.GetAttrPath("model"),
			Summary: "the model's config.json cannot be read", Detail: err.Error()})
	}
	if !known {
		e.Notes = append(e.Notes, modelinfo.Unknown(c.Model))
		return e, problems
	}
	if m.MaxLen > 0 && c.MaxLength > m.MaxLen {
		problems = append(problems, tooLong(c, m))
	}
	words, unlike := c.otherWords(m)
	if problems = append(problems, unlike...); words != "" {
		e.Notes = append(e.Notes, words)
	}
	s := sizesOf(c, m, gpu)
	if note := c.left(m, s, gpu); note != "" {
		e.Notes = append(e.Notes, note)
	}
	share, resource, over := float64(placement.Ranks()), "gpu_memory", "GPUs"
	if !gpu {
		resource, over = "host_memory", "machines"
	}
	add := func(part string, value float64, how string) {
		if value > 0 {
			if share > 1 && c.divided(part) {
				value, how = value/share, fmt.Sprintf("%s ÷ %g %s", how, share, over)
			}
			e.Amounts = append(e.Amounts, sdk.Amount{Resource: resource, Part: part, Value: value, How: how})
		}
	}
	add("weights", s.total*s.weight, fmt.Sprintf("%s parameters × %g bytes", count(s.total), s.weight))
	add("gradients", s.trained*s.gradient, fmt.Sprintf("%s trained parameters × %g bytes", count(s.trained), s.gradient))
	moments := fmt.Sprintf("%s trained parameters × %g bytes (%s)", count(s.trained), s.optimizer, s.name)
	if gpu && c.offloaded() {
		e.Amounts = append(e.Amounts, offloadAmounts(s.trained*s.optimizer, moments, placement)...)
	} else {
		add("optimizer", s.trained*s.optimizer, moments)
	}
	add("reference", s.reference*s.weight, fmt.Sprintf("%s parameters × %g bytes (a copy for the KL term)",
		count(s.reference), s.weight))
	add("activations", s.activations, s.activationsHow)
	add("logits", s.logits, s.logitsHow)
	if c.adapted() && or(c.Lora.Merged, false) {
		add("frozen", s.total*s.weight, fmt.Sprintf("%s parameters × %g bytes: the weights before training, beside "+
			"their sum with the adapters (lora { merged = true })", count(s.total), s.weight))
	}
	if why := copied(c, resource, share, e.Facts["publish_dtype"] != e.Facts["dtype"]); why != "" {
		width := bytesOf(e.Facts["publish_dtype"])
		add(published, s.total*width, fmt.Sprintf("%s parameters × %g bytes: %s, for inference to copy",
			count(s.total), width, why))
		e.Facts["memory_transport_only"] = published
	}
	e.Amounts = append(e.Amounts, sdk.Amount{
		Resource: "disk", Part: "checkpoints", Value: s.checkpoints,
		How: fmt.Sprintf("%d checkpoints × (weights + optimizer)", s.kept),
	})
	return e, problems
}

// offloadAmounts are what AdamW's moments take of each machine's memory, and of a GPU while they pass through it.
func offloadAmounts(all float64, how string, p sdk.Placement) []sdk.Amount {
	machine := all / float64(max(p.Nodes, 1))
	if p.Nodes > 1 {
		how = fmt.Sprintf("%s ÷ %d machines", how, p.Nodes)
	}
	return []sdk.Amount{
		{Resource: "host_memory", Part: "optimizer", Value: machine, How: how + ", pinned"},
		{Resource: "gpu_memory", Part: "pieces", Value: passing(all / float64(p.Ranks())), How: fmt.Sprintf(
			"%d × 2 × %d MiB at least: the optimizer's state on its way through the GPU", offloadBuffers, offloadPiece>>20)},
	}
}

// offloaded reports whether AdamW's moments live in the host's memory.
func (c Config) offloaded() bool { return c.Optimizer != nil && c.Optimizer.Offload }

// published is the copy of the weights that inference copies from, where the trainer's own cannot be given away.
const published = "published"

// divided reports whether several GPUs share a part. Adapters are whole on each, as all is with replicate = true.
func (c Config) divided(part string) bool {
	switch part {
	case "activations", "logits", published:
		return false
	case "gradients", "optimizer":
		return !c.adapted() && !c.replicated()
	}
	return !c.replicated()
}

// replicated says whether each GPU is to hold the whole model. Unset, the worker decides; the plan counts what it can
// do with.
func (c Config) replicated() bool { return c.Compute != nil && or(c.Compute.Replicate, false) }

// copied explains why weights that go through memory need that copy; empty: they are given away where they lie.
func copied(c Config, resource string, ranks float64, rounded bool) string {
	switch {
	case resource == "host_memory":
		return "shared memory"
	case c.adapted() && !or(c.Lora.Merged, false):
		return "adapters merged into the model"
	case ranks > 1 && !c.replicated():
		return "shards gathered on the first GPU"
	case rounded:
		return "publish_dtype = " + c.PublishDtype
	}
	return ""
}

// sizes are the terms of the sum.
type sizes struct {
	total, trained, reference   float64 // parameters
	weight, gradient, optimizer float64 // bytes each
	name                        string
	activations, logits         float64
	activationsHow, logitsHow   string
	kept                        int64
	checkpoints                 float64
}

func sizesOf(c Config, m modelinfo.Model, gpu bool) sizes {
	opt, checks := optimizerOf(c), (*worker.Checkpoints)(nil).Kept(c.Steps)
	dtype, arithmeticType := c.dtypes(gpu)
	checkpointing, rowTokens, chunk := true, int64(8192), int64(1024) // what the worker can do with when memory is short
	if k := c.Compute; k != nil {
		checkpointing, rowTokens, chunk = or(k.GradientCheckpointing, checkpointing), or(k.RowTokens, rowTokens),
			or(k.HeadChunk, chunk)
	}
	if c.Checkpoints != nil {
		checks = c.Checkpoints.Kept(c.Steps)
	}
	s := sizes{total: float64(m.Parameters()), weight: bytesOf(dtype), name: opt, kept: checks}
	s.trained, s.gradient = s.total, s.weight
	lora := c.adapted()
	if lora {
		// Two matrices beside each linear layer: in + out, times the rank.
		perLayer := m.Hidden*4 + m.Heads*m.HeadDim*2 + 2*m.KVHeads*m.HeadDim + 3*(m.Hidden+m.FFN)
		s.trained, s.gradient = float64(c.Lora.Rank*m.Layers*perLayer), 4
	}
	s.optimizer = map[string]float64{"adamw": 2 * s.gradient, "adamw_8bit": 2, "adafactor": 0.1 * s.gradient}[opt]
	kl := c.KL == nil || c.KL.Coefficient > 0 || c.KL.RewardCoefficient > 0
	if source := "auto"; kl && !lora && c.served() == nil {
		if c.Reference != nil && c.Reference.Source != "" {
			source = c.Reference.Source
		}
		if (source == "auto" || source == "copy") && (c.Reference == nil || !c.Reference.Offload) {
			s.reference = s.total
		}
	}
	r := running{dtype: dtype, compute: arithmeticType, compiled: c.compiles(m, gpu), layers: m.Layers, rows: rowTokens,
		chunk: chunk}
	if checkpointing {
		r.recomputed = m.Layers
	}
	shape := shapeOf(m, s)
	s.activations, s.logits = shape.activationBytes(r), shape.headBytes(r)
	layer := 8*m.Hidden + 4*m.FFN
	if checkpointing {
		s.activationsHow = fmt.Sprintf("row_tokens = %d × (%d layers × %d × %g bytes + one layer recomputed, %d × %g bytes)",
			rowTokens, m.Layers, m.Hidden, s.weight, layer, bytesOf(arithmeticType))
	} else {
		s.activationsHow = fmt.Sprintf("row_tokens = %d × %d layers × %d × %g bytes; gradient_checkpointing = true "+
			"keeps a fraction", rowTokens, m.Layers, layer, bytesOf(arithmeticType))
	}
	s.logitsHow = fmt.Sprintf("head_chunk = %d tokens × %d words in %s and float32", chunk, m.Vocab, arithmeticType)
	if !lora {
		s.logitsHow += ", and the head's gradient in float32"
	}
	s.checkpoints = float64(s.kept) * (s.total*s.weight + s.trained*s.optimizer)
	return s
}

func shapeOf(m modelinfo.Model, s sizes) modelShape {
	return modelShape{Parameters: int64(s.total), Trained: int64(s.trained), Layers: m.Layers, Hidden: m.Hidden,
		FFN: m.FFN, Vocabulary: m.Vocab, Attention: 2 * m.HeadDim * (m.Heads + m.KVHeads), Stateful: m.Stateful}
}

// compiles reports whether layers and head are compiled.
func (c Config) compiles(m modelinfo.Model, gpu bool) bool {
	usual := gpu && !m.Stateful
	if c.Compute == nil {
		return usual
	}
	return or(c.Compute.Compile, usual)
}

// left describes what the worker decides when the first batch is there; empty: everything is set.
func (c Config) left(m modelinfo.Model, s sizes, gpu bool) string {
	if k := c.Compute; k != nil && k.GradientCheckpointing != nil && k.RowTokens != nil && k.HeadChunk != nil {
		return ""
	}
	dtype, compute := c.dtypes(gpu)
	shape := shapeOf(m, s)
	at := machine{gpu: gpu, longest: c.MaxLength, free: math.Inf(1),
		fixed: shape.fixedBytes(dtype, s.name, gpu && c.adapted(), gpu && c.offloaded())}
	best := c.choose(shape, at)
	at.free = 0
	least := c.choose(shape, at)
	return fmt.Sprintf("a step is sized when the first batch is there, from the memory that is free beside weights in %s "+
		"(arithmetic in %s): with %.1f GiB, %s; down to %.1f GiB, %s", dtype, compute, best.needed/usable/gib, best,
		least.needed/usable/gib, least)
}

const gib = 1 << 30

// String describes how a step runs.
func (r running) String() string {
	kept := "activations kept"
	switch {
	case r.recomputed == r.layers:
		kept = "activations recomputed"
	case r.recomputed > 0:
		kept = fmt.Sprintf("activations of %d of %d layers recomputed", r.recomputed, r.layers)
	}
	if r.attention {
		kept += " but for attention"
	}
	switch {
	case r.products && r.recomputed > 0:
		kept += ", of the others but for products"
	case r.products:
		kept = "activations recomputed but for products"
	}
	return fmt.Sprintf("%s in rows of %d tokens", kept, r.rows)
}

// or is what was set, or else the other value.
func or[T any](set *T, other T) T {
	if set != nil {
		return *set
	}
	return other
}

func optimizerOf(c Config) string {
	if c.Optimizer != nil && c.Optimizer.Name != "" {
		return c.Optimizer.Name
	}
	return "adamw"
}

func bytesOf(dtype string) float64 {
	switch dtype {
	case "bfloat16", "float16":
		return 2
	case "float64":
		return 8
	}
	return 4
}

// count writes a number of parameters the way people say it.
func count(n float64) string {
	if n >= 1e9 {
		return fmt.Sprintf("%.2f billion", n/1e9)
	}
	return fmt.Sprintf("%.1f million", n/1e6)
}
