package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/packages"
	"github.com/recipe-rl/recipe/engine/python"
	"github.com/recipe-rl/recipe/engine/tracking"
	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	"github.com/recipe-rl/recipe/sdk/kit/script"
)

func newInit(a *app) *cobra.Command {
	var (
		recipe  recipeFlags
		gpu     string
		from    string
		locked  packages.Options
		timeout time.Duration
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Fetch and lock a recipe's plugins and modules, and create its Python environments",
		Long: `Fetch the packages that required_plugins and module blocks name by an oci:// or https:// source, check them, and
write the versions and digests of all platforms to NAME.lock.hcl beside the recipe NAME.hcl. What is locked stays at its
version; --upgrade chooses the newest allowed one. Commit the lock: everybody gets the same packages. Of each package it
says where it was fetched from (the source, a mirror, a layout), or that it is on this machine already.

Then create the Python environments of a recipe's blocks and trackers, with uv: for a block with
runtime { requirements = … } with these, for a block without a runtime with the pinned packages of its plugin (vLLM for
GPUs where there is one, else its build for CPUs). A block that names an interpreter or a virtual environment needs
none. Environments are stored in the user's cache, shared by recipes with the same packages, and created once; a
repeated call is cheap, also after an interruption.

A plugin that is a Python file with metadata in a comment (PEP 723), or with a pyproject.toml beside it, gets the
packages listed there, at the versions in the lock file beside it, which is written when there is none.

Requirements may name wheels and folders of packages, relative to the recipe ("./mypkg"). Such an environment contains
a copy of the folder: after a change, run recipe init again before the block restarts. Edits of a package that is
installed with "-e ./mypkg" apply at the block's next start.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			has, err := hasGPU(gpu)
			if err != nil {
				return err
			}
			catalog, err := a.catalog()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), timeout,
				fmt.Errorf("timed out after %s (--timeout)", timeout))
			defer cancel()
			file, err := recipeFile(args)
			if err != nil {
				return err
			}
			said := a.out
			if asJSON {
				said = a.err
			}
			if err := a.lockPackages(ctx, file, from, locked, true, said); err != nil {
				return err
			}
			// The schema of a plugin that is a Python file is known once the packages that it imports are there.
			made := map[string]bool{}
			catalog.Prepare = func(p sdk.Packages) error { return prepareProject(ctx, a, p, made) }
			r, err := recipe.load(a, args)
			if err != nil {
				return err
			}
			list, err := environments(r, func(b *schema.Block) sdk.Packages {
				return catalog.Packages(b.Addr.Kind, b.Addr.Plugin, has)
			})
			if err != nil {
				return err
			}
			for i, e := range list {
				maker, err := a.maker(catalog, e.Environment, e.Named, r.Dir)
				if err != nil {
					return err
				}
				if list[i].Made, err = maker.Prepare(ctx, e.Environment); err != nil {
					return err
				}
				list[i].Made = list[i].Made || made[e.Dir]
			}
			if asJSON {
				return view.EnvironmentsJSON(a.out, list)
			}
			return view.Environments(a.out, a.style(), list)
		},
	}
	recipe.add(cmd)
	addJSON(cmd, &asJSON)
	cmd.Flags().StringVar(&gpu, "gpu", "auto",
		"packages for a machine with a GPU: auto, yes or no; yes on a login node whose jobs get one")
	addLocked(cmd, &locked.Frozen)
	cmd.Flags().BoolVar(&locked.Upgrade, "upgrade", false, "lock the newest versions that the recipe allows")
	cmd.MarkFlagsMutuallyExclusive("locked", "upgrade")
	cmd.Flags().StringVar(&from, "from", "",
		"take packages from this OCI `LAYOUT` (a folder or a .tar) only, which recipe plugin vendor, pull or build wrote")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Hour, "maximum duration")
	return cmd
}

// maker makes an environment, when all that it would run of the recipe's is trusted. Named: the recipe names the
// packages; of an index it then takes wheels only, unless everything is trusted.
func (a *app) maker(c *host.Catalog, e interpreter.Environment, named bool, dir string) (python.Maker, error) {
	m := python.Maker{Log: a.err, Dir: dir}
	if e.Ready() {
		return m, nil
	}
	uses, err := python.Brings(e, dir)
	if err != nil {
		return m, err
	}
	for _, u := range uses {
		if err := c.Trust.Allow(u); err != nil {
			return m, untrusted(err)
		}
	}
	m.NoBuild = named && len(uses) == 0 && !c.Trust.IsAll()
	err = a.configure(&m, "")
	return m, err
}

// configure keeps uv from reading a configuration of the checkout that is not trusted. own is a file that is.
func (a *app) configure(m *python.Maker, own string) error {
	path := python.Configuration(m.Dir, checkoutOf(filepath.Join(m.Dir, "x")), own)
	err := a.allowRead(path, "read by uv: it may name where packages come from")
	var not *schema.NotTrusted
	if errors.As(err, &not) {
		m.Environ = append(m.Environ, "UV_NO_CONFIG=1")
		fmt.Fprintf(a.err, "%s is not trusted: uv takes no configuration\n", path)
		return nil
	}
	return err
}

// configureProject does so for a project whose digest is trusted, and refuses one that has its lock elsewhere.
func (a *app) configureProject(m *python.Maker, project string) error {
	own, err := filepath.Abs(project)
	if err == nil {
		err = a.configure(m, own)
	}
	if err != nil || script.IsFile(project) {
		return err
	}
	return untrusted(a.allowRead(python.Workspace(m.Dir, checkoutOf(filepath.Join(m.Dir, "x"))),
		"read by uv: it may name another lock for "+project))
}

// allowRead asks about a file of a checkout that uv reads; empty: there is none.
func (a *app) allowRead(path, why string) error {
	if path == "" {
		return nil
	}
	digest, err := trust.OfFile(path)
	if err != nil {
		return err
	}
	return a.gate().Allow(trust.Use{Path: path, Digest: digest, Why: why})
}

// untrusted adds to a refusal what a person can do.
func untrusted(err error) error {
	var not *schema.NotTrusted
	if errors.As(err, &not) {
		return &sdk.Error{Summary: not.Error(), Remedy: not.Remedy(), Err: nil}
	}
	return err
}

// prepareProject locks the packages of a plugin that is a Python file, and makes its environment.
func prepareProject(ctx context.Context, a *app, p sdk.Packages, made map[string]bool) error {
	maker := python.Maker{Log: a.err, Dir: filepath.Dir(p.Project)}
	if !packages.NewStore(packageDir()).Contains(p.Project) { // a package has its lock, which is never changed
		// The digest of the project covers no configuration, which decides as much about what is installed.
		if err := a.configureProject(&maker, p.Project); err != nil {
			return err
		}
		if err := maker.Lock(ctx, p); err != nil {
			return err
		}
	}
	e, _, err := interpreter.Of(sdk.Runtime{}, p, maker.Dir)
	if err != nil {
		return err
	}
	fresh, err := maker.Prepare(ctx, e)
	made[e.Dir] = made[e.Dir] || fresh
	return err
}

func hasGPU(flag string) (bool, error) {
	switch flag {
	case "auto":
		return interpreter.GPU(), nil
	case "yes", "no":
		return flag == "yes", nil
	}
	return false, &sdk.Error{Summary: fmt.Sprintf("--gpu is %q", flag), Remedy: "use auto, yes or no"}
}

// load reads the recipe and prints its mistakes, if it has any.
func (f *recipeFlags) load(a *app, args []string) (*schema.Recipe, error) {
	file, err := recipeFile(args)
	if err != nil {
		return nil, err
	}
	opts, err := f.options(a, file)
	if err != nil {
		return nil, err
	}
	r, diags := schema.Load(file, opts)
	if diags.HasErrors() {
		return nil, a.diagnose(r, diags, a.json)
	}
	return r, nil
}

// environments are those that the recipe's blocks and trackers run in, each once.
func environments(r *schema.Recipe, packages func(*schema.Block) sdk.Packages) ([]view.Environment, error) {
	var list []view.Environment
	index := map[string]int{}
	add := func(block string, runtime sdk.Runtime, packages sdk.Packages) error {
		e, managed, err := interpreter.Of(runtime, packages, r.Dir)
		if err != nil {
			return fmt.Errorf("%s: %w", block, err)
		}
		if !managed {
			return nil
		}
		i, seen := index[e.Dir]
		if !seen {
			i = len(list)
			index[e.Dir] = i
			list = append(list, view.Environment{Environment: e})
		}
		list[i].Named = list[i].Named || len(runtime.Requirements) > 0
		list[i].Blocks = append(list[i].Blocks, block)
		return nil
	}
	for _, b := range r.Blocks {
		if b.Meta.External != nil {
			continue
		}
		var runtime sdk.Runtime
		if b.Meta.Runtime != nil {
			runtime = *b.Meta.Runtime
		}
		if err := add(b.Addr.String(), runtime, packages(b)); err != nil {
			return nil, err
		}
	}
	for _, t := range r.Trackers {
		if err := add("tracking."+t.Tracker+"."+t.Name, t.Runtime, tracking.Packages(t.Tracker)); err != nil {
			return nil, err
		}
	}
	return list, nil
}
