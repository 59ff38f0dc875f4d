package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsimple"

	"github.com/recipe-rl/recipe/sdk/protocol"
)

// settings is the file that says how this person's recipe behaves: RECIPE_CONFIG, else recipe/config.hcl in the user's
// configuration folder.
type settings struct {
	// PassEnvironment names variables that every plugin process gets of the environment in which recipe runs.
	PassEnvironment []string `hcl:"pass_environment,optional"`

	DevOverrides *struct {
		Plugins map[string]string `hcl:",remain"`
	} `hcl:"dev_overrides,block"`
}

// readSettings reads the file; one that is not there has no settings in it.
func readSettings(environ []string) (s settings, err error) {
	path, given := settingsFile(environ)
	source, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !given {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("read the settings: %w", err)
	}
	if err := hclsimple.Decode(filepath.Base(path)+".hcl", source, nil, &s); err != nil {
		return s,
			fmt.Errorf(
				"read the settings %s: %w; expected dev_overrides { NAME = \"PATH\" } and pass_environment = "+
					"[\"NAME\", \"FAMILY_*\"]", path, err)
	}
	if err := protocol.CheckEnvironmentNames(s.PassEnvironment); err != nil {
		return s, fmt.Errorf("read the settings %s: pass_environment: %w", path, err)
	}
	if s.DevOverrides == nil {
		return s, nil
	}
	for name, binary := range s.DevOverrides.Plugins {
		if !filepath.IsAbs(binary) {
			s.DevOverrides.Plugins[name] = filepath.Join(filepath.Dir(path), binary)
		}
	}
	return s, nil
}

// devOverrides are the plugins whose binary an author has named: name to path, relative to the file that says so.
func (s settings) devOverrides() map[string]string {
	if s.DevOverrides == nil {
		return nil
	}
	return s.DevOverrides.Plugins
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
