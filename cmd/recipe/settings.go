package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsimple"
)

// settings is the file that says how this person's recipe behaves: RECIPE_CONFIG, else recipe/config.hcl in the user's
// configuration folder.
type settings struct {
	DevOverrides *struct {
		Plugins map[string]string `hcl:",remain"`
	} `hcl:"dev_overrides,block"`
}

// devOverrides are the plugins whose binary an author has named: name to path, relative to the file that says so.
func devOverrides(environ []string) (map[string]string, error) {
	path, given := settingsFile(environ)
	source, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !given {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the settings: %w", err)
	}
	var s settings
	if err := hclsimple.Decode(filepath.Base(path)+".hcl", source, nil, &s); err != nil {
		return nil, fmt.Errorf("reading the settings %s: %w; expected dev_overrides { NAME = \"PATH\" }", path, err)
	}
	if s.DevOverrides == nil {
		return nil, nil
	}
	for name, binary := range s.DevOverrides.Plugins {
		if !filepath.IsAbs(binary) {
			s.DevOverrides.Plugins[name] = filepath.Join(filepath.Dir(path), binary)
		}
	}
	return s.DevOverrides.Plugins, nil
}

func settingsFile(environ []string) (path string, given bool) {
	for i := len(environ) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(environ[i], "RECIPE_CONFIG="); ok && value != "" {
			return value, true
		}
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", false
	}
	return filepath.Join(dir, "recipe", "config.hcl"), false
}
