package grpo

import (
	"fmt"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/kit/modelinfo"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// served is the inference block whose model is the reference; nil: the trainer has it.
func (c Config) served() *spec.Ref {
	if c.Reference == nil {
		return nil
	}
	return c.Reference.Inference
}

// teacher are the settings of a served reference that are known when its block is ready.
func (c Config) teacher() (map[string]any, error) {
	ref := c.served()
	if ref == nil {
		return nil, nil
	}
	var of outputs.Inference
	if err := ref.Decode(&of); err != nil {
		return nil, fmt.Errorf("reference.inference: %w", err)
	}
	if of.BaseURL == "" {
		return nil, fmt.Errorf("reference.inference: output base_url of %s is not known", ref.Address)
	}
	known := map[string]any{"url": of.BaseURL, "token": of.APIKey, "served_model": of.Model}
	return map[string]any{"reference": known}, nil
}

// otherWords is why the reference cannot judge the policy's tokens, as far as both models are known; the plan's note
// about it where it can.
func (c Config) otherWords(m modelinfo.Model) (note string, problems []spec.Problem) {
	ref := c.served()
	if ref == nil {
		return "", nil
	}
	note = fmt.Sprintf("reference: log-probabilities from %s, no copy of a model in the trainer", ref.Address)
	var of outputs.Inference
	if err := ref.Decode(&of); err != nil || of.Model == "" {
		return note, nil //nolint:nilerror // it may be known later
	}
	there, known, err := modelinfo.Of(of.Model)
	if err != nil || !known || there.Vocab >= m.Vocab {
		return note, nil //nolint:nilerror // its own block says so
	}
	return note, []spec.Problem{{Path: cty.GetAttrPath("reference").GetAttr("inference"),
		Summary: "the reference does not know the policy's tokens",
		Detail: fmt.Sprintf("%s of %s has a vocabulary of %d tokens, %s one of %d. The same token ids must mean the same "+
			"text: name a model with the policy's tokenizer.", of.Model, ref.Address, there.Vocab, c.Model, m.Vocab)}}
}
