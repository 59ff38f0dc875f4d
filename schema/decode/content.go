package decode

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Content is a file or folder beside the recipe that a block reads, as it was when the recipe was loaded.
type Content struct {
	Attribute string // attribute or nested block of the block that names it
	File      string // as the recipe or the code that imports it writes it
	Digest    string // "sha256:…", or "sampled:…" of a large file
}

// enter notes which part of a block is decoded.
func (d *Decoder) enter(name string, top bool) {
	if top {
		d.part = name
	}
}

// fileEndings are of names that can only mean a file: with another one a name may be a data set of a hub, or a
// template.
const fileEndings = ".jsonl .ndjson .json .csv .tsv .gz .parquet .arrow .py .jinja .j2 .txt .yaml .yml"

// content records what an attribute of FormatFile names. A file that does not exist is refused where the value can mean
// nothing else and the block runs on this machine.
func (d *Decoder) content(a *spec.Attribute, v cty.Value, attr *hclsyntax.Attribute, body *hclsyntax.Body,
	where string) {
	if a.Format != spec.FormatFile || d.Running || v.IsMarked() || v.IsNull() || !v.IsKnown() {
		return
	}
	name := v.AsString()
	if name == "" && a.Required {
		d.report(diagnostic.Problem(attr.Expr.Range(), "No file", fmt.Sprintf("%q in %s is empty; expected the name of "+
			"a file. What it takes: %s.", a.Name, where, strings.TrimSuffix(a.Doc, "."))))
	}
	if name == "" || len(name) > 4096 || strings.ContainsAny(name, "\n{\x00") {
		return
	}
	file := name
	if folder, ok := d.within(a, body); !ok {
		return
	} else if folder != "" && !filepath.IsAbs(name) {
		file = path.Join(folder, name)
	}
	digest, err := d.Shared.code.files.Content(file)
	switch {
	case err == nil:
		d.note(file, digest)
		if d.rows == nil {
			d.rows = map[string]string{}
		}
		d.rows[a.Name] = file
	case !errors.Is(err, fs.ErrNotExist):
		d.report(diagnostic.Problem(attr.Expr.Range(), "File not readable", fmt.Sprintf("%q in %s: %s.", a.Name, where,
			diagnostic.UpperFirst(err.Error()))))
	case !IsFileName(name):
	case placed(body): // it may be on that machine
	default:
		diag := d.notThere(a.Name, file, attr.Expr.Range(), where, nil)
		if filepath.IsAbs(file) { // it may be on the machine of the block
			diag.Severity = hcl.DiagWarning
		}
		d.report(diag)
	}
}

// notThere reports a file that does not exist. A path from the root is often one of another machine, where the recipe
// is applied: it is a warning. Files of the same ending beside it are named, of these those that can be meant.
func (d *Decoder) notThere(attribute, file string, at hcl.Range, where string,
	meant func(path string) bool) *hcl.Diagnostic {
	full, relative := file, ""
	if !filepath.IsAbs(file) {
		full = filepath.Join(d.Shared.code.files.Dir, file)
		folder := d.Shared.code.files.Dir
		if whole, err := filepath.Abs(folder); err == nil {
			folder = whole
		}
		relative = fmt.Sprintf(" (paths are relative to the folder of the recipe, %s)", folder)
	}
	near := d.Shared.code.facts.like(full)
	names := make([]string, 0, len(near))
	for _, n := range near {
		if meant != nil && !meant(n) {
			continue
		}
		name := path.Join(path.Dir(file), filepath.Base(n))
		if strings.HasPrefix(file, "./") {
			name = "./" + name // without it a model is a name in a hub
		}
		names = append(names, name)
	}
	has := ""
	if len(names) > 0 {
		has = fmt.Sprintf(" There is %s.", strings.Join(names[:min(len(names), 8)], ", "))
	}
	return diagnostic.Problem(at, "File not found", fmt.Sprintf("%q in %s: there is no file %s%s.%s%s", attribute, where,
		file,
		relative, has, diagnostic.DidYouMean(file, names)))
}

// within is the folder that a path is relative to, "" for the recipe's. Not ok: it is not known.
func (d *Decoder) within(a *spec.Attribute, body *hclsyntax.Body) (string, bool) {
	attr := body.Attributes[a.Within]
	if a.Within == "" || attr == nil {
		return "", true
	}
	v, _ := d.Values.Value(attr.Expr, d.Ctx) // what is wrong with it is reported where it is decoded
	v, marks := v.Unmark()
	if len(marks) > 0 || !v.IsKnown() || v.IsNull() || v.Type() != cty.String {
		return "", false
	}
	return v.AsString(), true
}

// IsFileName reports whether a value can only mean a file.
func IsFileName(name string) bool {
	for _, prefix := range []string{"/", "./", "../"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	ending := strings.ToLower(path.Ext(name))
	return ending != "" && slices.Contains(strings.Fields(fileEndings), ending)
}

func (d *Decoder) note(file, digest string) {
	one := Content{Attribute: d.part, File: file, Digest: digest}
	if !slices.Contains(d.Reads, one) {
		d.Reads = append(d.Reads, one)
	}
}

// importing finds the names of modules in import statements, also in those within functions.
var importing = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^[ \t]*(?:from[ \t]+\.?([A-Za-z_]\w*)[\w.]*[ \t]+import\b|` +
		`import[ \t]+([A-Za-z_][\w., \t]*))`)
})

// imported records the modules beside a Python file that it imports, and what they import of the same folder. Not ok:
// there is too much code.
func (d *Decoder) imported(file string, source []byte) bool {
	if d.Running {
		return true
	}
	code := d.Shared.code
	code.mu.Lock()
	key := file
	if file == "" { // no file: the statement stands for it
		key = "\n" + string(source)
	}
	found, known := code.imported[key]
	code.mu.Unlock()
	if !known {
		var ok bool
		if found, ok = code.modules(file, source); !ok {
			return false
		}
		code.mu.Lock()
		if code.imported == nil {
			code.imported = map[string][]Content{}
		}
		code.imported[key] = found
		code.mu.Unlock()
	}
	for _, one := range found {
		d.note(one.File, one.Digest)
	}
	return true
}

// modules are the modules beside a Python file that it imports, and what they import of the same folder. Not ok: there
// is too much code.
func (c *codeFiles) modules(file string, source []byte) (found []Content, ok bool) {
	folder := filepath.Dir(file)
	seen := map[string]bool{file: true}
	for rest := [][]byte{source}; len(rest) > 0 && len(seen) < 100; rest = rest[1:] {
		names, ok := c.facts.importsOf(rest[0])
		if !ok {
			return nil, false
		}
		for _, name := range names {
			module := filepath.Join(folder, name+".py")
			if name == "" || seen[module] {
				continue
			}
			seen[module] = true
			if digest, err := c.files.Content(module); err == nil {
				found = append(found, Content{File: module, Digest: digest})
				if text, err := c.load(module); err == nil {
					rest = append(rest, text)
				}
			} else if digest, err := c.files.Content(filepath.Join(folder, name, "__init__.py")); err == nil {
				if whole, err := c.files.Content(filepath.Join(folder, name)); err == nil {
					digest = whole
				}
				found = append(found, Content{File: filepath.Join(folder, name), Digest: digest})
			}
		}
	}
	return found, true
}

// dataEndings are of files that programs mostly read.
const dataEndings = ".jsonl .ndjson .csv .tsv .parquet .arrow"

// namedData warns of environment variables that name a file of data which does not exist: the program that reads it
// fails late, or takes the name for one of a hub. It may be a file that the program writes.
func (d *Decoder) namedData(attr *hclsyntax.Attribute, m Meta, body *hclsyntax.Body) {
	if d.Running || m.SecretNames || placed(body) || hasBlock(body, "external") {
		return
	}
	dir := ""
	if body.Attributes["command_dir"] != nil {
		v, ok := d.within(&spec.Attribute{Within: "command_dir"}, body)
		if !ok {
			return
		}
		dir = v
	}
	for _, name := range slices.Sorted(maps.Keys(m.Environment)) {
		v := m.Environment[name]
		if v.IsMarked() || !v.IsKnown() || v.IsNull() {
			continue
		}
		file := v.AsString()
		ending := strings.ToLower(path.Ext(strings.TrimSuffix(file, ".gz")))
		if len(file) > 4096 || strings.ContainsAny(file, "\n{*?:\x00") || ending == "" ||
			!slices.Contains(strings.Fields(dataEndings), ending) {
			continue
		}
		if !filepath.IsAbs(file) {
			file = path.Join(dir, file)
		}
		full := file
		if !filepath.IsAbs(full) {
			full = filepath.Join(d.Shared.code.files.Dir, file)
		}
		if _, err := os.Stat(full); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		diag := d.notThere("environment_variables."+name, file, attr.Expr.Range(), d.Label, nil)
		diag.Severity = hcl.DiagWarning
		diag.Detail += " A program that reads it fails, or takes the name for one of a hub."
		d.report(diag)
	}
}
