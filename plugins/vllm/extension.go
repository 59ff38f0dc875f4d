package vllm

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed extension/*.py
var extensionSource embed.FS

// writeExtension puts the worker extension into a folder of its own, for PYTHONPATH, and returns the folder.
func writeExtension(dir string) (string, error) {
	folder := filepath.Join(dir, "python")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("write vLLM's worker extension: %w", err)
	}
	files, err := fs.ReadDir(extensionSource, "extension")
	if err != nil {
		return "", fmt.Errorf("read vLLM's worker extension: %w", err)
	}
	for _, f := range files {
		source, err := extensionSource.ReadFile("extension/" + f.Name())
		if err != nil {
			return "", fmt.Errorf("read vLLM's worker extension: %w", err)
		}
		// Renamed into place: a replica that starts at the same moment must never read half of it.
		part := filepath.Join(folder, "."+f.Name())
		if err := os.WriteFile(part, source, 0o600); err != nil {
			return "", fmt.Errorf("write vLLM's worker extension: %w", err)
		}
		if err := os.Rename(part, filepath.Join(folder, f.Name())); err != nil {
			return "", fmt.Errorf("write vLLM's worker extension: %w", err)
		}
	}
	return folder, nil
}
