package script

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/renameio/v2"

	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	"github.com/recipe-rl/recipe/sdk/protocol"
	pythonsdk "github.com/recipe-rl/recipe/sdk/python"
)

// File is an environment in a Python file that a recipe names, as it was when it was described.
type File struct {
	Name   string `json:"name"` // of the plugin
	Path   string `json:"path"` // of the Python file, absolute
	Digest string `json:"digest"`
	// Files are the digests of the files that belong to it, by path relative to its folder: itself and what it imports
	// from there.
	Files       map[string]string `json:"files"`
	Project     string            `json:"project,omitempty"` // see sdk.Packages
	Description Description       `json:"description"`

	record string // the file that holds this
}

// Loader describes Python files. What a file says of itself is kept in a folder, by the digests of the file and of its
// lock, with a copy of the source: the file is run again only when one of them has changed.
type Loader struct {
	Folder  string                            // of the cache
	Environ []string                          // for the Python process
	Getenv  func(name string) string          // VIRTUAL_ENV is asked for; nil: os.Getenv
	Prepare func(packages sdk.Packages) error // makes the file's Python environment when there is none; nil: an error then
	// Allow is asked before the file is run, and before its environment is made. It returns the files of the file's
	// folder that may be imported, absolute. Nil: it may run, and import all.
	Allow   func(path, project string) ([]string, error)
	Confine Confine // nil: the file is run as any program
}

// maxText bounds a file that is read: it may lie in a folder of a stranger.
const maxText = 64 << 20

// Load returns the environment in a file, for a plugin of that name. The error names the file and line of a mistake.
func (l Loader) Load(ctx context.Context, name, path string) (*File, error) {
	content, err := regular.FollowFile(path, maxText)
	if err != nil {
		return nil, err
	}
	packages, err := packagesOf(path, content)
	if err != nil {
		return nil, err
	}
	if l.Prepare != nil && !packages.Empty() {
		if _, err := l.allow(path, packages); err != nil {
			return nil, err
		}
		if err := l.Prepare(packages); err != nil {
			return nil, err
		}
	}
	locked, err := interpreter.LockDigest(packages)
	if err != nil {
		return nil, err
	}
	key := digestOf(name, path, digestOf(string(content)), locked, pythonsdk.Digest())
	index := filepath.Join(l.Folder, "index-"+key[:32]+".json")
	if record, err := os.ReadFile(index); err == nil {
		if f, err := Read(string(record)); err == nil && f.Path == path && f.unchanged() {
			return f, nil
		}
	}
	allowed, err := l.allow(path, packages)
	if err != nil {
		return nil, err
	}
	f, err := l.describe(ctx, name, path, packages, locked, allowed)
	if err != nil {
		return nil, err
	}
	if err := f.save(l.Folder); err != nil {
		return nil, fmt.Errorf("cache the description of the plugin: %w; expected a folder that can be written to: HOME "+
			"names it, or on Linux XDG_CACHE_HOME", err)
	}
	// Without the index the file is run again next time, which is only slower.
	_ = renameio.WriteFile(index, []byte(f.record), 0o600, renameio.WithTempDir(l.Folder))
	return f, nil
}

func (l Loader) allow(path string, packages sdk.Packages) ([]string, error) {
	if l.Allow == nil {
		return nil, nil
	}
	return l.Allow(path, packages.Project)
}

func (l Loader) describe(ctx context.Context, name, path string, packages sdk.Packages, locked string,
	allowed []string) (*File, error) {
	getenv := l.Getenv
	if getenv == nil {
		getenv = os.Getenv
	}
	python, err := interpreter.Find(sdk.Runtime{}, packages, filepath.Dir(path), getenv)
	if err != nil {
		return nil, err
	}
	d, err := describe(ctx, asking{python: python, name: name, source: Source{File: path}, environ: l.Environ,
		allowed: allowed, confine: l.Confine})
	if err != nil {
		return nil, err
	}
	f := &File{Name: name, Path: path, Files: map[string]string{}, Project: packages.Project, Description: d.Description}
	for _, file := range append([]string{filepath.Base(path)}, d.Files...) {
		content, err := regular.FollowFile(filepath.Join(filepath.Dir(path), file), maxText)
		if err != nil {
			return nil, err
		}
		f.Files[file] = digestOf(string(content))
	}
	parts := []string{name, locked, pythonsdk.Digest()}
	for _, file := range slices.Sorted(maps.Keys(f.Files)) {
		parts = append(parts, file, f.Files[file])
	}
	f.Digest = digestOf(parts...)
	return f, nil
}

// save writes the description and a copy of the source, in one step each.
func (f *File) save(folder string) error {
	own := filepath.Join(folder, f.Digest[:32])
	for file, digest := range f.Files {
		content, err := regular.FollowFile(filepath.Join(filepath.Dir(f.Path), file), maxText)
		if err != nil {
			return err
		}
		if digestOf(string(content)) != digest {
			return fmt.Errorf("%s changed while it was read; try again", file)
		}
		to := filepath.Join(own, "source", file)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		if err := renameio.WriteFile(to, content, 0o600, renameio.WithTempDir(filepath.Dir(to))); err != nil {
			return err
		}
	}
	return f.write(own)
}

// write writes the description to a folder. The same file in several places shares the folder, not the description.
func (f *File) write(own string) error {
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(own, 0o700); err != nil {
		return err
	}
	f.record = filepath.Join(own, "environment-"+digestOf(f.Path)[:16]+".json")
	return renameio.WriteFile(f.record, data, 0o600, renameio.WithTempDir(own))
}

// Read reads what Load has kept, from the file that Record names.
func Read(record string) (*File, error) {
	data, err := os.ReadFile(record)
	if err != nil {
		return nil, err
	}
	f := &File{record: record}
	if err := json.Unmarshal(data, f); err != nil {
		return nil, fmt.Errorf("read %s: %w", record, err)
	}
	for _, path := range []*string{&f.Path, &f.Project} { // of one that CopyTo has written
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(filepath.Dir(record), *path)
		}
	}
	return f, nil
}

// CopyTo copies the file with what belongs to it, and its description, to a folder that may then be moved. Inside is
// its path relative to that folder where it lies itself on the machine that the folder is moved to; empty: only the
// copy is there. It returns the path of the description.
func (f *File) CopyTo(folder, inside string) (record string, err error) {
	moved := *f
	own := map[string]string{"source/" + filepath.Base(f.Path): f.Path}
	for file := range f.Files {
		own["source/"+filepath.ToSlash(file)] = filepath.Join(filepath.Dir(f.Path), file)
	}
	moved.Path = filepath.Join("source", filepath.Base(f.Path))
	if f.Project != "" && f.Project != f.Path {
		moved.Project = filepath.Join("source", filepath.Base(f.Project))
		own[moved.Project] = f.Project
	} else if f.Project != "" {
		moved.Project = moved.Path
	}
	if f.Project != "" {
		own[interpreter.LockFile(moved.Project)] = interpreter.LockFile(f.Project)
	}
	if err := copyFiles(folder, own); err != nil {
		return "", err
	}
	if rel, err := filepath.Rel(filepath.Dir(f.Path), f.Project); inside != "" && f.Project != "" && err == nil {
		moved.Project = filepath.Join(filepath.Dir(inside), rel)
	}
	moved.Path = cmp.Or(inside, moved.Path)
	data, err := json.Marshal(moved)
	if err != nil {
		return "", err
	}
	record = filepath.Join(folder, "environment.json")
	return record, renameio.WriteFile(record, data, 0o600, renameio.WithTempDir(folder))
}

// copyFiles copies files to a folder, where they have other paths; those that do not exist are left out.
func copyFiles(folder string, from map[string]string) error {
	for to, path := range from {
		content, err := regular.FollowFile(path, maxText)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		to = filepath.Join(folder, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		if err := renameio.WriteFile(to, content, 0o600, renameio.WithTempDir(filepath.Dir(to))); err != nil {
			return err
		}
	}
	return nil
}

// Packaged is a Python file as a package has it: what it says of itself, so that it need not be run to be known.
type Packaged struct {
	File    string            `json:"file"`              // path of the file in the package
	Project string            `json:"project,omitempty"` // path of the file that names its packages, see sdk.Packages
	Files   map[string]string `json:"files"`             // digests, by path relative to the file's folder
	Description
}

// Packaged returns what a package keeps of the file. folder is the root of the package.
func (f *File) Packaged(folder string) (p Packaged, err error) {
	p = Packaged{Files: f.Files, Description: f.Description}
	if p.File, err = filepath.Rel(folder, f.Path); err == nil && f.Project != "" {
		p.Project, err = filepath.Rel(folder, f.Project)
	}
	return p, err
}

// FromPackage returns the environment of a package whose files are below folder. digest identifies the package. It runs
// nothing and reads none of the files.
func (l Loader) FromPackage(name, folder, digest string, p Packaged) (*File, error) {
	for _, path := range []string{p.File, p.Project} {
		if path != "" && !filepath.IsLocal(path) {
			return nil, fmt.Errorf("its description names %q, which is not below its folder", path)
		}
	}
	f := &File{Name: name, Path: filepath.Join(folder, p.File), Digest: digestOf(name, folder, digest, pythonsdk.Digest()),
		Files: p.Files, Description: p.Description}
	if p.Project != "" {
		f.Project = filepath.Join(folder, p.Project)
	}
	return f, f.write(filepath.Join(l.Folder, f.Digest[:32]))
}

// Record is the file from which Read reads it, in another process or an hour later.
func (f *File) Record() string { return f.record }

// Source is the file's name and the hash over it and what belongs to it, for the record of a run.
func (f *File) Source() string { return filepath.Base(f.Path) + "@sha256:" + f.Digest }

// Define makes the definition of the plugin.
func (f *File) Define() (*sdk.Definition, error) {
	return Define(f.Name, f.Description, Source{
		File: f.Path, Copy: filepath.Join(filepath.Dir(f.record), "source", filepath.Base(f.Path)), Digests: f.Files,
		Packages: sdk.Packages{Project: f.Project},
	})
}

func (f *File) unchanged() bool { return unchanged(filepath.Dir(f.Path), f.Files) }

func unchanged(folder string, files map[string]string) bool {
	for file, digest := range files {
		content, err := regular.FollowFile(filepath.Join(folder, file), maxText)
		if err != nil || digestOf(string(content)) != digest {
			return false
		}
	}
	return true
}

// current is what the worker imports: the file where it lies, as long as it is the one that was described, else the
// copy of that one, which then knows itself by the path of the original. A module is imported by its name.
func (s Source) current() (source, original string, err error) {
	switch {
	case s.File == "":
		return s.Module, "", nil
	case s.Copy == "" || unchanged(filepath.Dir(s.File), s.Digests):
		return s.File, "", nil
	case unchanged(filepath.Dir(s.Copy), s.Digests):
		return s.Copy, s.File, nil
	}
	return "", "", &sdk.Error{Summary: s.File + " has changed since the recipe was applied, and the copy of it is gone",
		Remedy: "apply the recipe again to use the file as it is now"}
}

// packagesOf is what the file's own metadata asks for (PEP 723), else the pyproject.toml beside it.
func packagesOf(path string, content []byte) (sdk.Packages, error) {
	needs, err := interpreter.ReadMetadata(content)
	if err != nil {
		return sdk.Packages{}, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	if needs {
		return sdk.Packages{Project: path}, nil
	}
	project := filepath.Join(filepath.Dir(path), "pyproject.toml")
	if _, err := os.Stat(project); err == nil {
		return sdk.Packages{Project: project}, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return sdk.Packages{}, err
	}
	return sdk.Packages{}, nil
}

// ProjectOf is the file that names the packages of a Python file, see sdk.Packages; empty: none.
func ProjectOf(path string) (string, error) {
	content, err := regular.FollowFile(path, maxText)
	if err != nil {
		return "", err
	}
	packages, err := packagesOf(path, content)
	return packages.Project, err
}

func digestOf(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		if len(parts) > 1 {
			_, _ = fmt.Fprintf(h, "%d:", len(part))
		}
		_, _ = h.Write([]byte(part))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// IsFile reports whether the source of a plugin is a Python file.
func IsFile(path string) bool { return filepath.Ext(path) == ".py" }

// Serve serves the environment in a Python file when the process was started for that (see protocol.SourceKey): it does
// not return then, as sdk.Serve.
func Serve() {
	record, ok := os.LookupEnv(protocol.SourceKey)
	if !ok {
		return
	}
	_ = os.Unsetenv(protocol.SourceKey)
	f, err := Read(record)
	if err == nil {
		var def *sdk.Definition
		if def, err = f.Define(); err == nil {
			sdk.ServeBuiltin([]*sdk.Definition{def})
		}
	}
	fmt.Fprintf(os.Stderr, "serve the plugin that %s describes: %v\n", record, err)
	os.Exit(1)
}
