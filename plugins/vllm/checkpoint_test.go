package vllm

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWeightsThatAreNotWhole(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(dir string){
		"cut":            func(dir string) { _ = os.Truncate(filepath.Join(dir, "model.safetensors"), 40) },
		"no weights":     func(dir string) { _ = os.Remove(filepath.Join(dir, "model.safetensors")) },
		"no settings":    func(dir string) { _ = os.Remove(filepath.Join(dir, "config.json")) },
		"an empty index": func(dir string) { put(t, dir, "model.safetensors.index.json", "{}") },
		"a part is away": func(dir string) {
			put(t, dir, "model.safetensors.index.json", `{"weight_map":{"w":"model-2.safetensors"}}`)
		},
		"a broken header": func(dir string) { put(t, dir, "model.safetensors", "\x02\x00\x00\x00\x00\x00\x00\x00[]") },
	} {
		dir := model(t, 1)
		if err := checkCheckpoint(dir); err != nil {
			t.Fatal(err)
		}
		if change(dir); checkCheckpoint(dir) == nil {
			t.Errorf("%s: the weights count as whole", name)
		}
	}
}
