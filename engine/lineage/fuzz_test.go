package lineage

import "testing"

// FuzzParse: whatever lineage.json holds, it is a lineage of a version that this program reads, or an error.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"format_version":"1.0","run":"r1","blocks":{"trainer.tiny.p":{"config":{"steps":3}}},"checkpoint":{"step":3}}`))
	f.Add([]byte(`{"format_version":"1.99","blocks":null,"parent":{"checkpoint":null}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if l, err := decode("lineage.json", data); (l == nil) != (err != nil) {
			t.Fatalf("%v, %v", l, err)
		}
	})
}
