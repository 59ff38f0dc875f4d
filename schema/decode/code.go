package decode

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/function"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// codeFiles are the Python files that attributes name. Each is read once for a loaded recipe: a block that restarts an
// hour later gets the content that was applied, not the current content of the file.
type codeFiles struct {
	files *function.Files

	mu    sync.Mutex
	read  map[string]codeFile
	total int // bytes of them
	facts facts

	imported map[string][]Content // by the file that imports them
}

type codeFile struct {
	content []byte
	err     error
}

func (c *codeFiles) load(path string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found, ok := c.read[path]; ok {
		return found.content, found.err
	}
	if c.total > maxCode {
		return nil, fmt.Errorf("the Python files of the recipe have more than %d MiB together", maxCode>>20)
	}
	content, err := c.files.Load(path)
	c.total += len(content)
	if c.read == nil {
		c.read = map[string]codeFile{}
	}
	c.read[path] = codeFile{content, err}
	return content, err
}

// pin checks that the function an attribute names exists, and adds the digest of its file to the value. Values of other
// attributes are returned unchanged.
func (d *Decoder) pin(a *spec.Attribute, v cty.Value, attr *hclsyntax.Attribute, where string) cty.Value {
	if a.Format != spec.FormatCode && a.Format != spec.FormatCallable || v.IsNull() || !v.IsKnown() {
		return v
	}
	plain, marks := v.Unmark()
	refuse := func(summary, detail string) cty.Value {
		d.report(diagnostic.Problem(attr.Expr.Range(), summary, fmt.Sprintf("%q in %s: %s", a.Name, where, detail)))
		return cty.UnknownVal(cty.String).WithMarks(marks)
	}
	code, err := spec.ParseCode(plain.AsString())
	if a.Format == spec.FormatCallable && err != nil {
		found, err := spec.ParseCallable(plain.AsString())
		if err != nil {
			return refuse("Not a function in a file or a module", diagnostic.UpperFirst(err.Error())+".")
		}
		// What of it lies in the recipe's folder counts as part of the value; what is installed has its version.
		d.imported("", []byte("import "+found.Module+"\n"))
		return v
	}
	if err != nil {
		return refuse("Not a function in a file", diagnostic.UpperFirst(err.Error())+".")
	}
	if !filepath.IsAbs(code.File) && !filepath.IsLocal(code.File) {
		return refuse("File outside the recipe's folder", code.File+
			" is outside the folder of the recipe. Move the file into it, or write its absolute path.")
	}
	content, err := d.Shared.code.load(code.File)
	if errors.Is(err, fs.ErrNotExist) {
		d.report(d.notThere(a.Name, code.File, attr.Expr.Range(), where, nil))
		return cty.UnknownVal(cty.String).WithMarks(marks)
	}
	if err != nil {
		return refuse("File not readable", diagnostic.UpperFirst(err.Error())+".")
	}
	known, ok := d.Shared.code.facts.of(code.File, content)
	found, looked := (*functionFacts)(nil), false
	if ok {
		found, looked = known.function(code.Function)
	}
	if !looked || !d.imported(code.File, content) {
		return refuse("Too much code", fmt.Sprintf("The Python files of a recipe together are gone through up to %d MiB, "+
			"once for each function that a block names. Name fewer functions, or split %s.", maxCodeWork>>20, code.File))
	}
	if _, defined := slices.BinarySearch(known.names, code.Function); !found.may && !defined {
		return refuse("Function not found", fmt.Sprintf("%s defines no %s at its top level. It has %s.%s",
			code.File, code.Function, diagnostic.Some(known.public), diagnostic.DidYouMean(code.Function, known.public)))
	}
	if found.literal != "" {
		remedy := "Name a function."
		if a.Format == spec.FormatCallable {
			remedy = "Name a function, or an object or a class with __call__."
		}
		return refuse("Not a function", fmt.Sprintf("%s of %s is %s, which cannot be called. %s", code.Function, code.File,
			diagnostic.Shortened(found.literal), remedy))
	}
	pinned := code
	pinned.Digest = known.digest
	if code.Digest != "" && code.Digest != pinned.Digest {
		return refuse("File has changed", fmt.Sprintf("%s has the SHA-256 %s; the recipe expects %s.",
			code.File, pinned.Digest, code.Digest))
	}
	return cty.StringVal(pinned.String()).WithMarks(marks)
}
