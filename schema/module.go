package schema

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// Limits keep a faulty recipe from exhausting the machine. They are far above what a real one needs.
const (
	maxFileBytes   = 16 << 20
	maxLines       = 20_000    // of a file with a heredoc
	maxParts       = 2_000_000 // words and signs of a file: each takes some 300 bytes of the parser
	maxNesting     = 200       // brackets inside brackets
	maxInstances   = 10_000    // of one block or module
	maxTotal       = 20_000    // blocks of a recipe
	maxModuleDepth = 16
	maxModules     = 1_000
)

// module is one module call as declared, without instance keys; the root is the module without a call.
type module struct {
	path     string // "eval.inner"; "" is the root
	source   *source
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

// loader parses files and builds the tree of modules.
type loader struct {
	files    map[string]*hcl.File
	sources  map[string]*source // by absolute path of the file
	modules  []*module
	diags    hcl.Diagnostics
	required map[string]Requirement
	refused  map[string]bool // see recipeDecl.refused
	budget   *budget
	damaged  map[string]bool // files with syntax errors
	readFile func(path string) ([]byte, error)
	parts    *Parts

	recipe   string        // the file, whose lock has the modules from packages
	packaged []Requirement // modules from packages
	finder   ModuleFinder  // nil: there are none
}

// parse reads one file's declarations, once.
func (l *loader) parse(path string, src []byte) *source {
	abs, err := filepath.Abs(path)
	if err != nil {
		abs = path
	}
	if s, ok := l.sources[abs]; ok {
		return s
	}
	s := &source{path: path, dir: filepath.Dir(path), bytes: src}
	l.sources[abs] = s
	if d := unreadable(path, src); d != nil {
		if utf8.Valid(src) { // else there is nothing to show
			l.files[path] = &hcl.File{Bytes: src}
		}
		l.diags = append(l.diags, d)
		return s
	}
	file, diags := l.parts.parse(path, src)
	l.files[path] = file
	l.diags = append(l.diags, diags...)
	l.damaged[path] = diags.HasErrors()
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return s
	}
	l.diags = append(l.diags, l.budget.guard(body)...)
	if d := carriageReturns(path, src); d != nil {
		l.diags = append(l.diags, d)
	}
	declared, declDiags := declare(path, s.dir, src, body)
	*s = *declared
	l.diags = append(l.diags, declDiags...)
	return s
}

// read finds and parses the recipe file of a module's folder.
func (l *loader) read(path string) (*source, error) {
	file, err := FindFile(path)
	if err != nil {
		return nil, err
	}
	src, err := l.readFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the recipe: %w", err)
	}
	return l.parse(file, src), nil
}

// FindFile returns the recipe file at path: the file itself, or the only one in a folder.
func FindFile(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("there is no recipe at %s: expected a .hcl file or a folder with one", path)
	case err != nil:
		return "", fmt.Errorf("look for a recipe at %s: %w", path, err)
	}
	if !info.IsDir() {
		return path, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", fmt.Errorf("read the folder %s: %w", path, err)
	}
	var found []string
	for _, e := range entries {
		if !e.IsDir() && IsRecipeFile(e.Name()) {
			found = append(found, e.Name())
		}
	}
	switch len(found) {
	case 1:
		return filepath.Join(path, found[0]), nil
	case 0:
		return "", fmt.Errorf("the folder %s contains no recipe: expected one .hcl file", path)
	}
	return "", fmt.Errorf("the folder %s contains several recipes (%s): name one of them", path, strings.Join(found, ", "))
}

// LockFile is the file beside a recipe's that holds which packages of plugins it uses.
func LockFile(recipe string) string { return strings.TrimSuffix(recipe, ".hcl") + ".lock.hcl" }

// PolicySuffix ends the names of files with conditions about plans.
const PolicySuffix = ".policy.hcl"

// IsRecipeFile distinguishes recipes from lock files, variable files, tests, policies and hidden files, which also end
// in .hcl.
func IsRecipeFile(name string) bool {
	if !strings.HasSuffix(name, ".hcl") || strings.HasPrefix(name, ".") {
		return false
	}
	for _, other := range []string{".lock.hcl", ".vars.hcl", ".test.hcl", PolicySuffix} {
		if strings.HasSuffix(name, other) {
			return false
		}
	}
	return true
}

// grow adds a module and everything below it to the tree.
func (l *loader) grow(m *module) {
	l.modules = append(l.modules, m)
	m.children = map[string]*module{}
	m.declareNodes()
	if m.source.recipe != nil {
		l.require(m)
	}
	for _, call := range m.source.calls {
		if child := l.child(m, call); child != nil {
			m.children[call.name] = child
			l.grow(child)
		}
	}
}

func (l *loader) child(m *module, call *callDecl) *module {
	n := m.calls[call.name]
	if call.source == "" || n == nil || n.call != call {
		return nil
	}
	fail := func(summary, detail string) *module {
		l.diags = append(l.diags, diagnostic.Problem(call.sourceAt, summary, detail))
		return nil
	}
	dir, root := call.source, m.root
	switch {
	case IsPackage(call.source):
		q := call.required
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
	case !isPath(call.source):
		return fail("Unknown module source", fmt.Sprintf(
			"Expected a local folder (./…, ../… or an absolute path), or oci://… or https://…, got %q.", call.source))
	case m.leaves(call.source):
		return fail("Module not usable", fmt.Sprintf("%s is not in the package of this module, %s.", call.source, m.root))
	case !filepath.IsAbs(dir):
		dir = filepath.Join(m.source.dir, dir)
	}
	if m.depth >= maxModuleDepth || len(l.modules) >= maxModules {
		return fail("Too many modules", fmt.Sprintf("Modules nest at most %d deep and a recipe has at most %d of them.",
			maxModuleDepth, maxModules))
	}
	src, err := l.read(dir)
	if err != nil {
		return fail("Module not found", diagnostic.UpperFirst(err.Error())+".")
	}
	for above := m; above != nil; above = above.parent {
		if above.source == src {
			return fail("Module contains itself",
				fmt.Sprintf(
					"%s calls itself through module.%s. A module must not call itself, directly or through others.",
					src.path, pathOf(m, call)))
		}
	}
	return &module{path: pathOf(m, call), source: src, parent: m, call: n, root: root, depth: m.depth + 1}
}

// leaves says whether a path of a module from a package leads out of the package.
func (m *module) leaves(path string) bool {
	if m.root == "" {
		return false
	}
	rel, err := filepath.Rel(m.root, filepath.Join(m.source.dir, path))
	return filepath.IsAbs(path) || err != nil || !filepath.IsLocal(rel)
}

func pathOf(m *module, call *callDecl) string {
	if m.path == "" {
		return call.name
	}
	return m.path + "." + call.name
}

// require collects the required plugins of a module; two modules that disagree are an error.
func (l *loader) require(m *module) {
	for _, name := range m.source.recipe.refused {
		l.refused[name] = true
	}
	for _, p := range m.source.recipe.plugins {
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
		if isPath(p.Source) && m.leaves(p.Source) {
			l.diags = append(l.diags, diagnostic.Problem(p.Range, "Plugin not usable",
				fmt.Sprintf("%s is not in the package of this module, %s.", p.Source, m.root)))
			continue
		}
		l.required[p.Name] = p
	}
}

func (mi *moduleInstance) address(n *node, key addr.Key) addr.Block {
	return addr.Block{Module: mi.path, Kind: n.block.kind, Plugin: n.block.plugin, Name: n.block.name, Key: key}
}
