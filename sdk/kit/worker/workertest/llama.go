package workertest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// Sizes of Llama's model.
const (
	hidden, intermediate   = 32, 48
	layers, heads, kvHeads = 2, 4, 2
)

// Llama writes a random Llama model of two layers into the folder dir, as transformers would: importing transformers
// for it takes five seconds.
func Llama(t testing.TB, dir string, vocabulary int) {
	t.Helper()
	config, err := json.Marshal(map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "dtype": "float32", "vocab_size": vocabulary,
		"hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers, "num_attention_heads": heads,
		"num_key_value_heads": kvHeads, "max_position_embeddings": 256, "tie_word_embeddings": false,
		"bos_token_id": 1, "eos_token_id": 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	weights := llamaWeights(t, vocabulary)
	for name, content := range map[string][]byte{"config.json": config, "model.safetensors": weights} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// llamaWeights is the content of a safetensors file: the length of its header, the header, and the tensors.
func llamaWeights(t testing.TB, vocabulary int) []byte {
	t.Helper()
	var data bytes.Buffer
	header := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	random := rand.New(rand.NewPCG(5, 0)) //nolint:gosec // weights of a test
	add := func(name string, shape ...int) {
		begin, n := data.Len(), 1
		for _, size := range shape {
			n *= size
		}
		for range n {
			value := float32(1) // of a norm
			if len(shape) > 1 {
				value = float32(0.02 * random.NormFloat64())
			}
			_ = binary.Write(&data, binary.LittleEndian, value)
		}
		header[name] = map[string]any{"dtype": "F32", "shape": shape, "data_offsets": []int{begin, data.Len()}}
	}
	add("model.embed_tokens.weight", vocabulary, hidden)
	for i := range layers {
		layer := fmt.Sprintf("model.layers.%d.", i)
		add(layer+"self_attn.q_proj.weight", hidden, hidden)
		add(layer+"self_attn.k_proj.weight", hidden/heads*kvHeads, hidden)
		add(layer+"self_attn.v_proj.weight", hidden/heads*kvHeads, hidden)
		add(layer+"self_attn.o_proj.weight", hidden, hidden)
		add(layer+"mlp.gate_proj.weight", intermediate, hidden)
		add(layer+"mlp.up_proj.weight", intermediate, hidden)
		add(layer+"mlp.down_proj.weight", hidden, intermediate)
		add(layer+"input_layernorm.weight", hidden)
		add(layer+"post_attention_layernorm.weight", hidden)
	}
	add("model.norm.weight", hidden)
	add("lm_head.weight", vocabulary, hidden)
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	return append(append(file, text...), data.Bytes()...)
}
