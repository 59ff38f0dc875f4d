// Package modelinfo knows the sizes of language models, for the arithmetic of a plan: how many parameters one has, and
// how much its KV cache takes. It reads config.json of a local folder and has a table of usual models, so that a plan
// works without a download.
package modelinfo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/internal/regular"
)

// Model is what memory arithmetic needs to know of a model.
type Model struct {
	Layers, Hidden, Heads, KVHeads, HeadDim, FFN, Vocab, MaxLen int64
	Experts, ExpertFFN                                          int64 // of each layer; 0: dense
	Tied                                                        bool
	Stateful                                                    bool  // some layers have a convolution or a recurrence
	DtypeBytes                                                  int64 // of the checkpoint
}

// count is Parameters where they may be too many to be counted.
func (s Model) count() float64 {
	hidden, experts := float64(s.Hidden), float64(max(s.Experts, 1))
	attention := 4 * hidden * float64(max(s.Heads, s.KVHeads)) * float64(s.HeadDim)
	layer := attention + 4*hidden*float64(max(s.FFN, s.ExpertFFN))*experts + 2*hidden
	return 2*float64(s.Vocab)*hidden + float64(s.Layers)*layer + hidden
}

// Parameters counts the model's parameters: embedding, output head, and per layer attention, MLP and norms.
func (s Model) Parameters() int64 {
	attention := 2*s.Hidden*s.Heads*s.HeadDim + 2*s.Hidden*s.KVHeads*s.HeadDim
	mlp := 3 * s.Hidden * s.FFN
	if s.Experts > 0 {
		mlp = 3*s.Hidden*s.ExpertFFN*s.Experts + s.Hidden*s.Experts
	}
	return s.Embeddings() + s.Layers*(attention+mlp+2*s.Hidden) + s.Hidden
}

// Embeddings counts the parameters of the embedding and, where it is another matrix, of the output head.
func (s Model) Embeddings() int64 {
	if s.Tied {
		return s.Vocab * s.Hidden
	}
	return 2 * s.Vocab * s.Hidden
}

// KVBytes is what one token takes in the KV cache.
func (s Model) KVBytes(elementBytes int64) int64 {
	return 2 * s.Layers * s.KVHeads * s.HeadDim * elementBytes
}

// errUnsaid says that a config.json does not have the usual names of the sizes, as those of GPT-2 and of models without
// attention.
var errUnsaid = errors.New("does not have num_hidden_layers, hidden_size, num_attention_heads and vocab_size")

// Unknown says in a plan why nothing is known of a model, for which Of returned false.
func Unknown(model string) string {
	if model == "" {
		return "its model is known after another block has started, so its memory is not known"
	}
	if _, err := os.Stat(filepath.Join(model, "config.json")); err == nil {
		return fmt.Sprintf("%s %s, so its memory is not known", filepath.Join(model, "config.json"), errUnsaid)
	}
	return model + " is not on this machine and not in the table of usual models, so its memory is not known before it " +
		"is downloaded"
}

// maxConfig bounds a config.json.
const maxConfig = 16 << 20

// Of finds what is known of a model: from config.json of a local folder, else from the table. False: not known, which
// is no error.
func Of(model string) (Model, bool, error) {
	data, err := regular.FollowFile(filepath.Join(model, "config.json"), maxConfig)
	if err == nil {
		s, err := parse(data)
		switch {
		case errors.Is(err, errUnsaid):
			return Model{}, false, nil
		case err != nil:
			return Model{}, false, fmt.Errorf("read %s: %w", filepath.Join(model, "config.json"), err)
		}
		return s, true, nil
	}
	s, ok := known[strings.ToLower(model)]
	return s, ok, nil
}

// parse reads a Hugging Face config.json, in which many names are optional.
func parse(data []byte) (Model, error) {
	type config struct {
		Layers     int64  `json:"num_hidden_layers"`
		Hidden     int64  `json:"hidden_size"`
		Heads      int64  `json:"num_attention_heads"`
		KVHeads    int64  `json:"num_key_value_heads"`
		HeadDim    int64  `json:"head_dim"`
		FFN        int64  `json:"intermediate_size"`
		Vocab      int64  `json:"vocab_size"`
		MaxLen     int64  `json:"max_position_embeddings"`
		Experts    int64  `json:"num_experts"`
		Experts2   int64  `json:"num_local_experts"`
		ExpertFFN  int64  `json:"moe_intermediate_size"`
		Tied       bool   `json:"tie_word_embeddings"`
		TorchDtype string `json:"torch_dtype"`
		Dtype      string `json:"dtype"`

		LayerTypes []any           `json:"layer_types"`
		Attention  json.RawMessage `json:"attn_type_list"` // MiniMax: 0 of a layer that carries a state, else 1
		stateful
	}
	var c struct {
		config
		Text *config `json:"text_config"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return Model{}, err
	}
	t := c.config
	if c.Text != nil && c.Text.Layers > 0 {
		t = *c.Text
	}
	if t.Layers == 0 || t.Hidden == 0 || t.Heads == 0 || t.Vocab == 0 {
		return Model{}, errUnsaid
	}
	s := Model{
		Layers: t.Layers, Hidden: t.Hidden, Heads: t.Heads, KVHeads: t.KVHeads, HeadDim: t.HeadDim, FFN: t.FFN,
		Vocab: t.Vocab, MaxLen: t.MaxLen,
		Experts: max(t.Experts, t.Experts2), ExpertFFN: t.ExpertFFN, Tied: t.Tied, DtypeBytes: 2,
		Stateful: t.given() || bytes.ContainsRune(t.Attention, '0') || slices.ContainsFunc(t.LayerTypes, carriesState),
	}
	for _, n := range []int64{t.Layers, t.Hidden, t.Heads, t.KVHeads, t.HeadDim, t.FFN, t.Vocab, t.MaxLen, s.Experts,
		t.ExpertFFN} {
		if n < 0 || n > maxSize {
			return Model{}, fmt.Errorf("expected sizes from 0 to %d, got %d", maxSize, n)
		}
	}
	if s.KVHeads == 0 {
		s.KVHeads = s.Heads
	}
	if s.HeadDim == 0 {
		s.HeadDim = s.Hidden / s.Heads
	}
	if s.Experts > 0 && s.ExpertFFN == 0 {
		s.ExpertFFN = s.FFN
	}
	if t.TorchDtype+t.Dtype == "float32" {
		s.DtypeBytes = 4
	}
	if p := s.count(); p <= 0 || p > maxParameters {
		return Model{}, fmt.Errorf("the sizes amount to %.0g parameters, more than any model has", p)
	}
	return s, nil
}

// stateful are settings of layers that carry a state from token to token, of which a configuration has some where it
// does not list the kinds of its layers.
type stateful struct {
	Mamba      *json.RawMessage `json:"mamba_d_conv"`            // Jamba, Bamba, Falcon-H1, Granite hybrid
	Mamba2     *json.RawMessage `json:"mamba_num_heads"`         // Nemotron-H
	Conv       *json.RawMessage `json:"conv_kernel"`             // Mamba
	DeltaRule  *json.RawMessage `json:"linear_conv_kernel_dim"`  // Qwen3-Next, Qwen3.5
	ShortConv  *json.RawMessage `json:"conv_L_cache"`            // LFM2
	Recurrence *json.RawMessage `json:"block_types"`             // RecurrentGemma
	Pattern    *json.RawMessage `json:"hybrid_override_pattern"` // Nemotron-H
}

func (s stateful) given() bool { return s != stateful{} }

// carriesState reports whether layers of a kind do, by transformers' names: all but attention.
func carriesState(kind any) bool {
	return kind != "full_attention" && kind != "sliding_attention" && kind != "chunked_attention"
}

// What a file may say. No model comes near; beyond it the sums would overflow.
const (
	maxSize       = 1 << 30
	maxParameters = 1e17
)

// known are models that recipes name often, so that a plan works on a machine that has none of them. Figures
// are those of the models' own config.json.
var known = map[string]Model{
	"qwen/qwen2.5-0.5b":          qwen25(24, 896, 14, 2, 4864, 151936, true),
	"qwen/qwen2.5-0.5b-instruct": qwen25(24, 896, 14, 2, 4864, 151936, true),
	"qwen/qwen2.5-1.5b":          qwen25(28, 1536, 12, 2, 8960, 151936, true),
	"qwen/qwen2.5-1.5b-instruct": qwen25(28, 1536, 12, 2, 8960, 151936, true),
	"qwen/qwen2.5-math-1.5b":     qwen25(28, 1536, 12, 2, 8960, 151936, true),
	"qwen/qwen2.5-3b":            qwen25(36, 2048, 16, 2, 11008, 151936, true),
	"qwen/qwen2.5-3b-instruct":   qwen25(36, 2048, 16, 2, 11008, 151936, true),
	"qwen/qwen2.5-7b":            qwen25(28, 3584, 28, 4, 18944, 152064, false),
	"qwen/qwen2.5-7b-instruct":   qwen25(28, 3584, 28, 4, 18944, 152064, false),
	"qwen/qwen2.5-14b-instruct":  qwen25(48, 5120, 40, 8, 13824, 152064, false),
	"qwen/qwen2.5-32b-instruct":  qwen25(64, 5120, 40, 8, 27648, 152064, false),
	"qwen/qwen2.5-72b-instruct":  qwen25(80, 8192, 64, 8, 29568, 152064, false),
	"qwen/qwen3-0.6b": {Layers: 28, Hidden: 1024, Heads: 16, KVHeads: 8, HeadDim: 128,
		FFN: 3072, Vocab: 151936, MaxLen: 40960, Tied: true, DtypeBytes: 2},
	"qwen/qwen3-1.7b": {Layers: 28, Hidden: 2048, Heads: 16, KVHeads: 8, HeadDim: 128,
		FFN: 6144, Vocab: 151936, MaxLen: 40960, Tied: true, DtypeBytes: 2},
	"qwen/qwen3-4b": {Layers: 36, Hidden: 2560, Heads: 32, KVHeads: 8, HeadDim: 128,
		FFN: 9728, Vocab: 151936, MaxLen: 40960, Tied: true, DtypeBytes: 2},
	"qwen/qwen3-8b": {Layers: 36, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128,
		FFN: 12288, Vocab: 151936, MaxLen: 40960, DtypeBytes: 2},
	"meta-llama/llama-3.2-1b-instruct": {Layers: 16, Hidden: 2048, Heads: 32, KVHeads: 8, HeadDim: 64,
		FFN: 8192, Vocab: 128256, MaxLen: 131072, Tied: true, DtypeBytes: 2},
	"meta-llama/llama-3.2-3b-instruct": {Layers: 28, Hidden: 3072, Heads: 24, KVHeads: 8, HeadDim: 128,
		FFN: 8192, Vocab: 128256, MaxLen: 131072, Tied: true, DtypeBytes: 2},
	"nousresearch/deephermes-3-llama-3-3b-preview": {Layers: 28, Hidden: 3072, Heads: 24, KVHeads: 8, HeadDim: 128,
		FFN: 8192, Vocab: 128256, MaxLen: 131072, Tied: true, DtypeBytes: 2},
	"meta-llama/llama-3.1-8b-instruct": {Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128,
		FFN: 14336, Vocab: 128256, MaxLen: 131072, DtypeBytes: 2},
	"nousresearch/deephermes-3-llama-3-8b-preview": {Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128,
		FFN: 14336, Vocab: 128256, MaxLen: 131072, DtypeBytes: 2},
	"meta-llama/llama-3.3-70b-instruct": {Layers: 80, Hidden: 8192, Heads: 64, KVHeads: 8, HeadDim: 128,
		FFN: 28672, Vocab: 128256, MaxLen: 131072, DtypeBytes: 2},
	"huggingfacetb/smollm2-135m-instruct": {Layers: 30, Hidden: 576, Heads: 9, KVHeads: 3, HeadDim: 64,
		FFN: 1536, Vocab: 49152, MaxLen: 8192, Tied: true, DtypeBytes: 2},
	"huggingfacetb/smollm2-360m-instruct": {Layers: 32, Hidden: 960, Heads: 15, KVHeads: 5, HeadDim: 64,
		FFN: 2560, Vocab: 49152, MaxLen: 8192, Tied: true, DtypeBytes: 2},
	"huggingfacetb/smollm2-1.7b-instruct": {Layers: 24, Hidden: 2048, Heads: 32, KVHeads: 32, HeadDim: 64,
		FFN: 8192, Vocab: 49152, MaxLen: 8192, Tied: true, DtypeBytes: 2},
}

func qwen25(layers, hidden, heads, kvHeads, ffn, vocab int64, tied bool) Model {
	return Model{Layers: layers, Hidden: hidden, Heads: heads, KVHeads: kvHeads, HeadDim: hidden / heads, FFN: ffn,
		Vocab: vocab, MaxLen: 32768, Tied: tied, DtypeBytes: 2}
}
