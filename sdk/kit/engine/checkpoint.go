package engine

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk"
)

// AdapterFile is the file with an adapter's tensors.
const AdapterFile = "adapter_model.safetensors"

// adapterConfig is the file with an adapter's rank and the modules that it changes.
const adapterConfig = "adapter_config.json"

// CheckCheckpoint returns an error unless a folder holds complete weights in the Hugging Face layout.
func CheckCheckpoint(dir string) error {
	if !filepath.IsAbs(dir) {
		return badCheckpoint(dir, errors.New("the path is not absolute"))
	}
	if _, err := os.Stat(filepath.Join(dir, "config.json")); err != nil {
		return badCheckpoint(dir, err)
	}
	files, err := weightFiles(dir)
	if err != nil {
		return badCheckpoint(dir, err)
	}
	for _, name := range files {
		if err := checkSafetensors(filepath.Join(dir, name)); err != nil {
			return badCheckpoint(dir, err)
		}
	}
	return nil
}

// CheckAdapter returns an error unless a folder holds a complete adapter in peft's layout.
func CheckAdapter(dir string) error {
	if !filepath.IsAbs(dir) {
		return badCheckpoint(dir, errors.New("the path is not absolute"))
	}
	if _, err := os.Stat(filepath.Join(dir, adapterConfig)); err != nil {
		return badCheckpoint(dir, err)
	}
	if err := checkSafetensors(filepath.Join(dir, AdapterFile)); err != nil {
		return badCheckpoint(dir, err)
	}
	return nil
}

// AdapterModules lists the modules that an adapter in peft's layout changes, sorted, as the trainer's model names them.
// It reads the header of the file alone.
func AdapterModules(dir string) ([]string, error) {
	tensors, err := readHeader(filepath.Join(dir, AdapterFile))
	if err != nil {
		return nil, badCheckpoint(dir, err)
	}
	modules := map[string]bool{}
	for name := range tensors {
		if module, _, found := strings.Cut(name, ".lora_"); found {
			modules[strings.TrimPrefix(module, "base_model.model.")] = true
		}
	}
	if len(modules) == 0 {
		return nil, badCheckpoint(dir, fmt.Errorf("%s names no module with LoRA (MODULE.lora_A.weight)", AdapterFile))
	}
	return slices.Sorted(maps.Keys(modules)), nil
}

// AdapterRank returns the rank that an adapter in peft's layout declares; 0 if its configuration names none.
func AdapterRank(dir string) (int64, error) {
	text, err := regular.FollowFile(filepath.Join(dir, adapterConfig), maxText)
	if err != nil {
		return 0, badCheckpoint(dir, err)
	}
	var config struct {
		Rank int64 `json:"r"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return 0, badCheckpoint(dir, fmt.Errorf("%s: %w", adapterConfig, err))
	}
	return config.Rank, nil
}

func badCheckpoint(dir string, err error) error {
	return &sdk.Error{
		Summary: "the weights to load are not complete, so the server was left as it was",
		Detail:  dir,
		Remedy: "the trainer must publish a whole folder (config.json and safetensors) and rename it into place; " +
			"on another machine it must lie on a shared file system",
		Err: err,
	}
}

// weightFiles lists the safetensors files of a checkpoint: those that its index names, else all.
func weightFiles(dir string) ([]string, error) {
	data, err := regular.FollowFile(filepath.Join(dir, "model.safetensors.index.json"), maxText)
	if err == nil {
		var index struct {
			WeightMap map[string]string `json:"weight_map"`
		}
		if err := json.Unmarshal(data, &index); err != nil {
			return nil, fmt.Errorf("read model.safetensors.index.json: %w", err)
		}
		if len(index.WeightMap) == 0 {
			return nil, errors.New("model.safetensors.index.json names no file")
		}
		return slices.Compact(slices.Sorted(maps.Values(index.WeightMap))), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, errors.New("it holds no .safetensors file")
	}
	for i := range paths {
		paths[i] = filepath.Base(paths[i])
	}
	return paths, nil
}

// maxText bounds the other files that are read of a checkpoint or tokenizer.
const maxText = 64 << 20

// maxHeader bounds the header of a safetensors file, as the format does.
const maxHeader = 100 << 20

// tensor is one entry of the header of a safetensors file.
type tensor struct {
	Dtype   string    `json:"dtype"`
	Shape   []int64   `json:"shape"`
	Offsets [2]uint64 `json:"data_offsets"`
}

// readHeader reads what a safetensors file says it holds, and checks that it is all there.
func readHeader(path string) (map[string]tensor, error) {
	f, info, err := regular.Follow(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return parseHeader(f, info.Size(), path)
}

// parseHeader reads the header of a safetensors file of size bytes; path is for error messages.
func parseHeader(f io.Reader, size int64, path string) (map[string]tensor, error) {
	var length uint64
	if err := binary.Read(f, binary.LittleEndian, &length); err != nil {
		return nil, fmt.Errorf("%s: read the length of its header: %w", path, err)
	}
	if length > maxHeader || int64(length) > size-8 {
		return nil, fmt.Errorf("%s: a header of %d bytes does not fit into a file of %d; it is cut short or not safetensors",
			path, length, size)
	}
	data := make([]byte, length)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, fmt.Errorf("%s: read its header: %w", path, err)
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("%s: its header is not JSON: %w", path, err)
	}
	delete(raw, "__metadata__")
	tensors := make(map[string]tensor, len(raw))
	var end uint64
	for name, text := range raw {
		var t tensor
		if err := json.Unmarshal(text, &t); err != nil {
			return nil, fmt.Errorf("%s: tensor %s: %w", path, name, err)
		}
		tensors[name] = t
		end = max(end, t.Offsets[1])
	}
	if want := 8 + length + end; uint64(size) != want {
		return nil, fmt.Errorf("%s: %d bytes, but %d according to its header; it is cut short or still being written",
			path, size, want)
	}
	return tensors, nil
}

func checkSafetensors(path string) error {
	tensors, err := readHeader(path)
	if err == nil && len(tensors) == 0 {
		err = fmt.Errorf("%s holds no tensor", path)
	}
	return err
}
