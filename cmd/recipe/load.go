package main

import (
	"context"
	"path/filepath"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/doctor"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/packages"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/sizing"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

// open loads the recipe that a command means and says what is wrong with it. Once that is said, the error is only an
// exit code.
func (a *app) open(ctx context.Context, f *recipeFlags, args, targets []string, asJSON bool) (*session.Session, error) {
	req, err := f.request(a, args, targets)
	if err != nil {
		return nil, err
	}
	catalog, err := a.catalog()
	if err != nil {
		return nil, err
	}
	s, r, diags := session.Open(req, catalog, run.Processes{Catalog: catalog}, a.sizing(ctx, req.File, catalog))
	f.annotations.items = diagnostic.NewReport(diags, nil).Diagnostics
	if err := a.diagnose(r, diags, asJSON); err != nil {
		return s, err
	}
	// Without packages nobody has read the lock: what it demands would be ignored.
	_, err = packages.ReadLock(parse.LockFile(req.File))
	return s, err
}

// sizing is what a plan adds of this machine: what blocks need of it, their GPUs, and what it lacks.
func (a *app) sizing(ctx context.Context, file string, catalog *host.Catalog) session.Sizing {
	local := a.machine(filepath.Dir(file))
	local.Agent = knownAgent
	machine := doctor.Hardware(ctx, local)
	sizes := session.Sizes(catalog, machine)
	return func(r *schema.Recipe, kept sizing.Devices) sizing.Result {
		sized := sizes(r, kept)
		sized.Findings = append(sized.Findings, doctor.Notes(local, machine, r, packagesOf(catalog))...)
		return sized
	}
}

// allowBlocks asks about every program that the blocks of a recipe bring, before any of them starts.
func (a *app) allowBlocks(r *schema.Recipe) error {
	catalog, err := a.catalog()
	if err != nil {
		return err
	}
	return catalog.AllowBlocks(r)
}

// packagesOf names which Python packages a block's plugin needs on this machine.
func packagesOf(catalog *host.Catalog) doctor.Packages {
	gpu := interpreter.GPU()
	return func(b *schema.Block) sdk.Packages { return catalog.Packages(b.Addr.Kind, b.Plugin(), gpu) }
}

// diagnose shows what is wrong with a recipe: to people on standard error, to machines on standard output.
func (a *app) diagnose(r *schema.Recipe, diags hcl.Diagnostics, asJSON bool) error {
	var err error
	switch {
	case len(diags) == 0:
	case asJSON && diags.HasErrors():
		err = view.DiagnosticsJSON(a.out, r, diags)
	case asJSON: // warnings must not stand between a machine and what it asked for
	default:
		err = view.Diagnostics(a.err, a.errStyle(), r, diags)
	}
	if err == nil {
		err = exitOf(diags)
	}
	return err
}
