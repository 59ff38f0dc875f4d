package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/lineage"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// TestServable: a folder is served when it holds a whole model; one of an adapter only is refused with a remedy.
func TestServable(t *testing.T) {
	t.Chdir(t.TempDir())
	whole, adapter := "whole", "adapter"
	for _, d := range []string{whole, filepath.Join(adapter, "adapter")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(whole, "config.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	of := func(path string) *lineage.Checkpoint {
		return &lineage.Checkpoint{Address: addr.Block{Kind: kind.Trainer, Plugin: "grpo", Name: "policy"},
			Path: path, Step: 3, Version: 2}
	}
	p, err := servable(of(whole))
	if err != nil || p.Format != "hf" || p.Version != 2 || !filepath.IsAbs(p.Weights) {
		t.Errorf("servable(whole model) = %+v, %v", p, err)
	}
	if _, err := servable(of(adapter)); err == nil || !strings.Contains(err.Error(), "no whole model") {
		t.Errorf("servable(adapter) = %v, want an error", err)
	}
	if _, err := servable(of("gone")); err == nil {
		t.Error("servable(missing checkpoint) gave no error")
	}
}
