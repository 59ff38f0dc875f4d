package engine

import (
	"errors"
	"fmt"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/modelinfo"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Sizing is what decides the memory of one block: its model, its precision, and how it is spread over GPUs.
type Sizing struct {
	Model             modelinfo.Model
	Placement         sdk.Placement
	Shards            int64   // GPUs that share the parameters of one replica: tensor times pipeline parallelism
	Replicas          int64   // servers of the block
	ParameterBytes    float64 // of one parameter
	EmbeddingBytes    float64 // of one in the embedding and the output head; 0: as ParameterBytes
	CacheElementBytes int64   // of one number in the KV cache; 0: as ParameterBytes, 2 for quantized parameters
	MaxLen            int64   // tokens of the longest sequence
	Graphs            bool    // the engine captures CUDA graphs
	GraphsOff         string  // the setting that makes it capture none
	Cache             *Cache  // size of the KV cache where the block sets it
}

// Cache is a size of the KV cache that the block sets itself.
type Cache struct {
	Bytes  float64 // on each GPU; on a machine without one, for each replica
	Tokens int64   // instead of Bytes: that all shards of a replica hold together
	How    string  // the attribute that sets it
}

// Amounts are what one GPU needs or, without a GPU, what the machine needs for all replicas.
func (s Sizing) Amounts() []sdk.Amount {
	resource, share := "gpu_memory", float64(max(1, s.Shards))
	if s.Placement.Count() == 0 {
		resource, share = "host_memory", 1/float64(max(1, s.Replicas))
	}
	bytes, how := s.weights()
	amounts := []sdk.Amount{
		{Resource: resource, Part: "weights", Value: bytes / share, How: how + dividedBy(share)},
		s.cache(resource, share),
	}
	if s.Graphs && resource == "gpu_memory" {
		amounts = append(amounts, sdk.Amount{Resource: resource, Part: "cuda_graphs", Value: 1 << 30,
			How: fmt.Sprintf("about 1 GiB for CUDA graphs and activations; %s saves most of it", s.GraphsOff)})
	}
	return amounts
}

// weights are those of a whole model, in bytes, and how they were counted.
func (s Sizing) weights() (bytes float64, how string) {
	all, embeddings := s.Model.Parameters(), s.Model.Embeddings()
	if s.EmbeddingBytes == 0 {
		return float64(all) * s.ParameterBytes, fmt.Sprintf("%s parameters × %g bytes", countOf(all), s.ParameterBytes)
	}
	layers := all - embeddings
	return float64(layers)*s.ParameterBytes + float64(embeddings)*s.EmbeddingBytes,
		fmt.Sprintf("(%s parameters × %g bytes + %s of embedding and output head × %g bytes)", countOf(layers),
			s.ParameterBytes, countOf(embeddings), s.EmbeddingBytes)
}

// cache is the least that the KV cache must hold. What the engine takes beyond it lets more sequences run at once.
func (s Sizing) cache(resource string, share float64) sdk.Amount {
	amount := sdk.Amount{Resource: resource, Part: "kv_cache"}
	element := s.CacheElementBytes
	if element == 0 {
		element = max(2, int64(s.ParameterBytes))
	}
	per := s.Model.KVBytes(element)
	if c := s.Cache; c != nil {
		amount.Value, amount.How = c.Bytes, c.How
		if c.Tokens > 0 {
			amount.Value = float64(per*c.Tokens) / float64(max(1, s.Shards))
		}
		if resource == "host_memory" {
			amount.Value /= share
		}
		return amount
	}
	amount.Value = float64(per*s.MaxLen) / share
	amount.How = fmt.Sprintf("one sequence of %d tokens × %d bytes (2 × %d layers × %d KV heads × %d × %d bytes)%s; more "+
		"sequences at once need as much again each",
		s.MaxLen, per, s.Model.Layers, s.Model.KVHeads, s.Model.HeadDim, element, dividedBy(share))
	return amount
}

// ServedDtype is the precision in which a server holds the weights; empty when it follows the model's config.json.
func ServedDtype(dtype, quantization string) string {
	if quantization != "" {
		return quantization
	}
	switch dtype {
	case "half", "float16":
		return "float16"
	case "float", "float32":
		return "float32"
	case "bfloat16":
		return dtype
	}
	return ""
}

// parameterBytes is how much memory one parameter takes. Engines serve float32 checkpoints in half precision unless
// they are asked for float32.
func parameterBytes(dtype, quantization string) float64 {
	switch quantization {
	case "fp8", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block":
		return 1
	case "awq", "gptq", "bitsandbytes", "awq_marlin", "gptq_marlin":
		return 0.55 // 4 bits, and scales
	}
	if ServedDtype(dtype, "") == "float32" {
		return 4
	}
	return 2
}

// Factor is an attribute and its value, such as one that multiplies the GPUs that a block needs.
type Factor struct {
	Attribute string
	Value     int64
}

// checkGPUs says when a block's placement has fewer GPUs than its factors ask for. The first factor is the attribute
// that the problem points to.
func checkGPUs(placement sdk.Placement, factors ...Factor) []spec.Problem {
	want, terms := int64(1), make([]string, len(factors))
	for i, f := range factors {
		value := max(1, f.Value)
		want *= value
		terms[i] = fmt.Sprintf("%s = %d", f.Attribute, value)
	}
	have := int64(placement.Count())
	if have == 0 || have >= want {
		return nil
	}
	return []spec.Problem{{
		Path:    cty.GetAttrPath(factors[0].Attribute),
		Summary: fmt.Sprintf("%d GPUs are needed, placement gives %d", want, have),
		Detail:  fmt.Sprintf("%s. Lower one of them, or set placement { gpus = %d }.", strings.Join(terms, " × "), want),
	}}
}

// checkLength says when an attribute asks for longer sequences than a model was made for. Remedy follows the advice to
// lower it.
func checkLength(title string, m modelinfo.Model, length Factor, remedy string) []spec.Problem {
	if m.MaxLen == 0 || length.Value <= m.MaxLen {
		return nil
	}
	return []spec.Problem{{
		Path:    cty.GetAttrPath(length.Attribute),
		Summary: fmt.Sprintf("the model was made for %d tokens, %s asks for %d", m.MaxLen, length.Attribute, length.Value),
		Detail:  fmt.Sprintf("%s refuses to start. Lower %s%s.", title, length.Attribute, remedy),
	}}
}

// checkHeads says when an attribute for tensor parallelism does not divide a model's attention heads.
func checkHeads(title string, m modelinfo.Model, tensor Factor) []spec.Problem {
	gpus := max(1, tensor.Value)
	if m.Heads%gpus == 0 {
		return nil
	}
	return []spec.Problem{{
		Path:    cty.GetAttrPath(tensor.Attribute),
		Summary: fmt.Sprintf("%d attention heads cannot be spread over %d GPUs evenly", m.Heads, gpus),
		Detail:  fmt.Sprintf("%s refuses to start. Choose a %s that divides %d.", title, tensor.Attribute, m.Heads),
	}}
}

// readModel reads what is known of a block's model. False: nothing is known before it is downloaded, and the note says
// so in the plan.
func readModel(model string) (m modelinfo.Model, known bool, note string, problems []spec.Problem) {
	m, known, err := modelinfo.Of(model)
	switch {
	case err != nil:
		problems = []spec.Problem{{Path: cty.GetAttrPath("model"), Summary: "the model's config.json cannot be read",
			Detail: err.Error()}}
	case !known:
		note = modelinfo.Unknown(model)
	}
	return m, known, note, problems
}

// templateProblem is the problem of a plan whose chat template cannot be used.
func templateProblem(err error) spec.Problem {
	p := spec.Problem{Path: cty.GetAttrPath("chat_template_name"), Summary: "the tokenizer's chat templates " +
		"cannot be used", Detail: err.Error()}
	if e := (*sdk.Error)(nil); errors.As(err, &e) {
		p.Summary, p.Detail = e.Summary, fmt.Sprintf("%s: %s.", e.Detail, e.Remedy)
	}
	return p
}

// dividedBy explains a share in the sum of an amount.
func dividedBy(share float64) string {
	switch {
	case share > 1:
		return fmt.Sprintf(" ÷ %g GPUs", share)
	case share < 1:
		return fmt.Sprintf(" × %g replicas", 1/share)
	default:
		return ""
	}
}

// countOf writes a number of parameters the way people say it.
func countOf(n int64) string {
	if n >= 1e9 {
		return fmt.Sprintf("%.2f billion", float64(n)/1e9)
	}
	return fmt.Sprintf("%.0f million", float64(n)/1e6)
}
