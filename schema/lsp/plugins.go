package lsp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// catalog holds the plugins of one recipe for as long as it requires the same ones.
type catalog struct {
	requires string
	plugins  *remembering
}

// open returns the plugins that a recipe is checked with. A recipe that requires others than before gets a new catalog,
// because a catalog keeps the first source that it is told.
func (c *catalog) open(s *snapshot, p *project, path string) *remembering {
	requires := fmt.Sprint(identify(s, parse.LockFile(path))) + required(s, p, path, map[string]bool{})
	if c.plugins != nil && c.requires == requires && (c.plugins.disk == s.disk || !c.plugins.hasFailed()) {
		return c.plugins
	}
	inner, err := p.opts.Plugins()
	if err != nil {
		p.opts.Log("open the catalog of plugins: %v", err)
		return nil
	}
	c.requires = requires
	c.plugins = &remembering{Plugins: inner, disk: s.disk, failed: map[string]error{}, found: p.found}
	return c.plugins
}

// localPath finds the sources of plugins that are files.
var localPath = lazyregexp.New(`"((?:\.\.?)?/[^"]*)"`)

// required are the texts of the required_plugins blocks of a recipe and its modules, and the versions of the files that
// they name.
func required(s *snapshot, p *project, path string, seen map[string]bool) string {
	f := p.file(s, path)
	if f == nil || seen[path] {
		return ""
	}
	seen[path] = true
	var out strings.Builder
	for _, part := range f.parts {
		for _, b := range part.top.blocks {
			if b.kind != "recipe" {
				continue
			}
			text := b.whole.of(part.src)
			out.WriteString(text)
			for _, match := range localPath.FindAllStringSubmatch(text, -1) {
				name := match[1]
				if !filepath.IsAbs(name) {
					name = filepath.Join(filepath.Dir(path), name)
				}
				if info, err := os.Stat(name); err == nil {
					out.WriteString(info.ModTime().String())
				}
			}
		}
	}
	for _, c := range p.moduleCalls(f, path) {
		if c.target != "" {
			out.WriteString(required(s, p, c.target, seen))
		}
	}
	return out.String()
}

// remembering keeps what failed: a plugin that cannot be described is not started again with every keystroke, but when
// its file, its requirement or, after a save, anything on the disk has changed.
type remembering struct {
	schema.Plugins
	disk  int
	found func(recipe, module, folder string) // is told the folders of modules from packages

	mu     sync.Mutex
	failed map[string]error
	names  map[kind.Kind][]string // once something has failed: listing tries all plugins again
}

var (
	_ schema.Requirer  = (*remembering)(nil)
	_ schema.Program   = (*remembering)(nil)
	_ schema.Validator = (*remembering)(nil)

	_ schema.PackageRequirer = (*remembering)(nil)
	_ schema.ModuleFinder    = (*remembering)(nil)
)

func (r *remembering) hasFailed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failed) > 0
}

func (r *remembering) Lookup(k kind.Kind, name string) (*schema.PluginSchema, error) {
	key := string(k) + "/" + name
	r.mu.Lock()
	err := r.failed[key]
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s, err := r.Plugins.Lookup(k, name)
	if err != nil {
		r.mu.Lock()
		r.failed[key] = err
		r.mu.Unlock()
	}
	return s, err
}

// Names implements schema.Plugins.
func (r *remembering) Names(k kind.Kind) []string {
	r.mu.Lock()
	names, known := r.names[k]
	r.mu.Unlock()
	if known {
		return names
	}
	names = r.Plugins.Names(k)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failed) > 0 {
		if r.names == nil {
			r.names = map[kind.Kind][]string{}
		}
		r.names[k] = names
	}
	return names
}

// Require implements schema.Requirer.
func (r *remembering) Require(name, path string) {
	if inner, ok := r.Plugins.(schema.Requirer); ok {
		inner.Require(name, path)
	}
}

// RequirePackage implements schema.PackageRequirer.
func (r *remembering) RequirePackage(recipe string, q parse.Requirement) {
	if inner, ok := r.Plugins.(schema.PackageRequirer); ok {
		inner.RequirePackage(recipe, q)
	}
}

// Module implements schema.ModuleFinder.
func (r *remembering) Module(recipe string, q parse.Requirement) (string, error) {
	if inner, ok := r.Plugins.(schema.ModuleFinder); ok {
		folder, err := inner.Module(recipe, q)
		if err != nil {
			folder = ""
		}
		r.found(recipe, q.Name, folder)
		return folder, err
	}
	return "", errors.New("modules from packages are not available here")
}

// ProgramVersion implements schema.Program; without a version every constraint is satisfied.
func (r *remembering) ProgramVersion() string {
	if inner, ok := r.Plugins.(schema.Program); ok {
		return inner.ProgramVersion()
	}
	return ""
}

// Validate implements schema.Validator.
func (r *remembering) Validate(k kind.Kind, plugin string, config cty.Value) ([]spec.Problem, error) {
	if inner, ok := r.Plugins.(schema.Validator); ok {
		return inner.Validate(k, plugin, config)
	}
	return nil, nil
}
