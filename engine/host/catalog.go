package host

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/packages"
	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/kit/script"
	"github.com/recipe-rl/recipe/sdk/protocol"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Catalog knows all plugins: the built-in ones, and those that dev_overrides name by path. It gives the language their
// schemas and the engine their commands. It is safe for concurrent use.
type Catalog struct {
	Program string // version of this program, for required_version; empty: satisfies every constraint
	Build   string // identifies the build of this program, for messages; recorded with each process that runs it
	// additional variables of the engine's environment that every plugin process gets; NAME_* is a family
	Pass []string
	// Prepare makes the Python environment of a plugin that is a Python file, when it has none. Nil: that is an error,
	// whose remedy is `recipe init`.
	Prepare func(sdk.Packages) error
	Store   *packages.Store // where plugins from packages are; nil: such plugins cannot be used
	// Trust is asked before a program is run that a recipe names. Nil: none is.
	Trust       *trust.Gate
	Kubeconfigs []string // files that recipes may name without being asked about
	// Confine is what a Python file is run in that is only asked for its schema; nil: nothing.
	Confine script.Confine

	builtins map[string]*sdk.Definition // by KIND/NAME
	cacheDir string

	mu        sync.Mutex
	dev       map[string]bool                 // names that dev_overrides have
	overrides map[string]string               // plugin name → path of its binary
	packaged  map[string]packaged             // plugin name → its package, by the lock of the last recipe loaded
	schemas   map[string]*schema.PluginSchema // by KIND/NAME, built-in
	external  map[string]*external            // by path
	sources   map[string]*external            // of files and packages, by schema.PluginSchema.Source: all versions loaded
	programs  map[string]*ExecutorProgram     // of executors that were opened
	vouched   sync.Map                        // folders of modules that an identity of the settings has signed
}

var (
	_ schema.Plugins  = (*Catalog)(nil)
	_ schema.Requirer = (*Catalog)(nil)

	_ schema.PackageRequirer = (*Catalog)(nil)
	_ schema.ModuleFinder    = (*Catalog)(nil)

	_ schema.Program   = (*Catalog)(nil)
	_ schema.Validator = (*Catalog)(nil)
)

// NewCatalog makes a catalog. Overrides map the name of a plugin to the path of its binary, and hide built-in plugins
// of that name and of the binary's kind. The schemas of a binary are cached below cacheDir by its digest, so that it is
// started only once to ask for them.
func NewCatalog(builtins []*sdk.Definition, overrides map[string]string, cacheDir string) (*Catalog, error) {
	c := &Catalog{
		builtins: map[string]*sdk.Definition{}, overrides: map[string]string{}, cacheDir: cacheDir,
		schemas: map[string]*schema.PluginSchema{}, external: map[string]*external{},
		sources: map[string]*external{}, dev: map[string]bool{}, packaged: map[string]packaged{},
		programs: map[string]*ExecutorProgram{},
	}
	for _, def := range builtins {
		if c.builtins[def.ID()] != nil {
			return nil, fmt.Errorf("two built-in plugins are named %s", def.ID())
		}
		c.builtins[def.ID()] = def
	}
	for name, path := range overrides {
		absolute, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("dev_overrides: %s = %q: %w", name, path, err)
		}
		c.overrides[name], c.dev[name] = absolute, true
	}
	return c, nil
}

// ProgramVersion implements schema.Program.
func (c *Catalog) ProgramVersion() string { return c.Program }

// ProgramBuild identifies the build of this program.
func (c *Catalog) ProgramBuild() string { return c.Build }

// Require implements schema.Requirer: a recipe names the binary of a plugin by path. dev_overrides take precedence.
func (c *Catalog) Require(name, path string) {
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.dev[name] {
		c.overrides[name] = path
		delete(c.packaged, name)
	}
	if path = c.overrides[name]; script.IsFile(path) {
		delete(c.external, path) // it is being edited: each loaded recipe gets it as it is then
	}
}

// Lookup returns the schema of a plugin; nil when there is none. A binary is started only when its digest is not in the
// cache.
func (c *Catalog) Lookup(k kind.Kind, name string) (*schema.PluginSchema, error) {
	e, err := c.override(k, name)
	if err != nil {
		return nil, err
	}
	if e != nil {
		return e.schema, nil
	}
	id := string(k) + "/" + name
	def := c.builtins[id]
	if def == nil {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.schemas[id]; s != nil {
		return s, nil
	}
	s := builtinSchema(def)
	if s.Digest, err = digestOf(s); err != nil {
		return nil, err
	}
	c.schemas[id] = s
	return s, nil
}

func builtinSchema(def *sdk.Definition) *schema.PluginSchema {
	return &schema.PluginSchema{
		Kind: def.Kind, Name: def.Name, Version: def.Version, Summary: def.Summary, Config: def.Schema,
		Outputs: def.Outputs, Environment: def.Environment,
		Prepares:     slices.Contains(def.Capabilities, protocol.CanPrepare),
		UsesNodes:    slices.Contains(def.Capabilities, protocol.UsesNodes),
		NoTaskScores: def.Kind == kind.Environment && !slices.Contains(def.Capabilities, protocol.EvaluatesTasks),
	}
}

// Packages returns the Python packages that a plugin's program needs.
func (c *Catalog) Packages(k kind.Kind, name string, gpu bool) sdk.Packages {
	if def := c.Definition(k, name); def != nil {
		if def.Packages != nil {
			return def.Packages(gpu)
		}
		return sdk.Packages{}
	}
	e, err := c.override(k, name)
	switch {
	case err != nil || e == nil:
		return sdk.Packages{}
	case gpu:
		return e.packages.GPU
	}
	return e.packages.CPU
}

// Environment is what the process of a plugin gets of environ for a block with that body.
func (c *Catalog) Environment(k kind.Kind, name string, body cty.Value, environ []string) []string {
	named := slices.Clone(c.Pass)
	if s, err := c.Lookup(k, name); err == nil && s != nil {
		named = slices.Concat(named, s.Environment, s.Config.Environment(body))
	}
	return Environment(environ, named...)
}

// Names lists the plugins of a kind, sorted.
func (c *Catalog) Names(k kind.Kind) []string {
	seen := map[string]bool{}
	for _, def := range c.builtins {
		if def.Kind == k {
			seen[def.Name] = true
		}
	}
	c.mu.Lock()
	named := slices.AppendSeq(slices.Collect(maps.Keys(c.overrides)), maps.Keys(c.packaged))
	c.mu.Unlock()
	for _, name := range named {
		if e, err := c.override(k, name); err == nil && e != nil {
			seen[name] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// Definition returns the definition of a built-in plugin or of a Python file, which can validate and plan in this
// process; nil for a plugin that is a separate binary.
func (c *Catalog) Definition(k kind.Kind, name string) *sdk.Definition {
	e, err := c.override(k, name)
	switch {
	case err != nil:
		return nil
	case e != nil:
		return e.def
	}
	return c.builtins[string(k)+"/"+name]
}

// Validate implements schema.Validator. A plugin that is a separate binary is not asked: that would start it.
func (c *Catalog) Validate(k kind.Kind, name string, config cty.Value) ([]spec.Problem, error) {
	def := c.Definition(k, name)
	if def == nil {
		return nil, nil
	}
	return def.Validate(config)
}

// Command returns how to start a plugin's process: its argv, and environment variables to add. Source is that of the
// plugin's schema: a Python file is run as it was when that was read, whatever has become of it since.
func (c *Catalog) Command(k kind.Kind, name, source string) (argv, env []string, err error) {
	c.mu.Lock()
	e := c.sources[source]
	c.mu.Unlock()
	if e == nil {
		if e, err = c.override(k, name); err != nil {
			return nil, nil, err
		}
	}
	if e != nil {
		if err := c.allowRun(e); err != nil {
			return nil, nil, err
		}
	}
	if e != nil && e.check != nil {
		if err := e.check(); err != nil {
			return nil, nil, err
		}
	}
	if e != nil && e.file == nil {
		return []string{e.path}, nil, nil
	}
	if e != nil {
		argv, variable, err := Builtin(k, name)
		return argv, []string{variable, protocol.SourceKey + "=" + e.file.Record()}, err
	}
	if c.builtins[string(k)+"/"+name] == nil {
		return nil, nil, fmt.Errorf("there is no %s plugin %q; known are %v", k, name, c.Names(k))
	}
	argv, variable, err := Builtin(k, name)
	return argv, []string{variable}, err
}

// override returns the plugin that dev_overrides or a recipe name, by its path or by its package; nil when there is
// none, or when it is of another kind.
func (c *Catalog) override(k kind.Kind, name string) (*external, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.packaged[name]; ok {
		if p.err != nil || p.plugin.schema.Kind != k {
			return nil, p.err
		}
		return p.plugin, nil
	}
	path, ok := c.overrides[name]
	if !ok {
		return nil, nil
	}
	e := c.external[path]
	if e == nil {
		var err error
		if e, err = c.load(name, path, c.dev[name]); err != nil {
			if e, err = c.static(name, path, err); err != nil {
				return nil, fmt.Errorf("plugin %s = %q: %w", name, path, err)
			}
		}
		c.external[path] = e
		if e.file != nil {
			c.sources[e.schema.Source] = e
		}
	}
	if e.schema.Name != name {
		return nil, fmt.Errorf("plugin %s = %q: the binary is %s %q; use that name", name, path,
			e.schema.Kind, e.schema.Name)
	}
	if e.schema.Kind != k {
		return nil, nil
	}
	return e, nil
}

// load describes the plugin at a path. own: the user names it, and not a recipe.
func (c *Catalog) load(name, path string, own bool) (*external, error) {
	if script.IsFile(path) {
		return c.loadFile(name, path, own)
	}
	return c.loadExternal(path, own)
}

// digestOf identifies a plugin's schemas and version: a saved plan is only valid for the same digest.
func digestOf(s *schema.PluginSchema) (string, error) {
	data, err := json.Marshal([]any{s.Kind, s.Name, s.Version, s.Config, s.Outputs})
	if err != nil {
		return "", fmt.Errorf("digest of the schema of %s/%s: %w", s.Kind, s.Name, err)
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}
