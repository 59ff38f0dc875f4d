package agent

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/recipe-rl/recipe/engine/python"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

// PythonRequest asks for the Python environment of a block.
type PythonRequest struct {
	Runtime sdk.Runtime  `json:"runtime"`
	CPU     sdk.Packages `json:"cpu"` // of the plugin, for a machine without a GPU
	GPU     sdk.Packages `json:"gpu"`
	Project string       `json:"project,omitempty"` // see sdk.Packages, which does not carry it
	Environ []string     `json:"environ,omitempty"` // for uv: which index it uses
}

// PreparePython makes the Python environment of a block on the agent's machine.
func (c *Client) PreparePython(ctx context.Context, r PythonRequest) error {
	_, err := c.ask(ctx, Request{Op: opPython, Python: &r})
	return err
}

// preparePython makes it, unless there is one or the recipe names an interpreter.
func (s *staging) preparePython(ctx context.Context, r PythonRequest) error {
	packages := r.CPU
	if interpreter.GPU() {
		packages = r.GPU
	}
	packages.Project = r.Project
	dir := filepath.Join(s.dir, RecipeFolder)
	e, managed, err := interpreter.Of(r.Runtime, packages, dir)
	if err != nil || !managed || e.Ready() {
		return err
	}
	if _, err := (python.Maker{Log: s.log, Dir: dir, Environ: r.Environ}).Prepare(ctx, e); err != nil {
		return fmt.Errorf("on this machine: %w", err)
	}
	return nil
}
