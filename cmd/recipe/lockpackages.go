package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/engine/packages"
	"github.com/recipe-rl/recipe/schema"
)

// addLocked gives a command the --locked flag.
func addLocked(cmd *cobra.Command, v *bool) {
	cmd.Flags().BoolVar(v, "locked", false, "fail when the lock of the plugins' packages would change")
}

// lockPackages makes sure that the packages of a recipe's plugins are locked and on this machine, and says what it
// changed. It does nothing for a recipe without packages. from is a layout to take them from; empty: where the settings
// and the sources say.
func (a *app) lockPackages(ctx context.Context, file, from string, o packages.Options, out io.Writer) error {
	r, _ := schema.Load(file, schema.Options{Environ: a.environ}) // what is wrong with it is said by who loads it next
	if r == nil || !slices.ContainsFunc(r.Required, func(q schema.RequiredPlugin) bool {
		return packages.IsSource(q.Source)
	}) {
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
	changes, err := resolver.Init(ctx, r.File, r.Required, o)
	if err != nil {
		return err
	}
	for _, c := range changes {
		was := ""
		if c.Before != "" {
			was = " (was " + c.Before + ")"
		}
		if _, err := fmt.Fprintf(out, "Locked plugin %s at %s%s, from %s, in %s\n", c.Name, c.Version, was, c.Source,
			schema.LockFile(r.File)); err != nil {
			return err
		}
	}
	return nil
}
