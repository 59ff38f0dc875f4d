package engine

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/chat"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// Planned is what decides what a block will need, besides its Spec. Factors are named by their attributes.
type Planned struct {
	Dtype string

	Length       Factor // longest sequence in tokens; 0: that of the model
	LengthFree   bool   // the block changes the model's own limit
	LengthRemedy string // follows the advice to lower Length; names what changes the model's own limit

	// Sizing describes how memory is used; Estimate sets model, placement, replicas, shards, precision and length.
	Sizing Sizing
	// Facts are those that only this engine has.
	Facts map[string]string
}

// Estimate says what a block will need of each GPU, or of the machine when it has none. It reads config.json of a local
// model; a model that is neither local nor known gives a note instead of an amount.
func (s Spec) Estimate(p Planned, placement sdk.Placement) (sdk.Estimate, []spec.Problem) {
	e := sdk.Estimate{Facts: map[string]string{
		"model": s.Model, "tokenizer": s.Published, "transports": strings.Join(transport.Texts(s.Transports()), ","),
		"devices":        strings.Join(append(slices.Clone(placement.Devices), s.PeerDevices...), ","),
		"nondeterminism": "time decides which requests share a batch, and its kernels round differently in another one",
	}}
	maps.Copy(e.Facts, p.Facts)
	if why := s.noCopy(); why != "" {
		e.Facts["no_memory"] = why
	}
	if d := ServedDtype(p.Dtype, s.Quantization); d != "" {
		e.Facts["dtype"] = d
	}
	replicas := Factor{Attribute: "replicas", Value: int64(s.Replicas)}
	parallel := s.Parallel
	problems := checkGPUs(placement, replicas, parallel.Tensor, parallel.Pipeline, parallel.Data)
	templates, err := s.ChatTemplate.Facts(s.Published)
	maps.Copy(e.Facts, templates)
	if err != nil {
		problems = append(problems, templateProblem(err))
	}
	if note := s.toolNote(chat.Format(templates["tool_calls"])); note != "" {
		e.Notes = append(e.Notes, note)
	}
	m, known, note, more := readModel(s.Model)
	if problems = append(problems, more...); len(more) > 0 {
		return e, problems
	}
	length := p.Length.Value
	if known && length == 0 {
		length = m.MaxLen
	}
	if length > 0 {
		e.Facts["max_model_len"] = strconv.FormatInt(length, 10)
	}
	if !known {
		e.Notes = append(e.Notes, note)
		return e, problems
	}
	if !p.LengthFree {
		problems = append(problems, checkLength(s.Title, m, p.Length, p.LengthRemedy)...)
	}
	problems = append(problems, checkHeads(s.Title, m, parallel.Tensor)...)
	sizing := p.Sizing
	sizing.Model, sizing.Placement, sizing.Replicas, sizing.MaxLen = m, placement, replicas.Value, length
	sizing.Shards = int64(parallel.Workers())
	sizing.ParameterBytes = parameterBytes(p.Dtype, s.Quantization)
	if s.Quantization != "" { // of the layers' products only
		sizing.EmbeddingBytes = parameterBytes(p.Dtype, "")
	}
	e.Amounts = sizing.Amounts()
	return e, problems
}

// toolNote is for a chat template that takes tools whose calls nobody will read.
func (s Spec) toolNote(format chat.Format) string {
	if s.ToolCallParser != Auto || format == "" || format == "none" || s.ToolParsers[format] != "" {
		return ""
	}
	return "no parser of " + s.Title + " is known for the tool calls of this chat template, so requests with tools are " +
		"refused; name one as tool_call_parser"
}
