package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
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

// A run directory that came from somewhere else has evaluate load no other file of this user, and wait for no pipe.
func TestAForeignCheckpointNamesNoOtherFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	whole := "whole"
	for _, err := range []error{os.Mkdir(whole, 0o700), os.WriteFile("secret", []byte("s"), 0o600),
		os.WriteFile(filepath.Join(whole, "config.json"), []byte("{}"), 0o600), syscall.Mkfifo("pipe", 0o600),
		os.Symlink("../secret", filepath.Join(whole, "model.safetensors")), os.Symlink("secret", "link"),
		os.Symlink("/dev/zero", "zero"), os.Symlink(whole, "folder")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{whole, "link", "zero", "folder", "pipe"} {
		_, err := servable(&lineage.Checkpoint{Address: addr.Block{Kind: kind.Trainer, Plugin: "grpo", Name: "policy"},
			Path: path, Step: 3})
		if err == nil || !strings.Contains(err.Error(), "is no file of the checkpoint") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
