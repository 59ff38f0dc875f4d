package vllm

import (
	"embed"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/recipe-rl/recipe/sdk/python"
)

//go:embed extension/*.py
var extensionSource embed.FS

// writeExtension puts the worker extension, and the package recipe_sdk that it imports, into a folder of their own,
// for PYTHONPATH, and returns the folder.
func writeExtension(dir string) (string, error) {
	folder := filepath.Join(dir, "python")
	source, err := fs.Sub(extensionSource, "extension")
	if err != nil {
		return "", fmt.Errorf("read vLLM's worker extension: %w", err)
	}
	if err := python.Write(folder); err != nil {
		return "", fmt.Errorf("write vLLM's worker extension: %w", err)
	}
	if err := python.WriteTree(folder, source); err != nil {
		return "", fmt.Errorf("write vLLM's worker extension: %w", err)
	}
	return folder, nil
}
