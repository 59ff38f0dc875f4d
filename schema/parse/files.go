package parse

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/recipe-rl/recipe/schema/budget"
)

// Files reads and parses the files of a recipe and of its modules, each once.
type Files struct {
	Shown   map[string]*hcl.File // for diagnostics, by path; also texts of the command line
	Sources map[string]*Source   // by absolute path
	Diags   hcl.Diagnostics      // what is wrong with them

	read    func(path string) ([]byte, error)
	parts   *Parts // nil: files are parsed whole
	budget  *budget.Budget
	damaged map[string]bool // have syntax errors
}

// NewFiles makes a reader of files, whose expressions are charged to a budget.
func NewFiles(b *budget.Budget, read func(path string) ([]byte, error), parts *Parts) *Files {
	return &Files{Shown: map[string]*hcl.File{}, Sources: map[string]*Source{}, damaged: map[string]bool{}, read: read,
		parts: parts, budget: b}
}

// Parse reads one file's declarations.
func (f *Files) Parse(path string, src []byte) *Source {
	abs, err := filepath.Abs(path)
	if err != nil {
		abs = path
	}
	if s, ok := f.Sources[abs]; ok {
		return s
	}
	s := &Source{Path: path, Dir: filepath.Dir(path), Bytes: src}
	f.Sources[abs] = s
	if d := Unreadable(path, src); d != nil {
		if utf8.Valid(src) { // else there is nothing to show
			f.Shown[path] = &hcl.File{Bytes: src}
		}
		f.Diags = append(f.Diags, d)
		return s
	}
	file, diags := f.parts.parse(path, src)
	f.Shown[path] = file
	f.Diags = append(f.Diags, diags...)
	f.damaged[path] = diags.HasErrors()
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return s
	}
	f.Diags = append(f.Diags, f.budget.Guard(body)...)
	if d := carriageReturns(path, src); d != nil {
		f.Diags = append(f.Diags, d)
	}
	declared, declDiags := declare(path, s.Dir, src, body)
	*s = *declared
	f.Diags = append(f.Diags, declDiags...)
	return s
}

// Load finds, reads and parses the recipe file of a module's folder.
func (f *Files) Load(path string) (*Source, error) {
	file, err := FindFile(path)
	if err == nil {
		err = InFolder(file)
	}
	if err != nil {
		return nil, err
	}
	src, err := f.read(file)
	if err != nil {
		return nil, fmt.Errorf("read the recipe: %w", err)
	}
	return f.Parse(file, src), nil
}

// Credible drops reports of missing names in files that the parser could not read completely.
func (f *Files) Credible(diags hcl.Diagnostics) hcl.Diagnostics {
	return slices.DeleteFunc(diags, func(d *hcl.Diagnostic) bool {
		return d.Subject != nil && f.damaged[d.Subject.Filename] &&
			(strings.HasPrefix(d.Summary, "Missing") || strings.HasPrefix(d.Summary, "Undeclared"))
	})
}

// Cover covers a part of a file in what diagnostics quote of it. Lines and columns stay where they are.
func (f *Files) Cover(r hcl.Range) {
	file := f.Shown[r.Filename]
	if file == nil || r.Start.Byte < 0 || r.End.Byte > len(file.Bytes) || r.Start.Byte > r.End.Byte {
		return
	}
	covered := *file // the parsed file may be used by a later load, too
	covered.Bytes = bytes.Clone(file.Bytes)
	for i := r.Start.Byte; i < r.End.Byte; i++ {
		if c := covered.Bytes[i]; c != '\n' && c != '\r' {
			covered.Bytes[i] = '*'
		}
	}
	f.Shown[r.Filename] = &covered
}

// Line is the source line of a range, for the text of another diagnostic.
func (f *Files) Line(r hcl.Range) string {
	file, ok := f.Shown[r.Filename]
	if !ok || r.Start.Byte > len(file.Bytes) {
		return ""
	}
	begin := bytes.LastIndexByte(file.Bytes[:r.Start.Byte], '\n') + 1
	line, _, _ := bytes.Cut(file.Bytes[begin:], []byte("\n"))
	return string(bytes.TrimSpace(line[:min(len(line), 200)]))
}
