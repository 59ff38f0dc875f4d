package vllm

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
)

//go:embed extension/recipe_vllm.py
var extensionSource []byte

// writeExtension puts the worker extension into a folder of its own, for PYTHONPATH, and returns the folder.
func writeExtension(dir string) (string, error) {
	folder := filepath.Join(dir, "python")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("write vLLM's worker extension: %w", err)
	}
	// Renamed into place: a replica that starts at the same moment must never read half of it.
	part := filepath.Join(folder, ".recipe_vllm.py")
	if err := os.WriteFile(part, extensionSource, 0o600); err != nil {
		return "", fmt.Errorf("write vLLM's worker extension: %w", err)
	}
	if err := os.Rename(part, filepath.Join(folder, "recipe_vllm.py")); err != nil {
		return "", fmt.Errorf("write vLLM's worker extension: %w", err)
	}
	return folder, nil
}
