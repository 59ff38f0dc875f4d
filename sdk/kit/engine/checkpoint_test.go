package engine

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
		dir := model(t)
		if err := CheckCheckpoint(dir); err != nil {
			t.Fatal(err)
		}
		if change(dir); CheckCheckpoint(dir) == nil {
			t.Errorf("%s: the weights count as whole", name)
		}
	}
}

func TestAdapterModules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(names ...string) {
		tensors := map[string]any{}
		for _, name := range names {
			tensors[name] = map[string]any{"dtype": "F32", "shape": []int{2}, "data_offsets": []int{0, 8}}
		}
		header, err := json.Marshal(tensors)
		if err != nil {
			t.Fatal(err)
		}
		data := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
		put(t, dir, AdapterFile, string(append(append(data, header...), make([]byte, 8)...)))
	}
	write("base_model.model.model.layers.1.mlp.up_proj.lora_B.weight", "base_model.model.lm_head.lora_A.weight",
		"base_model.model.model.layers.1.mlp.up_proj.lora_A.weight",
		"base_model.model.model.embed_tokens.lora_embedding_A", "base_model.model.score.weight")
	got, err := AdapterModules(dir)
	if want := []string{"lm_head", "model.embed_tokens", "model.layers.1.mlp.up_proj"}; err != nil ||
		!slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	write("base_model.model.score.weight")
	if got, err := AdapterModules(dir); err == nil || !strings.Contains(err.Error(), "names no module with LoRA") {
		t.Errorf("%q, %v; want an error", got, err)
	}
}

func FuzzReadHeader(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0, '{', '}'})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		// It must neither panic nor allocate what the file claims.
		_, _ = parseHeader(bytes.NewReader(data), int64(len(data)), "x.safetensors")
	})
}

// model makes a folder that looks like a checkpoint.
func model(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	put(t, dir, "config.json", "{}")
	header := `{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`
	data := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	put(t, dir, "model.safetensors", string(append(append(data, header...), make([]byte, 8)...)))
	return dir
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
