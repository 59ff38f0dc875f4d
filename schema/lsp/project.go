package lsp

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/hcl/v2"
	"go.lsp.dev/uri"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/parse"
)

// document is a file that is open in the editor, at one version.
type document struct {
	uri     uri.URI
	path    string
	version int32
	text    *text
}

// snapshot is what the editor holds at one moment. It does not change.
type snapshot struct {
	documents map[string]*document // by path
	disk      int                  // counts how often files on the disk are known to have changed
}

// project reads files as the editor shows them, and knows how they call each other. It is safe for concurrent use.
type project struct {
	opts Options

	reading sync.Mutex // requests that arrive together share one reading of a file: it takes much of its size
	kept    int        // bytes of files on the disk, see maxKept; reading is held

	mu        sync.Mutex
	folders   []string
	files     map[string]*known
	workspace []string // recipes on the disk below folders, as of listed
	listed    int
	roots     map[string]*root
	packaged  map[string]map[string]string // folders of modules from packages, by recipe and by module
}

// known is the last version of a file that was read.
type known struct {
	is     identity
	file   *file
	pieces pieces
	kept   int // bytes of its text that count towards maxKept
}

// maxKept bounds the files of the workspace that are kept taken apart, in bytes of their text. Others are as if they
// were empty, until they are opened: a folder may have one large file under a thousand names.
const maxKept = 8 << 20

// identity tells versions of a file from each other.
type identity struct {
	text *text // of an open document; nil: on the disk
	time time.Time
	size int64
}

func newProject(opts Options) *project {
	return &project{opts: opts, files: map[string]*known{}, roots: map[string]*root{}, listed: -1,
		packaged: map[string]map[string]string{}}
}

func identify(s *snapshot, path string) identity {
	if d := s.documents[path]; d != nil {
		return identity{text: d.text}
	}
	info, err := os.Stat(path)
	if err != nil {
		return identity{}
	}
	return identity{time: info.ModTime(), size: info.Size()}
}

// source reads a file as the language does: from the editor if it is open there.
func source(s *snapshot, path string) ([]byte, error) {
	if absolute, err := filepath.Abs(path); err == nil && s.documents[absolute] != nil {
		return []byte(s.documents[absolute].text.src), nil
	}
	return parse.ReadInFolder(path)
}

// file reads what a file declares; nil when it cannot be read.
func (p *project) file(s *snapshot, path string) *file {
	is := identify(s, path)
	latest := func() *known {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.files[path]
	}
	if before := latest(); before != nil && before.is == is {
		return before.file
	}
	p.reading.Lock()
	defer p.reading.Unlock()
	before := latest()
	if before != nil && before.is == is {
		return before.file
	}
	if before == nil {
		before = &known{}
	}
	now, t := &known{is: is}, is.text
	if t == nil {
		src, err := parse.ReadInFolder(path)
		if err != nil {
			return nil
		}
		if len(src) > maxFile || p.kept-before.kept+len(src) > maxKept {
			src = nil
		}
		now.kept = len(src)
		t = newText(string(src))
	}
	p.kept += now.kept - before.kept
	now.file, now.pieces = readFile(t, before.pieces)
	p.mu.Lock()
	p.files[path] = now
	p.mu.Unlock()
	return now.file
}

// moduleCall is a module block and the file that it calls.
type moduleCall struct {
	name   string
	part   part
	block  *block
	source span   // of the folder's name, in the file
	target string // empty when there is no such file
}

// moduleCalls are those of a file. Of modules from packages, the recipe's own ones have a target, once the recipe was
// loaded with its lock.
func (p *project) moduleCalls(f *file, path string) []moduleCall {
	return p.moduleCallsIn(f, path, map[string]string{})
}

// moduleCallsIn is moduleCalls with the files of folders that are known, to which it adds: each costs a look at the
// disk.
func (p *project) moduleCallsIn(f *file, path string, known map[string]string) []moduleCall {
	var out []moduleCall
	for _, part := range f.parts {
		for _, b := range part.top.blocks {
			if b.kind != "module" || len(b.labels) != 1 {
				continue
			}
			c := moduleCall{name: b.labels[0].name, part: part, block: b}
			if a := b.attribute("source"); a != nil {
				folder := strings.Trim(a.value.of(part.src), `"`)
				c.source = a.value.shift(part.base)
				switch {
				case parse.IsPackage(folder):
					folder = p.folderOf(path, c.name)
				case !filepath.IsAbs(folder):
					folder = filepath.Join(filepath.Dir(path), folder)
				}
				target, ok := known[folder]
				if !ok {
					if file, err := parse.FindFile(folder); err == nil {
						target = file
					}
					known[folder] = target
				}
				c.target = target
			}
			out = append(out, c)
		}
	}
	return out
}

// folderOf is the folder of a module from a package; empty: it was not found.
func (p *project) folderOf(recipe, module string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.packaged[recipe][module]
}

// found remembers the folder of a module from a package; empty: it is not to be had.
func (p *project) found(recipe, module, folder string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.packaged[recipe] == nil {
		p.packaged[recipe] = map[string]string{}
	}
	p.packaged[recipe][module] = folder
}

// inPackage reports whether a file belongs to a module from a package.
func (p *project) inPackage(path string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, folders := range p.packaged {
		for _, folder := range folders {
			if folder != "" && strings.HasPrefix(path, folder+string(filepath.Separator)) {
				return true
			}
		}
	}
	return false
}

func (b *body) attribute(name string) *attribute {
	for _, a := range b.attributes {
		if a.name == name {
			return a
		}
	}
	return nil
}

// caller is a file with a module block that calls another.
type caller struct {
	path string
	moduleCall
}

// callers finds the module blocks of the open files and of the workspace that call other files, by the called file.
func (p *project) callers(s *snapshot) map[string][]caller {
	out, known := map[string][]caller{}, map[string]string{}
	for _, candidate := range p.recipes(s) {
		f := p.file(s, candidate)
		if f == nil || !strings.Contains(f.text.src, "module") {
			continue
		}
		for _, c := range p.moduleCallsIn(f, candidate, known) {
			if c.target != "" && c.target != candidate {
				out[c.target] = append(out[c.target], caller{candidate, c})
			}
		}
	}
	return out
}

// maxListed bounds how many files and folders are looked at to find the recipes of the workspace.
const maxListed = 20_000

// recipes lists the recipes of the workspace and those that are open.
func (p *project) recipes(s *snapshot) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listed != s.disk {
		p.listed, p.workspace = s.disk, nil
		seen := 0
		for _, folder := range p.folders {
			_ = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
				if seen++; seen > maxListed {
					return fs.SkipAll
				}
				switch {
				case err != nil:
					return nil // a folder that cannot be read contains no recipe of ours
				case d.IsDir() && path != folder && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules"):
					return fs.SkipDir
				case !d.IsDir() && parse.IsRecipeFile(d.Name()):
					p.workspace = append(p.workspace, path)
				}
				return nil
			})
		}
	}
	out := slices.Clone(p.workspace)
	for path := range s.documents {
		if parse.IsRecipeFile(filepath.Base(path)) && !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return out
}

// maxRoots bounds the recipes that are loaded because a module is part of them.
const maxRoots = 50

// rootsOf are the recipes that a file is part of: those that call it, directly or through other modules, and are not
// called themselves; a file that nothing calls is a recipe by itself. Of many they are the first.
func (p *project) rootsOf(path string, calls map[string][]caller) []string {
	seen := map[string]bool{path: true}
	var tops []string
	for queue := []string{path}; len(queue) > 0; queue = queue[1:] {
		callers := calls[queue[0]]
		if len(callers) == 0 {
			tops = append(tops, queue[0])
		}
		for _, c := range callers {
			if !seen[c.path] {
				seen[c.path] = true
				queue = append(queue, c.path)
			}
		}
	}
	if len(tops) == 0 { // modules that call each other
		return []string{path}
	}
	slices.Sort(tops)
	return tops[:min(len(tops), maxRoots)]
}

// root is a recipe that is loaded again and again while its files change.
type root struct {
	mu      sync.Mutex // held while it is loaded
	plugins catalog
	parts   parse.Parts
	last    *analysis
	served  atomic.Pointer[remembering] // those of the last analysis, for requests that do not wait for the next
}

// analysis is a loaded recipe with everything that validate says about it.
type analysis struct {
	recipe      *schema.Recipe
	diagnostics hcl.Diagnostics
	read        map[string]identity
	disk        int
}

func (p *project) root(path string) *root {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.roots[path]
	if r == nil {
		r = &root{}
		p.roots[path] = r
	}
	return r
}

// analyze loads a recipe as validate does, unless no file of it has changed.
func (p *project) analyze(s *snapshot, path string) *analysis {
	r := p.root(path)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != nil && r.last.current(s) {
		return r.last
	}
	a := &analysis{disk: s.disk, read: map[string]identity{path: identify(s, path),
		parse.LockFile(path): identify(s, parse.LockFile(path))}}
	plugins := r.plugins.open(s, p, path)
	a.load(s, path, p.opts, plugins, &r.parts)
	r.served.Store(plugins)
	for name := range a.recipe.Files {
		if absolute, err := filepath.Abs(name); err == nil && !strings.HasPrefix(name, "<") {
			a.read[absolute] = identify(s, absolute)
		}
	}
	r.last = a
	return a
}

func (a *analysis) current(s *snapshot) bool {
	if a.disk != s.disk {
		return false
	}
	for path, is := range a.read {
		if identify(s, path) != is {
			return false
		}
	}
	return true
}

// load never panics: what the language, or a plugin that it asks, does is reported as an error of the recipe.
func (a *analysis) load(s *snapshot, path string, opts Options, plugins *remembering, parts *parse.Parts) {
	failed := func(detail string) {
		at := hcl.Range{Filename: path, Start: hcl.InitialPos, End: hcl.InitialPos}
		a.recipe = &schema.Recipe{File: path, Files: map[string]*hcl.File{}}
		a.diagnostics = hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Not checked", Detail: detail, Subject: &at}}
	}
	defer func() {
		if r := recover(); r != nil {
			opts.Log("check %s: panic: %v\n%s", path, r, debug.Stack())
			failed(fmt.Sprintf("The language server failed while it checked this recipe (%v). Please report it.", r))
		}
	}()
	o := opts.Language
	if plugins != nil {
		o.Plugins = plugins
	}
	o.Parts = parts
	o.ReadFile = func(path string) ([]byte, error) { return source(s, path) }
	src, err := source(s, path)
	if err != nil {
		failed(fmt.Sprintf("The recipe cannot be read: %s.", err))
		return
	}
	a.recipe, a.diagnostics = schema.LoadSource(path, src, o)
}
