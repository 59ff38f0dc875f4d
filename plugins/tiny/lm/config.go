// Package lm is a small decoder-only transformer language model in pure Go: forward and
// hand-written backward pass, batched decoding with a key/value cache, the Adam optimizer and a
// checkpoint file. It exists so that a whole reinforcement-learning loop runs on a laptop without
// a GPU and without Python; it is not meant for models of more than a few million weights.
//
// The architecture is pre-RMSNorm with learned positions, causal multi-head attention and a
// squared-ReLU MLP (So et al. 2021, "Primer"), in float32. All matrix products go through
// gonum's BLAS. Results depend on the weights, the inputs and the number of shards, never on how
// goroutines are scheduled, nor on which other sequences share a batch.
package lm

import (
	"errors"
	"fmt"
)

// Config is the shape of a model. Two checkpoints fit each other only if their Config is equal.
type Config struct {
	Vocabulary int `json:"vocabulary"` // number of token ids that the model writes
	Width      int `json:"width"`      // size of the residual stream
	Layers     int `json:"layers"`     // number of transformer blocks
	Heads      int `json:"heads"`      // attention heads; must divide Width
	Hidden     int `json:"hidden"`     // size of the MLP's inner layer
	Context    int `json:"context"`    // longest sequence, in tokens
	// Bytes is 256 for a model that also reads the bytes of any text, with ids from Vocabulary on, which it never writes;
	// 0: it reads its alphabet alone.
	Bytes int `json:"bytes,omitempty"`
	// Positions is how many positions have weights; those behind them are sines. 0: all of Context.
	Positions int `json:"positions,omitempty"`
}

// allBytes is Config.Bytes of a model that reads bytes.
const allBytes = 256

// Inputs is the number of token ids that the model reads.
func (c Config) Inputs() int { return c.Vocabulary + c.Bytes }

// learned is the number of positions that have weights.
func (c Config) learned() int {
	if c.Positions > 0 {
		return c.Positions
	}
	return c.Context
}

// Upper bounds that keep a damaged or hostile checkpoint header from asking for all memory.
const (
	maxVocabulary = 1 << 16
	maxWidth      = 4096
	maxLayers     = 64
	maxHidden     = 1 << 15
	maxContext    = 1 << 16
	maxParameters = 64 << 20
)

// Validate reports every field that is out of range, what was expected and what was given.
func (c Config) Validate() error {
	var errs []error
	check := func(name string, v, most int) {
		if v < 1 || v > most {
			errs = append(errs, fmt.Errorf("model %s: want 1 to %d, got %d", name, most, v))
		}
	}
	check("vocabulary", c.Vocabulary, maxVocabulary)
	check("width", c.Width, maxWidth)
	check("layers", c.Layers, maxLayers)
	check("heads", c.Heads, maxWidth)
	check("hidden", c.Hidden, maxHidden)
	check("context", c.Context, maxContext)
	if c.Bytes != 0 && c.Bytes != allBytes {
		errs = append(errs, fmt.Errorf("model bytes: want 0 or %d, got %d", allBytes, c.Bytes))
	}
	if c.Positions < 0 || c.Positions > c.Context {
		errs = append(errs, fmt.Errorf("model positions: want 0 to %d (the context), got %d", c.Context, c.Positions))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if c.Width%c.Heads != 0 {
		return fmt.Errorf("model heads: want a divisor of width %d, got %d", c.Width, c.Heads)
	}
	if n := c.Parameters(); n > maxParameters {
		return fmt.Errorf("model size: want at most %d weights, got %d; reduce width, layers or vocabulary",
			maxParameters, n)
	}
	return nil
}

// Parameters is the number of weights of a model of this shape.
func (c Config) Parameters() int {
	block := 2*c.Width + 4*c.Width*c.Width + 2*c.Width*c.Hidden
	return 2*c.Vocabulary*c.Width + c.learned()*c.Width + c.Width + c.Layers*block + c.Bytes*c.Width
}

// CheckTokens reports the first token that the model cannot read, or a sequence that is empty or
// longer than the context. Everything that feeds outside input to a model must call it first.
func (c Config) CheckTokens(tokens []int32) error {
	if len(tokens) == 0 {
		return errors.New("token sequence: want at least one token, got none")
	}
	if len(tokens) > c.Context {
		return fmt.Errorf("token sequence: want at most %d tokens (the model's context), got %d", c.Context,
			len(tokens))
	}
	for i, t := range tokens {
		if t < 0 || int(t) >= c.Inputs() {
			return fmt.Errorf("token at position %d: want an id from 0 to %d, got %d", i, c.Inputs()-1, t)
		}
	}
	return nil
}
