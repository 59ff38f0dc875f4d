package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// metaArguments are those that every block accepts besides its plugin's own, as docs/language.md lists them.
var metaArguments = map[string][]string{
	"placement": {"gpus", "devices", "executor", "host", "nodes"},
	"runtime":   {"python", "requirements", "venv"}, "restart": nil,
	"health":   nil,
	"external": nil, "environment_variables": nil, "stop_when": nil, "count": nil, "for_each": nil, "depends_on": nil,
	"lifecycle": nil,
}

// TestDocsNameRealSettings compares the tables that translate other projects' settings with the schemas: what their
// right column names as `KIND.PLUGIN: path` exists.
func TestDocsNameRealSettings(t *testing.T) {
	t.Parallel()
	a := newApp(nil, io.Discard, io.Discard, []string{"RECIPE_CONFIG=" + filepath.Join("testdata", "settings.hcl")})
	plugins, err := a.everyPlugin("")
	if err != nil {
		t.Fatal(err)
	}
	schemas := map[string]*schema.PluginSchema{}
	for _, p := range plugins {
		schemas[string(p.Kind)+"."+p.Name] = p
	}
	setting := regexp.MustCompile("`([a-z]+\\.[a-z_]+): ([a-z0-9_.]+)(?: = \"([^\"]+)\")?`")
	pages, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, page := range pages {
		name := filepath.Base(page)
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range setting.FindAllStringSubmatch(string(text), -1) {
			found[name]++
			p := schemas[m[1]]
			if p == nil {
				t.Errorf("%s: %s: there is no block %s", name, m[0], m[1])
				continue
			}
			if err := resolve(p, strings.Split(m[2], "."), m[3]); err != nil {
				t.Errorf("%s: %s: %v", name, m[0], err)
			}
		}
	}
	for _, name := range []string{"from-verl.md", "from-atropos.md", "troubleshooting.md"} {
		if found[name] < 20 {
			t.Errorf("%s names %d settings: its form is not understood any more", name, found[name])
		}
	}
}

// TestEverySettingOfTheTrainerIsTranslated: whoever comes from another project finds each attribute of trainer "grpo"
// on one of the two pages, so none can be added without a word about its counterpart.
func TestEverySettingOfTheTrainerIsTranslated(t *testing.T) {
	t.Parallel()
	a := newApp(nil, io.Discard, io.Discard, []string{"RECIPE_CONFIG=" + filepath.Join("testdata", "settings.hcl")})
	catalog, err := a.catalog()
	if err != nil {
		t.Fatal(err)
	}
	p, err := catalog.Lookup(kind.Trainer, "grpo")
	if err != nil {
		t.Fatal(err)
	}
	var text string
	for _, page := range []string{"from-verl.md", "from-atropos.md"} {
		data, err := os.ReadFile(filepath.Join(repository, "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		text += string(data)
	}
	var walk func(s *spec.Schema, prefix string)
	walk = func(s *spec.Schema, prefix string) {
		for _, attribute := range s.Attributes {
			if name := prefix + attribute.Name; !strings.Contains(text, "`trainer.grpo: "+name+"`") &&
				!strings.Contains(text, "`trainer.grpo: "+name+" = ") {
				t.Errorf("neither docs/from-verl.md nor docs/from-atropos.md says what %s is elsewhere", name)
			}
		}
		for _, b := range s.Blocks {
			walk(b.Schema, prefix+b.Name+".")
		}
	}
	walk(p.Config, "")
}

// resolve finds an attribute by its path, an output, or a meta-argument, and checks the value where an enum restricts
// it.
func resolve(p *schema.PluginSchema, path []string, value string) error {
	if parts, ok := metaArguments[path[0]]; ok {
		if len(path) > 1 && !slices.Contains(parts, path[1]) {
			return fmt.Errorf("%s has no %s", path[0], path[1])
		}
		return nil
	}
	if p.Outputs != nil && len(path) == 1 && p.Outputs.Attribute(path[0]) != nil {
		return nil
	}
	s := p.Config
	for _, name := range path[:len(path)-1] {
		b := s.Block(name)
		if b == nil {
			return fmt.Errorf("there is no nested block %s", name)
		}
		s = b.Schema
	}
	last := path[len(path)-1]
	if a := s.Attribute(last); a != nil {
		return takes(a, value)
	}
	if s.Block(last) != nil && value == "" {
		return nil
	}
	return fmt.Errorf("there is no attribute %s", last)
}

func takes(a *spec.Attribute, value string) error {
	if value != "" && len(a.Enum) > 0 && !slices.Contains(a.Enum, value) {
		return fmt.Errorf("it takes %s", strings.Join(a.Enum, ", "))
	}
	return nil
}

// TestLinksResolve follows every link within the repository, from every page.
func TestLinksResolve(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)#\s]+)(#[^)\s]*)?\)`)
	code := regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	files(t, func(path string) {
		if !strings.HasSuffix(path, ".md") {
			return
		}
		text, err := os.ReadFile(filepath.Join(repository, path))
		if err != nil {
			t.Error(err)
			return
		}
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(repository, filepath.Dir(path), filepath.FromSlash(m[1]))); err != nil {
				t.Errorf("%s links to %s, which is not there", path, m[1])
			}
		}
	})
}

// TestDataFormatNamesEveryField holds the table of a group's fields to the type that carries them.
func TestDataFormatNamesEveryField(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(repository, "docs", "data-format.md"))
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		described[m[1]] = true
	}
	group := reflect.TypeFor[trajectory.Group]()
	for i := range group.NumField() {
		name, _, _ := strings.Cut(group.Field(i).Tag.Get("json"), ",")
		if !described[name] {
			t.Errorf("docs/data-format.md has no row for %s", name)
		}
		delete(described, name)
	}
	for name := range described {
		t.Errorf("docs/data-format.md describes %s, which a group does not have", name)
	}
}
