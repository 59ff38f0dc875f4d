package decode

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/recipe-rl/recipe/schema/function"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Blocks may be thousands, and each may name the same large files. A file is gone through once for a loaded recipe, and
// all of them together up to limits.
const (
	maxCode     = 64 << 20 // bytes of all Python files that are read
	maxCodeWork = 32 << 20 // bytes of Python that are gone through, once for each thing that is looked for
	maxRowsWork = 64 << 20 // bytes of files of rows that are gone through
	footerWork  = 8        // a byte of a Parquet file's footer is as much work as so many of text
	maxColumns  = 4096     // of a file with more none are known
	maxGlobs    = 20       // folders in which names like that of a missing file are looked for
	maxNames    = 1000     // of a folder, or of the arguments of a function, that are looked at
)

// facts are what is known of the files of a loaded recipe.
type facts struct {
	mu             sync.Mutex
	code, rowsWork int // so much was spent
	python         map[string]*pythonFacts
	rows           map[string]*rowFacts
	globs          map[string][]string
}

// pythonFacts are what is known of a Python file, by the path that names it.
type pythonFacts struct {
	facts     *facts
	content   []byte
	names     []string // spec.Defines, sorted, each once
	public    []string // of those, the ones that a message names
	digest    string
	functions map[string]*functionFacts
}

// functionFacts are what is known of a function of a file.
type functionFacts struct {
	may       bool   // spec.MayDefine
	literal   string // spec.Literal; empty: it is none
	asked     bool   // for what follows: spec.Parameters
	known     bool
	signature spec.Signature
}

// rowFacts are what is known of a file of rows.
type rowFacts struct {
	columns []string
	rows    int64
	counted bool
	broken  string // what is wrong with it
}

// spend takes work on code. Not ok: too little is left.
func (f *facts) spend(work int) bool {
	f.code += work
	return f.code <= maxCodeWork
}

// of goes through a Python file. Not ok: there is too much code.
func (f *facts) of(path string, content []byte) (*pythonFacts, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.python[path]; known != nil {
		return known, true
	}
	if !f.spend(2 * len(content)) {
		return nil, false
	}
	names := slices.Compact(slices.Sorted(slices.Values(spec.Defines(content))))
	public := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return strings.HasPrefix(name, "_") })
	known := &pythonFacts{facts: f, content: content, names: names, public: public,
		digest: spec.Code{}.Of(content).Digest, functions: map[string]*functionFacts{}}
	if f.python == nil {
		f.python = map[string]*pythonFacts{}
	}
	f.python[path] = known
	return known, true
}

// function looks for a function. Not ok: there is too much code.
func (p *pythonFacts) function(name string) (*functionFacts, bool) {
	p.facts.mu.Lock()
	defer p.facts.mu.Unlock()
	if known := p.functions[name]; known != nil {
		return known, true
	}
	if !p.facts.spend(2 * len(p.content)) {
		return nil, false
	}
	literal, _ := spec.Literal(p.content, name)
	p.functions[name] = &functionFacts{may: spec.MayDefine(p.content, name), literal: literal}
	return p.functions[name], true
}

// parameters is spec.Parameters; not ok, too, where there is too much code.
func (p *pythonFacts) parameters(name string) (spec.Signature, bool) {
	known, ok := p.function(name)
	if !ok {
		return spec.Signature{}, false
	}
	p.facts.mu.Lock()
	defer p.facts.mu.Unlock()
	if !known.asked && p.facts.spend(3*len(p.content)) {
		known.asked = true
		if s, ok := spec.Parameters(p.content, name); ok && len(s.Taken) <= maxNames {
			known.signature, known.known = s, true
		}
	}
	return known.signature, known.known
}

// importsOf are the names in the import statements of a source. Not ok: there is too much code.
func (f *facts) importsOf(source []byte) (names []string, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.spend(len(source)) {
		return nil, false
	}
	for _, m := range importing().FindAllSubmatch(source, -1) {
		for name := range strings.SplitSeq(string(m[1])+string(m[2]), ",") {
			name, _, _ = strings.Cut(strings.TrimSpace(name), " ") // import a as b
			name, _, _ = strings.Cut(name, ".")
			names = append(names, name)
		}
	}
	return names, true
}

// rowsOf goes through a file of rows. What is not found because there is too much is not known.
func (f *facts) rowsOf(file string, files *function.Files) *rowFacts {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.rows[file]; known != nil {
		return known
	}
	known := &rowFacts{}
	if f.rowsWork += workOfRows(file, files); f.rowsWork <= maxRowsWork {
		known.columns = columnsOf(file, files)
		known.rows, known.counted = rowsOf(file, files)
		known.broken = brokenRows(file, files)
	}
	if f.rows == nil {
		f.rows = map[string]*rowFacts{}
	}
	f.rows[file] = known
	return known
}

// like are files beside a missing one that have its ending.
func (f *facts) like(full string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	pattern := filepath.Join(filepath.Dir(full), "*"+filepath.Ext(full))
	if known, ok := f.globs[pattern]; ok || len(f.globs) >= maxGlobs {
		return known
	}
	found, _ := filepath.Glob(pattern)
	if f.globs == nil {
		f.globs = map[string][]string{}
	}
	f.globs[pattern] = found[:min(len(found), maxNames)]
	return f.globs[pattern]
}
