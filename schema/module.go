package schema

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// Limits keep a faulty recipe from exhausting the machine. They are far above what a real one needs.
const (
	maxTotal       = 20_000 // blocks of a recipe
	maxModuleDepth = 16
	maxModules     = 1_000
)

// module is one module call as declared, without instance keys; the root is the module without a call.
type module struct {
	path     string // "eval.inner"; "" is the root
	source   *parse.Source
	parent   *module
	call     *node  // in parent; nil for the root
	root     string // folder of the package that it is in; empty: it is in none
	depth    int
	children map[string]*module

	variables map[string]*node
	locals    map[string]*node
	outputs   map[string]*node
	calls     map[string]*node
	blocks    map[blockName]*node
	observers []*node

	refused   bool // there would be too many instances: no more are made, in any instance of its parent
	instances []*moduleInstance
	within    map[*moduleInstance][]*moduleInstance // instances by the parent's instance, in order of their keys
}

type blockName struct {
	kind         kind.Kind
	plugin, name string
}

// moduleInstance is one expansion of a module: count and for_each of the call and of all calls above it.
type moduleInstance struct {
	module *module
	path   string // with keys: eval["a"].inner
	index  int    // in module.instances
	parent *moduleInstance
	key    addr.Key
	each   *hcl.EvalContext // holds count or each for the arguments of the call; nil without
}

// loader builds the tree of modules.
type loader struct {
	files    *parse.Files
	modules  []*module
	diags    hcl.Diagnostics
	required map[string]parse.Requirement
	refused  map[string]bool // see parse.Recipe

	recipe   string              // the file, whose lock has the modules from packages
	packaged []parse.Requirement // modules from packages
	finder   ModuleFinder        // nil: there are none
}

// unread is what is wrong with the files and with the calls of modules.
func (l *loader) unread() hcl.Diagnostics { return slices.Concat(l.files.Diags, l.diags) }

// grow adds a module and everything below it to the tree.
func (l *loader) grow(m *module) {
	l.modules = append(l.modules, m)
	m.children = map[string]*module{}
	m.declareNodes()
	if m.source.Recipe != nil {
		l.require(m)
	}
	for _, call := range m.source.Calls {
		if child := l.child(m, call); child != nil {
			m.children[call.Name] = child
			l.grow(child)
		}
	}
}

func (l *loader) child(m *module, call *parse.Call) *module {
	n := m.calls[call.Name]
	if call.Source == "" || n == nil || n.call != call {
		return nil
	}
	fail := func(summary, detail string) *module {
		l.diags = append(l.diags, diagnostic.Problem(call.SourceAt, summary, detail))
		return nil
	}
	dir, root := call.Source, m.root
	switch {
	case parse.IsPackage(call.Source):
		q := call.Required
		q.Name = pathOf(m, call)
		l.packaged = append(l.packaged, q)
		if l.finder == nil {
			return fail("Module not usable", "Modules from packages are not available here.")
		}
		var err error
		if dir, err = l.finder.Module(l.recipe, q); err != nil {
			return fail("Module not usable", fmt.Sprintf("The module %s could not be used: %s.%s", q.Name,
				strings.TrimSuffix(err.Error(), "."), guidance(err)))
		}
		root = dir
	case !parse.IsPath(call.Source):
		return fail("Unknown module source", fmt.Sprintf(
			"Expected a local folder (./…, ../… or an absolute path), or oci://… or https://…, got %q.", call.Source))
	case m.leaves(call.Source):
		return fail("Module not usable", fmt.Sprintf("%s is not in the package of this module, %s.", call.Source, m.root))
	case !filepath.IsAbs(dir):
		dir = filepath.Join(m.source.Dir, dir)
	}
	if m.depth >= maxModuleDepth || len(l.modules) >= maxModules {
		return fail("Too many modules", fmt.Sprintf("Modules nest at most %d deep and a recipe has at most %d of them.",
			maxModuleDepth, maxModules))
	}
	src, err := l.files.Load(dir)
	if err != nil {
		return fail("Module not found", diagnostic.UpperFirst(err.Error())+".")
	}
	for above := m; above != nil; above = above.parent {
		if above.source == src {
			return fail("Module contains itself",
				fmt.Sprintf(
					"%s calls itself through module.%s. A module must not call itself, directly or through others.",
					src.Path, pathOf(m, call)))
		}
	}
	return &module{path: pathOf(m, call), source: src, parent: m, call: n, root: root, depth: m.depth + 1}
}

// leaves reports whether a path of a module from a package leads out of the package.
func (m *module) leaves(path string) bool {
	if m.root == "" {
		return false
	}
	rel, err := filepath.Rel(m.root, filepath.Join(m.source.Dir, path))
	return filepath.IsAbs(path) || err != nil || !filepath.IsLocal(rel)
}

func pathOf(m *module, call *parse.Call) string {
	if m.path == "" {
		return call.Name
	}
	return m.path + "." + call.Name
}

// require collects the required plugins of a module; two modules that disagree are an error.
func (l *loader) require(m *module) {
	for _, name := range m.source.Recipe.Refused {
		l.refused[name] = true
	}
	for _, p := range m.source.Recipe.Plugins {
		earlier, ok := l.required[p.Name]
		same := p
		same.Range = earlier.Range
		if ok && earlier != same {
			l.diags = append(l.diags, diagnostic.Problem(p.Range, "Plugin required twice",
				fmt.Sprintf(
					"The plugin %q is required with another source, version, checksum or verify at %s. Require it once, "+
						"or with the same ones everywhere.", p.Name, diagnostic.At(earlier.Range))))
			continue
		}
		if parse.IsPath(p.Source) && m.leaves(p.Source) {
			l.diags = append(l.diags, diagnostic.Problem(p.Range, "Plugin not usable",
				fmt.Sprintf("%s is not in the package of this module, %s.", p.Source, m.root)))
			continue
		}
		l.required[p.Name] = p
	}
}

func (mi *moduleInstance) address(n *node, key addr.Key) addr.Block {
	return addr.Block{Module: mi.path, Kind: n.block.Kind, Plugin: n.block.Plugin, Name: n.block.Name, Key: key}
}
