package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2/gohcl"

	"github.com/recipe-rl/recipe/engine/packages"
	"github.com/recipe-rl/recipe/engine/packages/signature"
	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk/protocol"
)

// settings is the file that says how this person's recipe behaves: RECIPE_CONFIG, else recipe/config.hcl in the user's
// configuration folder.
type settings struct {
	// PassEnvironment names variables that every plugin process gets of the environment in which recipe runs.
	PassEnvironment []string `hcl:"pass_environment,optional"`

	// Policies are asked about every plan; docs/ci.md has the contract. Paths are relative to the file.
	Policies []string `hcl:"policies,optional"`

	DevOverrides *struct {
		Plugins map[string]string `hcl:",remain"`
	} `hcl:"dev_overrides,block"`

	// Mirrors are places from which packages are fetched instead of from their source.
	Mirrors []struct {
		Prefix   string `hcl:",label"`
		Location string `hcl:"location"`
	} `hcl:"mirror,block"`

	// Kubeconfigs are kubeconfig files that recipes may name; paths are relative to the file.
	Kubeconfigs []string `hcl:"kubeconfigs,optional"`

	// Verify says who must have signed packages.
	Verify []verifySettings `hcl:"verify,block"`
}

// verifySettings demands a signature of the packages whose source begins with Prefix; an empty one means all.
type verifySettings struct {
	Prefix      string `hcl:",label"`
	Key         string `hcl:"key,optional"`
	Identity    string `hcl:"identity,optional"`
	Issuer      string `hcl:"issuer,optional"`
	TrustedRoot string `hcl:"trusted_root,optional"`
}

func (v verifySettings) policy() signature.Policy {
	return signature.Policy{Key: v.Key, Identity: v.Identity, Issuer: v.Issuer, TrustedRoot: v.TrustedRoot}
}

// readSettings reads the file; one that is not there has no settings in it.
func readSettings(environ []string) (settings, error) {
	path, given := settingsFile(environ)
	source, err := parse.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !given {
		return settings{}, nil
	}
	if err != nil { // which names the file
		return settings{}, fmt.Errorf("read the settings: %w; %s", err, settingsRemedy(err, given))
	}
	if len(source) > 0 { // else it is /dev/null, for one
		if err := private.NotShared(path); err != nil { // they name programs that run without a question
			return settings{}, fmt.Errorf("read the settings: %w", err)
		}
	}
	s, err := parseSettings(path, source)
	if err != nil {
		return s, fmt.Errorf("read the settings %s: %w; %s", path, err, settingsRemedy(err, given))
	}
	return s, nil
}

// settingsRemedy describes what to do when the settings cannot be used: no command runs without them.
func settingsRemedy(err error, given bool) string {
	remedy := "mend the file, or name another in RECIPE_CONFIG"
	switch {
	case errors.Is(err, fs.ErrPermission):
		remedy = "let this user read the file (chmod u+r), or name another in RECIPE_CONFIG"
	case errors.Is(err, fs.ErrNotExist):
		remedy = "RECIPE_CONFIG names it: write it, or unset RECIPE_CONFIG"
	case given:
		remedy = "RECIPE_CONFIG names it: mend it, or unset RECIPE_CONFIG"
	}
	return remedy
}

func parseSettings(path string, source []byte) (s settings, err error) {
	file, diags := parse.File(filepath.Base(path), source)
	if !diags.HasErrors() {
		diags = gohcl.DecodeBody(file.Body, nil, &s)
	}
	if err := diags; err.HasErrors() {
		return s,
			fmt.Errorf(
				"%w; expected dev_overrides { NAME = \"PATH\" }, pass_environment = "+
					"[\"NAME\", \"FAMILY_*\"], policies = [\"PATH\"], kubeconfigs = [\"PATH\"], mirror \"HOST/PATH\" { location = "+
					"\"…\" } "+
					"and verify \"HOST/PATH\" { key = \"…\" }",
				err)
	}
	if err := protocol.CheckEnvironmentNames(s.PassEnvironment); err != nil {
		return s, fmt.Errorf("pass_environment: %w", err)
	}
	relative := func(to string) string {
		if filepath.IsAbs(to) {
			return to
		}
		return filepath.Join(filepath.Dir(path), to)
	}
	for i, m := range s.Mirrors {
		if !packages.IsSource(m.Location) {
			s.Mirrors[i].Location = relative(m.Location)
		}
		if err := packages.CheckMirror(packages.Mirror(s.Mirrors[i])); err != nil {
			return s, err
		}
	}
	for i, v := range s.Verify {
		if err := packages.CheckSourcePolicy(packages.SourcePolicy{Prefix: v.Prefix, Policy: v.policy()}); err != nil {
			return s, err
		}
		if v.Key != "" {
			s.Verify[i].Key = relative(v.Key)
		} else {
			s.Verify[i].TrustedRoot = relative(v.TrustedRoot)
		}
	}
	for i, file := range s.Kubeconfigs {
		s.Kubeconfigs[i] = relative(file)
	}
	for i, executable := range s.Policies {
		s.Policies[i] = relative(executable)
	}
	for name, binary := range s.devOverrides() {
		s.DevOverrides.Plugins[name] = relative(binary)
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
