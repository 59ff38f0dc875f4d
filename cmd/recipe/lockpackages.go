package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/engine/packages"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/parse"
)

// addLocked gives a command the --locked flag.
func addLocked(cmd *cobra.Command, v *bool) {
	cmd.Flags().BoolVar(v, "locked", false, "fail when the lock of the recipe's packages would change")
}

// lockPackages makes sure that the packages of a recipe's plugins and modules are locked and on this machine, and says
// what it fetched and changed, with all also what there was already. It does nothing for a recipe without packages.
// from is a layout to take them from; empty: where the settings and the sources say.
func (a *app) lockPackages(ctx context.Context, file, from string, o packages.Options, all bool,
	out io.Writer) error {
	if from != "" {
		if err := packages.CheckLayout(from); err != nil {
			return err
		}
	}
	requires := a.requires(file)
	if !slices.ContainsFunc(requires(nil), func(q parse.Requirement) bool { return packages.IsPackage(q.Source) }) {
		return nil
	}
	resolver, err := a.resolver()
	if err != nil {
		return err
	}
	if from != "" {
		if from, err = filepath.Abs(from); err != nil {
			return err
		}
		resolver.Mirrors = []packages.Mirror{{Location: from}}
	}
	var have []packages.Package
	o.Have = func(p packages.Package) { have = append(have, p) }
	changes, err := resolver.Init(ctx, file, requires, o)
	if err != nil {
		return err
	}
	for _, p := range have {
		if err := sayPackage(out, p, all); err != nil {
			return err
		}
	}
	for _, c := range changes {
		was, version := "", c.Version
		if version == "" {
			version = "its checksum"
		}
		if c.Before != "" && c.Before != c.Version {
			was = " (was " + c.Before + ")"
		}
		if _, err := fmt.Fprintf(out, "Locked %s at %s%s, from %s, in %s\n", c.What, version, was, c.Source,
			parse.LockFile(file)); err != nil {
			return err
		}
	}
	return nil
}

// sayPackage says where a package was fetched from, and with all also that one was on this machine already.
func sayPackage(out io.Writer, p packages.Package, all bool) (err error) {
	name := strings.TrimSpace(p.What + " " + p.Version)
	switch {
	case p.From != "":
		_, err = fmt.Fprintf(out, "Fetched %s from %s\n", name, p.From)
	case all:
		_, err = fmt.Fprintf(out, "Nothing to fetch for %s: it is on this machine, in %s\n", name, packageDir())
	}
	return err
}

// requires lists the plugins and modules that a recipe requires. What is wrong with the recipe is said by who loads it
// next.
func (a *app) requires(file string) packages.Requires {
	return a.requiresAnd(file, func(*schema.Recipe) {})
}

// requiresAnd is requires for one who also needs the recipe, as far as it can be read without plugins and variables.
func (a *app) requiresAnd(file string, seen func(*schema.Recipe)) packages.Requires {
	return func(found packages.Modules) []parse.Requirement {
		r, _ := schema.Load(file, schema.Options{Environ: a.environ, Plugins: found})
		seen(r)
		return slices.Concat(r.Required, r.Modules)
	}
}
