package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	"github.com/recipe-rl/recipe/sdk/kit/script"
)

// The reasons for which a plan and its like run a program or use a file of a recipe.
const (
	whySchema   = "started to ask for its schema"
	whyImport   = "imported for its schema"
	whyRun      = "run as a block"
	whyExecutor = "started to ask it about jobs"
	whyPrepare  = "used to install the Python packages that it names, and to build those that are no wheels"
)

// allowFile asks the gate about the program at a path.
func (c *Catalog) allowFile(path, why string) error {
	if c.isVouched(path) {
		return nil
	}
	digest, err := trust.OfFile(path)
	if err != nil {
		return unusable(path, err)
	}
	return c.Trust.Allow(trust.Use{Path: path, Digest: digest, Why: why})
}

// allowPython asks the gate about a Python file, and returns what of its folder may be imported with it.
func (c *Catalog) allowPython(path, project string) ([]string, error) {
	var beside []string
	if project != "" {
		beside = []string{filepath.Base(project), filepath.Base(interpreter.LockFile(project))}
	}
	digest, files, err := trust.OfPython(path, beside...)
	if err != nil {
		return nil, unusable(path, err)
	}
	use := trust.Use{Path: path, Digest: digest, Why: whyImport, Files: files[1:]}
	if !c.isVouched(path) {
		if err := c.Trust.Allow(use); err != nil {
			return nil, err
		}
	}
	for i, f := range files {
		files[i] = filepath.Join(filepath.Dir(path), f)
	}
	return files, nil
}

// isVouched reports whether a path is in a module that an identity of the settings has signed.
func (c *Catalog) isVouched(path string) (found bool) {
	c.vouched.Range(func(folder, _ any) bool {
		found = trust.Below(path, folder.(string))
		return !found
	})
	return found
}

// allowRun asks whether the program of a plugin may run as a block. What this process was allowed before may start
// again, whatever has become of the file: a run is restarted with a program that its author has built anew.
func (c *Catalog) allowRun(e *external) error {
	switch {
	case e.own || c.isVouched(e.path):
		return nil
	case e.index != "":
		return c.Trust.Allow(trust.Use{Path: e.from, Digest: e.index, Why: whyRun})
	case c.Trust.HasAllowed(e.path):
		return nil
	}
	digest, err := contentDigest(e.path)
	if err != nil {
		return unusable(e.path, err)
	}
	return c.Trust.Allow(trust.Use{Path: e.path, Digest: digest, Why: whyRun})
}

// AllowBlocks asks about every program that the blocks of a recipe bring.
func (c *Catalog) AllowBlocks(r *schema.Recipe) error {
	for _, b := range r.Blocks {
		if b.Meta.External != nil {
			continue
		}
		e, err := c.override(b.Addr.Kind, b.Plugin())
		if err == nil && e != nil {
			err = c.allowRun(e)
		}
		if err == nil && e == nil && b.Addr.Kind == kind.Executor && b.Value.IsWhollyKnown() {
			err = c.allowConfig(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// allowConfig asks about the files that the body of an executor names.
func (c *Catalog) allowConfig(b *schema.Block) error {
	body, _ := b.Value.UnmarkDeep()
	x, err := c.OpenExecutor(b.Plugin(), body, "")
	if w, ok := x.(untrustedExecutor); ok {
		return w.err
	}
	return err
}

// Digests are what this catalog's gate has allowed.
func (c *Catalog) Digests() []string { return c.Trust.Digests() }

// Trusted adds digests that another process of this user has been allowed, for the request that it makes.
func (c *Catalog) Trusted(digests []string) {
	if c.Trust != nil {
		c.Trust.Trust(slices.DeleteFunc(slices.Clone(digests), func(d string) bool { return d == trust.All })...)
	}
}

// Sidecar is the file beside a plugin's program or Python file that says what its block is, so that it need not be run
// to be known.
func Sidecar(path string) string {
	return strings.TrimSuffix(path, filepath.Ext(path)) + ".schema.json"
}

// maxSidecar bounds the file: a schema of a thousand attributes fits.
const maxSidecar = 1 << 20

// sidecar is the form of the file.
type sidecar struct {
	Format   int    `json:"recipe_schema"` // 1
	Describe string `json:"of"`            // digest of what it was written for, as --trust takes it
	Document
}

// sidecarFormat is the version of the form.
const sidecarFormat = 1

// WriteSidecar writes the file for a plugin that a path has, and returns its path.
func (c *Catalog) WriteSidecar(s *schema.PluginSchema) (string, error) {
	e, err := c.override(s.Kind, s.Name)
	if err != nil {
		return "", err
	}
	if e == nil || e.path == "" || c.isPackaged(s.Name) {
		return "", &sdk.Error{Summary: fmt.Sprintf("the %s plugin %q is not at a path that a recipe names", s.Kind, s.Name),
			Remedy: "built-in plugins and packages are known without running them"}
	}
	if s.NotRun != nil {
		return "", s.NotRun
	}
	d, err := c.Document(s, filepath.Dir(e.path))
	if err != nil {
		return "", err
	}
	digest, err := contentDigest(e.path)
	if err != nil {
		return "", err
	}
	text, err := json.MarshalIndent(sidecar{Format: sidecarFormat, Describe: digest, Document: d}, "", "  ")
	if err != nil {
		return "", err
	}
	to := Sidecar(e.path)
	return to, os.WriteFile(to, append(text, '\n'), 0o644) //nolint:gosec // it is committed
}

func (c *Catalog) isPackaged(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.packaged[name]
	return ok
}

// contentDigest is the digest that --trust takes for what is at a path.
func contentDigest(path string) (string, error) {
	if !script.IsFile(path) {
		return trust.OfFile(path)
	}
	project, err := script.ProjectOf(path)
	if err != nil {
		return "", err
	}
	var beside []string
	if project != "" {
		beside = []string{filepath.Base(project), filepath.Base(interpreter.LockFile(project))}
	}
	digest, _, err := trust.OfPython(path, beside...)
	return digest, err
}

// DigestOf is the digest that --trust takes for the program, the Python file or another file at a path.
func DigestOf(path string) (string, error) { return contentDigest(path) }

// static is what is known of a plugin that must not be run: what the file beside it says, which is a stranger's data.
// The error is that of the refusal where there is no such file, or it is of another version or no data of this form.
func (c *Catalog) static(name, path string, refused error) (*external, error) {
	var not *schema.NotTrusted
	if !errors.As(refused, &not) {
		return nil, refused
	}
	text, err := readBounded(Sidecar(path), maxSidecar)
	if err != nil {
		return nil, refused
	}
	var s sidecar
	if err := json.Unmarshal(text, &s); err != nil || s.Format != sidecarFormat || s.Describe != not.Digest ||
		s.Name != name {
		return nil, refused
	}
	e, err := s.known(name, path, not.Digest)
	if err != nil {
		return nil, fmt.Errorf("%w; and %s cannot be used: %w", refused, Sidecar(path), err)
	}
	known := *not
	known.Schema = Sidecar(path)
	e.schema.NotRun = &known
	return e, nil
}

// known makes the plugin of a sidecar. It runs nothing.
func (s sidecar) known(name, path, digest string) (*external, error) {
	if s.Python == nil {
		e, err := s.external(path)
		if err != nil {
			return nil, err
		}
		e.schema.Binary = digest
		return e, nil
	}
	if kind.Kind(s.Kind) != kind.Environment {
		return nil, fmt.Errorf("a Python file is an environment, and its description has the kind %q", s.Kind)
	}
	def, err := script.Define(name, s.Python.Description, script.Source{File: path})
	if err != nil {
		return nil, err
	}
	p := builtinSchema(def)
	if p.Digest, err = digestOf(p); err != nil {
		return nil, err
	}
	return &external{path: path, schema: p, def: def, unrun: true}, nil
}

// readBounded reads a regular file of at most limit bytes.
func readBounded(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("%s is no file of at most %d bytes", path, limit)
	}
	return os.ReadFile(path)
}
