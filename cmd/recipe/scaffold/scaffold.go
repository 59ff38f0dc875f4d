// Package scaffold writes the first version of a plugin: a module that builds, passes its tests and trains as it is.
package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/internal/nearest"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// The templates end in .tmpl, so that the Go files among them are not part of this module.
//
//go:embed templates
var templates embed.FS

// Plugin describes what to write.
type Plugin struct {
	Kind     kind.Kind
	Name     string // as in a block's header
	Language string // go or python
	Dir      string
	Module   string // path of the Go module
	Version  string // of recipe's module; empty: the author runs go get
	SDK      string // folder with recipe's sources, instead of a released version; empty: none
}

// Go is the language version that modules require, that of recipe itself.
const Go = "1.26.0"

var name = lazyregexp.New(`^[a-z][a-z0-9_-]{0,39}$`)

// Languages are the languages in which a plugin of the kind can be made.
func Languages(k kind.Kind) []string {
	var found []string
	for _, language := range []string{"go", "python"} {
		if _, err := fs.Stat(templates, folder(k, language)); err == nil {
			found = append(found, language)
		}
	}
	return found
}

func folder(k kind.Kind, language string) string { return "templates/" + string(k) + "-" + language }

// CheckKind reports that there is no such kind, and which one was probably meant; nil: there is.
func CheckKind(k kind.Kind) error {
	if k.Valid() {
		return nil
	}
	var known []string
	for _, one := range kind.All() {
		known = append(known, string(one))
	}
	refusal := &sdk.Error{Summary: fmt.Sprintf("%q is not a kind of block; expected one of %v", k, known)}
	if meant := nearest.Name(string(k), known); meant != "" {
		refusal.Remedy = "did you mean " + meant + "?"
	}
	return refusal
}

// Check describes what is wrong with the request; nil: nothing.
func (p Plugin) Check() error {
	if err := CheckKind(p.Kind); err != nil {
		return err
	}
	languages := Languages(p.Kind)
	switch {
	case !name.MatchString(p.Name):
		return &sdk.Error{Summary: fmt.Sprintf("%q is not a valid plugin name", p.Name),
			Remedy: "use at most 40 lower-case letters, digits, - and _, a letter first: it stands in the header of blocks"}
	case slices.Contains(reserved, p.Name):
		return &sdk.Error{Summary: fmt.Sprintf("the name %q is reserved", p.Name),
			Remedy: "choose another: it becomes the name of a module, and this one is taken"}
	case len(languages) == 0:
		return fmt.Errorf("there is no scaffold of a plugin of kind %s; copy one from plugins/ of recipe's sources", p.Kind)
	case !slices.Contains(languages, p.Language):
		return &sdk.Error{Summary: fmt.Sprintf("a plugin of kind %s cannot be written in %s", p.Kind, p.Language),
			Remedy: fmt.Sprintf("use --lang %s; programs that it starts can be in any language",
				strings.Join(languages, " or --lang "))}
	}
	return nil
}

// reserved are names that go.mod or Python take for themselves.
var reserved = []string{"main", "test", "go", "recipe", "sdk", "recipe_sdk", "plugin"}

// Write writes the files and returns their paths below Dir, sorted. It overwrites nothing: a file that is there already
// is an error, and then none is written.
func (p Plugin) Write() ([]string, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	files, err := p.render()
	if err != nil {
		return nil, err
	}
	var paths, taken []string
	for file := range files {
		paths = append(paths, file)
		if _, err := os.Lstat(filepath.Join(p.Dir, file)); !errors.Is(err, fs.ErrNotExist) {
			taken = append(taken, file)
		}
	}
	slices.Sort(paths)
	slices.Sort(taken)
	if len(taken) > 0 {
		return nil, &sdk.Error{Summary: fmt.Sprintf("%s has these files already: %s", p.Dir, strings.Join(taken, ", ")),
			Remedy: "nothing was written; name a folder that is not there: --dir FOLDER"}
	}
	for _, file := range paths {
		if err := create(filepath.Join(p.Dir, file), files[file]); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// create writes a new file; one that has appeared meanwhile is an error.
func create(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("create a folder: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("write a file: %w", err)
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// render fills in the templates of the kind and those that all modules of the language share.
func (p Plugin) render() (map[string][]byte, error) {
	files := map[string][]byte{}
	folders := []string{"templates/common", folder(p.Kind, p.Language)}
	if _, err := fs.Stat(templates, folder(p.Kind, p.Language)+"/main.go.tmpl"); err == nil {
		folders = append(folders, "templates/go")
	}
	for _, dir := range folders {
		err := fs.WalkDir(templates, dir, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := p.fill(file)
			if err != nil {
				return err
			}
			files[p.target(strings.TrimPrefix(file, dir+"/"))] = content
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("fill in the templates of %s in %s: %w", p.Kind, p.Language, err)
		}
	}
	return files, nil
}

// target is where a template's file goes. Names that begin with a dot cannot be embedded by a pattern, so they are
// spelled out here.
func (p Plugin) target(file string) string {
	file = strings.TrimSuffix(file, ".tmpl")
	switch path.Base(file) {
	case "recipe.hcl":
		return path.Join(path.Dir(file), p.Name+".hcl")
	case "plugin.py":
		return path.Join(path.Dir(file), p.Identifier()+".py")
	case "test_plugin.py":
		return path.Join(path.Dir(file), "test_"+p.Identifier()+".py")
	case "gitignore":
		return ".gitignore"
	case "ci.yml":
		return ".github/workflows/test.yml"
	}
	return file
}

// Identifier is the name as Python and Go spell one.
func (p Plugin) Identifier() string { return strings.ReplaceAll(p.Name, "-", "_") }

// Go is the language version for go.mod.
func (p Plugin) Go() string { return Go }

func (p Plugin) fill(file string) ([]byte, error) {
	source, err := templates.ReadFile(file)
	if err != nil {
		return nil, err
	}
	t, err := template.New(file).Delims("[[", "]]").Option("missingkey=error").Parse(string(source))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, p); err != nil {
		return nil, err
	}
	if strings.HasSuffix(file, ".go.tmpl") {
		return format.Source(out.Bytes()) // names of other lengths move comments
	}
	return out.Bytes(), nil
}

// Next are the commands that an author runs after building.
func (p Plugin) Next() []string {
	file := p.Name + ".hcl"
	var lines []string
	if p.Kind == kind.Trainer && p.Language == "python" {
		lines = append(lines, "recipe init "+file)
	}
	if p.Kind == kind.Environment {
		lines = append(lines, fmt.Sprintf("recipe env try %s environment.%s.train", file, p.Name))
	}
	return append(lines, "recipe apply "+file)
}
