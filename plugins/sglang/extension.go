package sglang

import (
	"embed"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/recipe-rl/recipe/sdk/python"
)

//go:embed extension/*.py extension/cpu/*.py
var extensionSource embed.FS

// writeExtension puts the Python side, and the package recipe_sdk that it imports, into a folder of their own, for
// PYTHONPATH, and returns the folder.
func writeExtension(dir string) (string, error) {
	folder := filepath.Join(dir, "python")
	source, err := fs.Sub(extensionSource, "extension")
	if err == nil {
		err = python.Write(folder)
	}
	if err == nil {
		err = python.WriteTree(folder, source)
	}
	if err != nil {
		return "", fmt.Errorf("write the Python side of inference %q: %w", "sglang", err)
	}
	return folder, nil
}
