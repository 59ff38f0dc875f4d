package modelinfo

import "testing"

// FuzzParse: a config.json gives a shape with positive sizes, or an error. It uses no files, which would take most of
// the time.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"num_hidden_layers":1,"hidden_size":2,"num_attention_heads":1,"vocab_size":3}`))
	f.Add([]byte(`{"text_config":{"num_hidden_layers":1,"hidden_size":2,"num_attention_heads":1,"vocab_size":3,"num_experts":4}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parse(data)
		if err != nil {
			return
		}
		if m.Layers <= 0 || m.Hidden <= 0 || m.Heads <= 0 || m.Vocab <= 0 || m.Parameters() <= 0 || m.KVBytes(2) < 0 {
			t.Fatalf("%s is %+v", data, m)
		}
	})
}

// TestLayersThatCarryAState: some families list the kinds of their layers, others only have settings of such layers.
func TestLayersThatCarryAState(t *testing.T) {
	t.Parallel()
	const sizes = `"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 16`
	for _, c := range []struct {
		settings string
		want     bool
	}{
		{`"model_type": "llama"`, false},
		{`"model_type": "gemma2", "layer_types": ["sliding_attention", "full_attention"]`, false},
		{`"model_type": "llama4_text", "layer_types": ["chunked_attention", "full_attention"]`, false},
		{`"model_type": "minimax_m2", "attn_type_list": [1, 1]`, false},
		{`"model_type": "minimax", "attn_type_list": [0, 1]`, true},
		{`"model_type": "olmo_hybrid", "layer_types": ["linear_attention", "full_attention"]`, true},
		{`"model_type": "qwen3_next", "full_attention_interval": 4, "linear_conv_kernel_dim": 4`, true},
		{`"model_type": "falcon_h1", "mamba_d_conv": 4`, true},
		{`"model_type": "nemotron_h", "hybrid_override_pattern": "M-M*-"`, true},
		{`"model_type": "lfm2", "conv_L_cache": 3`, true},
		{`"model_type": "recurrent_gemma", "block_types": ["recurrent", "attention"]`, true},
		{`"model_type": "qwen3", "linear_conv_kernel_dim": null, "layer_types": null`, false},
	} {
		for form, text := range map[string]string{
			"plain": `{` + sizes + `, ` + c.settings + `}`, "of text": `{"text_config": {` + sizes + `, ` + c.settings + `}}`,
		} {
			m, err := parse([]byte(text))
			if err != nil || m.Stateful != c.want {
				t.Errorf("%s, %s: carries a state: %t, %v; want %t", c.settings, form, m.Stateful, err, c.want)
			}
		}
	}
}
