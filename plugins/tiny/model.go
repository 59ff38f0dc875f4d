package tiny

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
	"github.com/recipe-rl/recipe/sdk"
)

// BuiltIn names the model that ships with the program.
const BuiltIn = "tiny"

// format is how weights of this model are named between trainer and inference.
const format = "tiny"

// modelName is what a model is called in requests and outputs: the built-in one by its name, a file by its path.
func modelName(model, recipeDir string) string {
	if model == BuiltIn || filepath.IsAbs(model) {
		return model
	}
	return filepath.Join(recipeDir, model)
}

// load reads the model that a recipe names.
func load(model, recipeDir string) (*lm.Checkpoint, error) {
	if model == BuiltIn {
		return Warm()
	}
	c, err := lm.Load(modelName(model, recipeDir))
	if err != nil {
		return nil, &sdk.Error{
			Summary: fmt.Sprintf("the model %q cannot be loaded", model), Err: err,
			Remedy: fmt.Sprintf("name a checkpoint that a tiny trainer wrote, or %q for the built-in one; a relative path "+
				"counts from the recipe's folder", BuiltIn),
			Path: cty.GetAttrPath("model"),
		}
	}
	return c, nil
}

// widenLike makes a checkpoint of a run that began before the model read bytes fit one that reads them.
func widenLike(c *lm.Checkpoint, shape lm.Config) {
	if shape.Bytes > 0 {
		c.Widen(shape.Context)
	}
}

// tokenizerName tells models whose tokens mean the same apart from others.
func tokenizerName(c *lm.Checkpoint) string {
	switch {
	case c.Alphabet == lm.ASCII && c.Params.Config.Bytes > 0:
		return "tiny-bytes"
	case c.Alphabet == lm.ASCII:
		return "tiny-ascii"
	}
	return fmt.Sprintf("tiny-characters-%d", len(c.Alphabet))
}

// narrow converts token ids from the contract's type to the model's. An id that is
// too large for the model's type is not one of its tokens, and CheckTokens says so.
func narrow(tokens []int) []int32 {
	out := make([]int32, len(tokens))
	for i, t := range tokens {
		if t < 0 || t > 1<<30 {
			t = -1
		}
		out[i] = int32(t)
	}
	return out
}

// logProbs are the log-probabilities of all tokens but the first.
func logProbs(p *lm.Params, tokens []int) ([]float64, error) {
	ids := narrow(tokens)
	if err := p.Config.CheckTokens(ids); err != nil {
		return nil, fmt.Errorf("log-probabilities of a fixed text: %w", err)
	}
	var a lm.Activations
	return p.LogProbs(&a, ids)[1:], nil
}

func estimate(c *lm.Checkpoint, parts map[string]float64) sdk.Estimate {
	e := sdk.Estimate{Facts: map[string]string{"tokenizer": tokenizerName(c), "nondeterminism": ""}}
	n := float64(c.Params.Config.Parameters())
	for _, part := range []string{"weights", "gradients", "optimizer", "kv_cache"} {
		if bytes, ok := parts[part]; ok {
			e.Amounts = append(e.Amounts, sdk.Amount{Resource: "host_memory", Part: part, Value: bytes,
				How: fmt.Sprintf("%.2f million float32 weights", n/1e6)})
		}
	}
	return e
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
