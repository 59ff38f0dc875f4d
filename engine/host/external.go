package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	"github.com/recipe-rl/recipe/sdk/kit/script"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/protocol"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// external is a plugin that is a separate binary, or an environment in a Python file.
type external struct {
	path   string
	schema *schema.PluginSchema

	packages sdk.PackagesByMachine // of a separate binary: what its program needs of Python

	file  *script.File    // of a Python file
	def   *sdk.Definition // of a Python file
	check func() error    // of a plugin from a package: compares its files before they are run
	unrun bool            // known by the file beside it alone; what a recipe names must be trusted before it runs
	index string          // of a plugin from a package that nobody of the settings has signed: its digest
	from  string          // of a plugin from a package: its source and version
	own   bool            // the user names it, and not a recipe
}

// Document is what is known of a plugin without running it. It is cached for a binary, and part of a package, whose
// format is public. The schemas are JSON from the plugin.
type Document struct {
	Kind        string          `json:"kind"`
	Name        string          `json:"name"`
	Version     string          `json:"version"`
	Summary     string          `json:"summary"`
	Config      json.RawMessage `json:"config"`
	Outputs     json.RawMessage `json:"outputs"`
	Environment []string        `json:"environment,omitempty"`
	Prepares    bool            `json:"prepares,omitempty"`
	UsesNodes   bool            `json:"uses_nodes,omitempty"`
	// Packages are set for a program that needs Python packages.
	Packages *sdk.PackagesByMachine `json:"packages,omitempty"`
	// Python is set for an environment in a Python file.
	Python *script.Packaged `json:"python,omitempty"`
}

// describeTimeout bounds the one start of a binary to learn its schema.
const describeTimeout = 30 * time.Second

func (c *Catalog) loadExternal(path string, own bool) (*external, error) {
	digest, err := fileDigest(path)
	if err != nil {
		return nil, unusable(path, err)
	}
	cached := filepath.Join(c.cacheDir, "schemas", digest+".4.json") // 4: with its Python packages
	if e, err := readDescribed(path, cached); err == nil {
		e.schema.Binary, e.own = "sha256:"+digest, own
		return e, nil
	}
	if !own {
		if err := c.allowFile(path, whySchema); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), describeTimeout)
	defer cancel()
	d, err := describeBinary(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("ask for its description: %w", unusable(path, err))
	}
	e, err := d.external(path)
	if err != nil {
		return nil, err
	}
	e.schema.Binary, e.own = "sha256:"+digest, own
	// Without a cache the binary is started again next time, which is only slower.
	_ = writeDescribed(cached, d)
	return e, nil
}

// unusable adds what to do about a file that cannot be read or run.
func unusable(path string, err error) error {
	name := strings.TrimSuffix(filepath.Base(path), ".exe")
	build := "in its folder, go build -o bin/" + name + " ."
	if filepath.Base(filepath.Dir(path)) == "bin" {
		build = "go build -o bin/" + name + " ., in " + filepath.Dir(filepath.Dir(path))
	}
	remedy := ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		remedy = "build it, if it is a Go program (" + build + "), or correct its path"
	case errors.Is(err, syscall.EISDIR):
		remedy = "name the program, not its folder; if it is a Go program, build it first: " + build
	case errors.Is(err, fs.ErrPermission):
		remedy = "make it a file that you may read and run: chmod u+rx " + path
	case errors.Is(err, syscall.ENOEXEC):
		remedy = "build it for this machine (" + build + "); a plugin in Python is a file whose name ends in .py"
	default:
		return err
	}
	return &sdk.Error{Summary: "it cannot be used", Err: err, Remedy: remedy}
}

func fileDigest(path string) (string, error) {
	f, info, err := regular.Follow(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	if info.Size() > trust.MaxFile {
		return "", fmt.Errorf("%s has more than %d bytes: it is no program", path, int64(trust.MaxFile))
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func readDescribed(path, cached string) (*external, error) {
	data, err := os.ReadFile(cached)
	if err != nil {
		return nil, err
	}
	var d Document
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, err
	}
	return d.external(path)
}

func writeDescribed(cached string, d Document) error {
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(cached), 0o755); err != nil {
		return err
	}
	return renameio.WriteFile(cached, data, 0o644, renameio.WithTempDir(filepath.Dir(cached)))
}

func (d Document) external(path string) (*external, error) {
	config, err := spec.Parse(d.Config)
	if err != nil {
		return nil, fmt.Errorf("the schema of its block: %w", err)
	}
	outputs, err := spec.Parse(d.Outputs)
	if err != nil {
		return nil, fmt.Errorf("the schema of its outputs: %w", err)
	}
	k := kind.Kind(d.Kind)
	if !k.Valid() {
		return nil, fmt.Errorf("its kind is %q; expected one of %v", d.Kind, kind.All())
	}
	if err := protocol.CheckEnvironmentNames(d.Environment); err != nil {
		return nil, fmt.Errorf("the environment variables that it reads: %w", err)
	}
	s := &schema.PluginSchema{
		Kind: k, Name: d.Name, Version: d.Version, Summary: d.Summary, Config: config, Outputs: outputs,
		Environment: d.Environment, Prepares: d.Prepares, UsesNodes: d.UsesNodes,
	}
	if s.Digest, err = digestOf(s); err != nil {
		return nil, err
	}
	e := &external{path: path, schema: s}
	if d.Packages != nil {
		e.packages = *d.Packages
		for _, requirement := range slices.Concat(e.packages.CPU.Requirements, e.packages.GPU.Requirements) {
			if err := interpreter.CheckIndexed(requirement); err != nil {
				return nil, fmt.Errorf("the Python packages that it needs: %w", err)
			}
		}
	}
	return e, nil
}

// describeBinary starts a binary, asks for its description, and ends it.
func describeBinary(ctx context.Context, path string) (d Document, err error) {
	dir, remove, err := temporary.Dir("", "recipe-describe")
	if err != nil {
		return Document{}, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	// Not in Confine: the process that answers has to be the one that was started.
	p, err := Launch(ctx, LaunchSpec{Name: filepath.Base(path), Block: path, Command: []string{path}, Dir: dir,
		Env: interpreter.Asking(os.Environ()), temporary: true})
	if err != nil {
		return Document{}, err
	}
	defer func() { err = errors.Join(err, p.Exit(context.WithoutCancel(ctx))) }()
	r, err := p.rpc.Describe(ctx, &pluginpb.DescribeRequest{})
	if err != nil {
		return Document{}, p.failed("describe", err)
	}
	d = Document{
		Kind: r.GetKind(), Name: r.GetName(), Version: r.GetVersion(), Summary: r.GetSummary(), Config: r.GetSchema(),
		Outputs:     r.GetOutputs(),
		Environment: r.GetEnvironmentVariables(),
		Prepares:    slices.Contains(r.GetCapabilities(), protocol.CanPrepare),
		UsesNodes:   slices.Contains(r.GetCapabilities(), protocol.UsesNodes),
	}
	if packages := r.GetPackages(); len(packages) > 0 {
		err = json.Unmarshal(packages, &d.Packages)
	}
	return d, err
}
