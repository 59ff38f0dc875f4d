package modelinfo_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/kit/modelinfo"
)

func TestParametersOfKnownModels(t *testing.T) {
	t.Parallel()
	// Sizes as their publishers state them.
	for name, want := range map[string]float64{
		"qwen/qwen2.5-0.5b-instruct": 0.494e9, "qwen/qwen2.5-1.5b-instruct": 1.54e9, "qwen/qwen2.5-3b-instruct": 3.09e9,
		"qwen/qwen2.5-7b-instruct": 7.62e9,
		"qwen/qwen3-8b":            8.19e9, "meta-llama/llama-3.2-1b-instruct": 1.24e9,
		"nousresearch/deephermes-3-llama-3-3b-preview": 3.21e9,
		"meta-llama/llama-3.1-8b-instruct":             8.03e9, "huggingfacetb/smollm2-135m-instruct": 134.5e6,
	} {
		m, ok, err := modelinfo.Of(name)
		if err != nil || !ok {
			t.Fatalf("%s: known %v, %v", name, ok, err)
		}
		if got := float64(m.Parameters()); math.Abs(got-want)/want > 0.005 {
			t.Errorf("%s: %.4g parameters, want %.4g", name, got, want)
		}
	}
}

func TestLocalFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"num_hidden_layers":30,"hidden_size":576,"num_attention_heads":9,"num_key_value_heads":3,"intermediate_size":1536,"vocab_size":49152,"tie_word_embeddings":true,"dtype":"float32"}`)
	m, ok, err := modelinfo.Of(dir)
	if err != nil || !ok || m.Parameters() != 134515008 || m.HeadDim != 64 || m.DtypeBytes != 4 {
		t.Errorf("%+v with %d parameters, %v, %v; want SmolLM2 with 134,515,008", m, m.Parameters(), ok, err)
	}
	if got := m.KVBytes(4); got != 2*30*3*64*4 {
		t.Errorf("%d bytes of KV cache a token", got)
	}
	write(`{"text_config":{"num_hidden_layers":2,"hidden_size":8,"num_attention_heads":2,"vocab_size":16,"num_experts":4,"moe_intermediate_size":4}}`)
	if m, _, err := modelinfo.Of(dir); err != nil || m.Experts != 4 || m.KVHeads != 2 {
		t.Errorf("%+v, %v; want what is nested under text_config", m, err)
	}
	write(`{"num_hidden_layers":-2,"hidden_size":8,"num_attention_heads":2,"vocab_size":16}`)
	if _, _, err := modelinfo.Of(dir); err == nil || !strings.Contains(err.Error(), "-2") {
		t.Errorf("a negative number of layers: %v", err)
	}
	write(`{"hidden_size":8,"num_hidden_layers":2,"vocab_size":16}`) // as Mamba's, which has no attention
	if _, ok, err := modelinfo.Of(dir); ok || err != nil {
		t.Errorf("a model with other names of sizes: %v, %v; want neither a shape nor an error", ok, err)
	}
	if why := modelinfo.Unknown(dir); !strings.Contains(why, dir) || !strings.Contains(why, "num_attention_heads") {
		t.Errorf("the reason %q; want the file and the names that it lacks", why)
	}
	if why := modelinfo.Unknown("someone/new"); !strings.Contains(why, "before it is downloaded") {
		t.Errorf("the reason %q; want that it is not here", why)
	}
	if _, ok, err := modelinfo.Of("someone/new"); ok || err != nil {
		t.Errorf("an unknown model: %v, %v; want neither a shape nor an error", ok, err)
	}
}
