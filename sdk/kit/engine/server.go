package engine

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	"github.com/recipe-rl/recipe/sdk/kit/nodes"
	"github.com/recipe-rl/recipe/sdk/python"
)

// Server is an inference plugin whose servers are Python programs. The plugin of an engine embeds it, sets its fields,
// and adds Plan and Validate.
type Server[C any] struct {
	// Packages is what the Python of a block needs.
	Packages func(gpu bool) sdk.Packages
	// Extension is a folder "extension" of Python files that servers import, beside the package recipe_sdk.
	Extension fs.FS
	// Describe describes what the kit must know of a configuration. Paths stand as the recipe has them.
	Describe func(C) Spec
	// Program makes what starts the servers of a block.
	Program func(C, Installation) (Program, error)

	mu         sync.Mutex
	supervisor *Supervisor // nil: not started
}

// Installation is what a block's servers are started with, besides its configuration.
type Installation struct {
	Python       string
	GPU          bool              // the machine has one
	Extension    string            // folder for PYTHONPATH
	ChatTemplate string            // file; empty: the model's own
	Formats      Formats           // of tool calls and reasoning, as the chat template has them
	Environment  map[string]string // that the recipe sets
}

// Bytecode is what a program passes on as defaults of Launch.Environment: see interpreter.Bytecode.
func (in Installation) Bytecode(l Launch) map[string]string {
	environ := slices.Clone(l.Environ)
	for name, value := range in.Environment {
		environ = append(environ, name+"="+value)
	}
	return interpreter.Bytecode(in.Python, environ)
}

// Start starts the replicas.
func (s *Server[C]) Start(ctx context.Context, req sdk.Request[C], host inference.Host) (inference.Engine, error) {
	block, spec := BlockOf(req), s.Describe(req.Config)
	program, err := s.prepare(req, &spec)
	if err != nil {
		endEarlier(ctx, block, host, nil)
		return nil, err
	}
	started := Start(ctx, spec, program, block, host)
	s.mu.Lock()
	s.supervisor = started
	s.mu.Unlock()
	return started, nil
}

// Update applies what can change while the servers run: time limits.
func (s *Server[C]) Update(_ context.Context, config C) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.supervisor != nil {
		s.supervisor.SetLimits(s.Describe(config).Limits)
	}
	return nil
}

// UsesNodes implements sdk.NodesUser: each machine of the block has its replicas.
func (*Server[C]) UsesNodes() {}

// checkNodes refuses what several machines cannot do.
func checkNodes(spec Spec, placement sdk.Placement) error {
	if machines := len(nodes.Addresses()); machines > 1 && spec.Replicas > 1 && placement.Count() > 0 {
		return &sdk.Error{
			Summary: fmt.Sprintf("replicas = %d on each of %d machines with GPUs: the servers of a machine would all take its "+
				"first GPU", spec.Replicas, machines),
			Path: cty.GetAttrPath("replicas"),
			Remedy: fmt.Sprintf("leave replicas out and let one server use all GPUs of a machine (tensor or data parallel), "+
				"or set nodes = %d and gpus for one server", spec.Replicas*machines),
		}
	}
	return nil
}

// prepare finds the interpreter, writes the files that servers need, and resolves the paths of the specification.
func (s *Server[C]) prepare(req sdk.Request[C], spec *Spec) (Program, error) {
	spec.Diagnosis.given = settingsOf(req)
	in := Installation{GPU: interpreter.GPU(), Environment: req.Environment}
	err := checkNodes(*spec, req.Placement)
	if err != nil {
		return nil, err
	}
	in.Python, err = interpreter.Find(req.Runtime, s.Packages(in.GPU), req.RecipeDir, func(name string) string {
		return LookupEnv(os.Environ(), req.Environment, name)
	})
	if err != nil {
		return nil, err
	}
	local := IsPath(spec.Model)
	for _, path := range []*string{&spec.Model, &spec.Tokenizer, &spec.Published} {
		*path = ResolvePath(*path, req.RecipeDir)
	}
	if local {
		if _, err := os.Stat(filepath.Join(spec.Model, "config.json")); err != nil {
			return nil, &sdk.Error{Summary: "the model's folder holds no config.json", Detail: spec.Model, Err: err,
				Path: cty.GetAttrPath("model"), Remedy: "correct model; a relative path counts from the recipe's folder"}
		}
	}
	in.Extension = filepath.Join(req.Dir, "python")
	if err := WriteExtension(in.Extension, s.Extension); err != nil {
		return nil, fmt.Errorf("write the Python files of %s: %w", spec.Title, err)
	}
	if in.ChatTemplate, err = spec.ChatTemplate.File(spec.Model, req.RecipeDir, req.Dir); err != nil {
		return nil, err
	}
	in.Formats = spec.ChatTemplate.formats(in.ChatTemplate, spec.Published)
	return s.Program(req.Config, in)
}

// WriteExtension writes what lies in the folder "extension" of source, and the package recipe_sdk, into a folder.
func WriteExtension(folder string, source fs.FS) error {
	tree, err := fs.Sub(source, "extension")
	if err != nil {
		return err
	}
	return python.WriteTree(folder, tree, python.Source())
}
