package sync

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/recipe-rl/recipe/internal/weightclient"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// probeText is the fixed text when the recipe gives none. On plain English server and trainer agree a hundred times
// better than on a text that the model finds absurd, where small errors of the arithmetic are magnified.
const probeText = "What is 3+4? Answer: 7. The capital of France is Paris, and water boils at one hundred degrees."

// probeLength bounds it: an inference block may hold few tokens.
const probeLength = 32

// probe returns the tokens of the fixed text; the trainer waits, so its weights do not change.
func (s *syncer) probe(ctx context.Context) ([]int, error) {
	if len(s.config.ProbeTokens) > 0 {
		tokens := make([]int, len(s.config.ProbeTokens))
		for i, t := range s.config.ProbeTokens {
			tokens[i] = int(t)
		}
		return tokens, nil
	}
	if s.text == nil {
		tokens, err := s.trainer.Tokenize(ctx, probeText)
		if err != nil && !errors.Is(err, weightclient.ErrRefused) {
			return nil, fmt.Errorf("let the trainer split the fixed text into tokens: %w", err)
		}
		if err != nil || len(tokens) < 2 { // a trainer without a tokenizer; every vocabulary has low ids
			tokens = []int{1, 2, 3, 5, 8, 4, 7, 9, 6, 10, 3, 1}
		}
		s.text = tokens[:min(len(tokens), probeLength)]
	}
	return s.text, nil
}

// How far log-probabilities may be apart, as a root mean square, when the recipe does not say. In float32 server and
// trainer agree to 4e-5 (measured with vLLM and torch on a CPU); a GPU computes float32 attention in TensorFloat-32,
// which has ten bits (0.003 to 0.009 measured on an H200); in 16 bits the kernels of the two sides round differently:
// SmolLM2-135M in bfloat16 had 0.03 to 0.15 with the right weights, single tokens up to 0.68, and 0.65 and more with
// one matrix wrong (docs/benchmarks/gpu.md). Served in float8 it had 0.24 to 0.44 with the right weights, on the text
// above 0.32, and there 0.76 and more with one matrix wrong (vLLM on a CPU, docs/weights.md).
const (
	exactTolerance   = 1e-3
	tf32Tolerance    = 3e-2
	roundedTolerance = 0.3
	float8Tolerance  = 0.6
)

// tolerance chooses by the coarsest of what was published and how trainer and servers compute.
func (c Config) tolerance(precision string) float64 {
	if c.Tolerance > 0 {
		return c.Tolerance
	}
	widest := toleranceOf(precision)
	for _, r := range append([]spec.Ref{c.Trainer}, c.Inference...) {
		widest = max(widest, toleranceOf(strings.Join(listed(r, "arithmetic"), "")))
	}
	return widest
}

func toleranceOf(precision string) float64 {
	widest := exactTolerance
	for _, part := range strings.Split(precision, "+") { // "bfloat16+float32": tensors of both
		switch part {
		case "", "float32", "float64":
		case "tf32":
			widest = max(widest, tf32Tolerance)
		case "float8":
			widest = max(widest, float8Tolerance)
		default:
			widest = max(widest, roundedTolerance)
		}
	}
	return widest
}
