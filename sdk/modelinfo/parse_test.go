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
