package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/recipe-rl/recipe/engine/packages"
	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	"github.com/recipe-rl/recipe/sdk/kit/script"
)

// packaged is the plugin that a package has, or why it cannot be used.
type packaged struct {
	plugin *external
	err    error
}

// RequirePackage implements schema.PackageRequirer: a plugin is the package that the lock of the recipe names.
// dev_overrides take precedence. Why a package cannot be used is reported when the plugin is looked up.
func (c *Catalog) RequirePackage(recipe string, q parse.Requirement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dev[q.Name] {
		return
	}
	delete(c.overrides, q.Name)
	e, err := c.fromPackage(recipe, q)
	c.packaged[q.Name] = packaged{plugin: e, err: err}
	if e != nil {
		c.sources[e.schema.Source] = e
	}
}

func (c *Catalog) fromPackage(recipe string, q parse.Requirement) (*external, error) {
	if c.Store == nil {
		return nil, errors.New("packages are not available here")
	}
	locked, err := c.Store.Locked(recipe, q)
	if err != nil {
		return nil, err
	}
	if e := c.sources[locked.Source()]; e != nil {
		return e, nil
	}
	var d Document
	if err := json.Unmarshal(locked.Schema, &d); err != nil {
		return nil, fmt.Errorf("read the schema of its package: %w", err)
	}
	if d.Name != q.Name {
		return nil, fmt.Errorf("the package has the %s plugin %q; use that name in required_plugins", d.Kind, d.Name)
	}
	index := locked.Entry.Index
	if c.Store.Vouched(q.Source) {
		index = ""
	}
	if d.Python == nil {
		e, err := d.external("")
		if err != nil {
			return nil, err
		}
		e.index, e.own, e.from = index, index == "", packageName(q, locked)
		// A package of another platform has a schema and no program: the program is looked for when it is to run.
		if _, e.path, err = locked.Tree(); err != nil {
			e.check = func() error { return err }
		} else {
			e.check = locked.Check
		}
		e.schema.Source = locked.Source()
		return e, nil
	}
	folder, _, err := locked.Tree()
	if err != nil {
		return nil, err
	}
	loader := script.Loader{Folder: filepath.Join(c.cacheDir, "environments")}
	f, err := loader.FromPackage(q.Name, folder, locked.Entry.Index, *d.Python)
	if err != nil {
		return nil, err
	}
	if p := (sdk.Packages{Project: f.Project}); c.Prepare != nil && f.Project != "" {
		if index != "" {
			if err := c.Trust.Allow(trust.Use{Path: packageName(q, locked), Digest: index, Why: whyPrepare}); err != nil {
				return nil, err
			}
		}
		if err := c.Prepare(p); err != nil {
			return nil, err
		}
	}
	e, err := definedBy(f)
	if err != nil {
		return nil, err
	}
	e.index, e.own, e.from = index, index == "", packageName(q, locked)
	e.schema.Version, e.schema.Source, e.check = d.Version, locked.Source(), locked.Check
	return e, nil
}

// packageName is what a person is asked about: where a package is from, and its version.
func packageName(q parse.Requirement, l *packages.Locked) string {
	return q.Source + ":" + l.Entry.Version
}

// Module implements schema.ModuleFinder.
func (c *Catalog) Module(recipe string, q parse.Requirement) (folder string, err error) {
	if c.Store == nil {
		return "", errors.New("packages are not available here")
	}
	folder, err = c.Store.Module(recipe, q)
	if err == nil && c.Store.Vouched(q.Source) {
		c.vouched.Store(folder, true)
	}
	return folder, err
}

// Document returns what a package keeps of a plugin that Add has returned. folder is the root of the package, for a
// Python file.
func (c *Catalog) Document(s *schema.PluginSchema, folder string) (d Document, err error) {
	d = Document{Kind: string(s.Kind), Name: s.Name, Version: s.Version, Summary: s.Summary,
		Environment: s.Environment, Prepares: s.Prepares, UsesNodes: s.UsesNodes}
	if d.Config, err = json.Marshal(s.Config); err != nil {
		return d, fmt.Errorf("write the schema of its block: %w", err)
	}
	if d.Outputs, err = json.Marshal(s.Outputs); err != nil {
		return d, fmt.Errorf("write the schema of its outputs: %w", err)
	}
	e, err := c.override(s.Kind, s.Name)
	if err != nil || e == nil {
		return d, err
	}
	if e.file == nil {
		if !e.packages.CPU.Empty() || !e.packages.GPU.Empty() {
			d.Packages = &e.packages
		}
		return d, nil
	}
	p, err := e.file.Packaged(folder)
	d.Python = &p
	return d, err
}

// loadFile describes an environment in a Python file. It runs the file only when it, or its lock, has changed.
func (c *Catalog) loadFile(name, path string, own bool) (*external, error) {
	l := script.Loader{Folder: filepath.Join(c.cacheDir, "environments"), Environ: interpreter.Asking(os.Environ()),
		Prepare: c.Prepare, Confine: c.Confine}
	if !own {
		l.Allow = c.allowPython
	}
	f, err := l.Load(context.Background(), name, path)
	if err != nil {
		return nil, err
	}
	e, err := definedBy(f)
	if err == nil {
		e.own = own
	}
	return e, err
}

// definedBy makes the plugin of a Python file.
func definedBy(f *script.File) (*external, error) {
	def, err := f.Define()
	if err != nil {
		return nil, err
	}
	s := builtinSchema(def)
	s.Source = f.Source()
	if s.Digest, err = digestOf(s); err != nil {
		return nil, err
	}
	return &external{path: f.Path, schema: s, file: f, def: def}, nil
}
