package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
)

// coder is an agent that is the program coder, or in a library of Python.
type coder struct {
	library bool
	version string
	asked   *[]string // programs
}

func (c coder) Find(lookPath func(string) (string, error), python string) (string, error) {
	if c.library {
		return python, nil
	}
	found, err := lookPath("coder")
	if err != nil {
		return "", &sdk.Error{Summary: "the agent coder is not installed", Remedy: "install it: npm install -g coder"}
	}
	return found, nil
}

func (c coder) Version(_ context.Context, program string, _ []string) (string, error) {
	*c.asked = append(*c.asked, program)
	switch {
	case c.version == "":
		return "", errors.New("read the version of coder: exit status 1")
	case c.version == "none":
		return "", &sdk.Error{Summary: program + " has no package coder", Remedy: "install it: runtime { … }"}
	}
	return c.version, nil
}

func (c coder) Warning(version string) string {
	if version == "2" {
		return ""
	}
	return "coder " + version + " is older than 2"
}

// agentRecipe is a recipe with one agent, and where the user's program is.
func agentRecipe(t *testing.T) (dir, path string, r *schema.Recipe, b *schema.Block) {
	t.Helper()
	dir, path = t.TempDir(), t.TempDir()
	file(t, filepath.Join(path, "python3"))
	b = &schema.Block{Addr: addr.Block{Kind: "environment", Plugin: "agent", Name: "a"},
		Value: cty.ObjectVal(map[string]cty.Value{"agent": cty.StringVal("coder")})}
	return dir, path, &schema.Recipe{Dir: dir, File: filepath.Join(dir, "r.hcl"), Blocks: []*schema.Block{b}}, b
}

// agentMachine is a machine whose PATH is one folder, and that knows the agent coder.
func agentMachine(dir, path string, c coder) Machine {
	m := healthy(dir)
	m.Allow = nil
	m.LookupEnv = func(name string) (string, bool) { return path, name == "PATH" }
	m.LookPath = func(name string) (string, error) {
		found := filepath.Join(path, name)
		_, err := os.Stat(found)
		return found, err
	}
	m.Agent = func(name string) (Agent, bool) { return c, name == "coder" }
	return m
}

func none(*schema.Block) sdk.Packages { return sdk.Packages{} }

func TestTheAgentOfABlock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		coder     coder
		installed bool
		want      Verdict
		found     string
		remedy    string
		note      bool // in a plan
	}{
		"the version that was tried": {coder{version: "2"}, true, OK, "coder 2, ", "", false},
		"an older one":               {coder{version: "1"}, true, Warn, "coder 1 is older than 2 (", "env agents", false},
		"one that does not answer":   {coder{}, true, Warn, "exit status 1", "by hand", false},
		"none":                       {coder{version: "2"}, false, Fail, "not installed", "npm install -g coder", true},
		"a library that is not there": {coder{version: "none", library: true}, false, Fail, "has no package coder",
			"install it: runtime", false},
	} {
		dir, path, r, b := agentRecipe(t)
		if c.installed {
			file(t, filepath.Join(path, "coder"))
		}
		var asked []string
		c.coder.asked = &asked
		m := agentMachine(dir, path, c.coder)
		findings := Blocks(t.Context(), m, "r.hcl", r, none)
		if len(findings) != 1 || findings[0].Name != b.Addr.String()+" agent" || findings[0].Verdict != c.want ||
			!strings.Contains(findings[0].Found, c.found) || !strings.Contains(findings[0].Remedy, c.remedy) {
			t.Errorf("%s: %+v", name, findings)
		}
		asked = nil
		notes := Notes(m, Hardware(t.Context(), m), r, none)
		if has := len(notes) == 1 && strings.Contains(notes[0].Detail, c.remedy); has != c.note || len(asked) > 0 {
			t.Errorf("%s: a plan has %+v and ran %q", name, notes, asked)
		}
	}
}

// A program that the recipe brings is not asked for its version before it is trusted.
func TestAnAgentOfTheRecipeIsNotRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		place   func(dir, path string, b *schema.Block) string // of the program
		foreign bool
	}{
		"in the user's PATH": {func(_, path string, _ *schema.Block) string { return filepath.Join(path, "coder") }, false},
		"in a PATH that the block sets": {func(dir, _ string, b *schema.Block) string {
			elsewhere := filepath.Join(filepath.Dir(dir), "x")
			b.Meta.Environment = map[string]cty.Value{"PATH": cty.StringVal(elsewhere)}
			return filepath.Join(elsewhere, "coder")
		}, true},
		"in the recipe's folder": {func(dir, path string, _ *schema.Block) string {
			_ = os.Symlink(filepath.Join(dir, "coder"), filepath.Join(path, "coder"))
			return filepath.Join(dir, "coder")
		}, true},
	} {
		dir, path, r, b := agentRecipe(t)
		file(t, c.place(dir, path, b))
		var asked []string
		findings := Blocks(t.Context(), agentMachine(dir, path, coder{version: "2", asked: &asked}), "r.hcl", r, none)
		refused := len(findings) == 1 && strings.Contains(findings[0].Found, "not trusted")
		if refused != c.foreign || (len(asked) == 0) != c.foreign {
			t.Errorf("%s: %+v, run: %q; want it refused: %v", name, findings, asked, c.foreign)
		}
	}
}
