package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/engine/packages"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk"
)

func newPluginPush(a *app) *cobra.Command {
	var f buildFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "push LAYOUT|PATH oci://HOST/PATH[:VERSION]",
		Short: "Publish the package of a plugin in a registry",
		Long: `Publish the package of a plugin in a registry: one that recipe plugin build has written, or of a PATH that is
built as by that command. Credentials come from the docker configuration (docker login) and its helpers. A version that
is published cannot be changed: locks refuse it.`,
		Example: "  recipe plugin push dist oci://registry.example.com/acme/words",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.push(cmd, args, asJSON, func(version, dir string) (string, error) {
				if f.version == "" {
					f.version = version
				}
				version, _, err := a.buildPackage(cmd.Context(), args[:1], f, dir)
				return version, err
			})
		},
	}
	f.add(cmd)
	addJSON(cmd, &asJSON)
	return cmd
}

func newPluginPull(a *app) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "pull oci://HOST/PATH:VERSION",
		Short: "Copy a package from a registry into an OCI layout",
		Long: `Copy a version of a package, for all platforms, from a registry into an OCI layout, which another machine
can use: recipe init --from LAYOUT, or a mirror in the settings.`,
		Example: "  recipe plugin pull oci://registry.example.com/acme/words:1.2.0 -o packages",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			source, version, err := versionArgument(args[0])
			if err != nil {
				return err
			}
			r, err := a.resolver()
			if err != nil {
				return err
			}
			if err := r.Pull(cmd.Context(), source, version, "", out); err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "Copied %s:%s into %s\n", source, version, out)
			return err
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "packages",
		"the layout: a `FOLDER`, which may have others, or a file whose name ends in .tar")
	return cmd
}

func newPluginVendor(a *app) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "vendor [FILE]",
		Short: "Copy the packages of a recipe's lock into an OCI layout",
		Long: `Copy every package that the lock of a recipe names, for all platforms, into an OCI layout: a folder, or one
file whose name ends in .tar. On a machine without a registry, recipe init --from takes them from there; the lock is the
same.`,
		Example: "  recipe plugin vendor train.hcl -o packages.tar\n  recipe init train.hcl --from packages.tar",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := recipeFile(args)
			if err != nil {
				return err
			}
			lock, err := packages.ReadLock(parse.LockFile(file))
			if err != nil {
				return err
			}
			if len(lock.Plugins)+len(lock.Modules) == 0 {
				return &sdk.Error{Summary: parse.LockFile(file) + " names no package",
					Remedy: "run recipe init first, if the recipe requires packages"}
			}
			r, err := a.resolver()
			if err != nil {
				return err
			}
			if err := r.Vendor(cmd.Context(), lock, out); err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "Copied %s into %s\n",
				counted(len(lock.Plugins)+len(lock.Modules), "package"), out)
			return err
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "packages", "the layout: a `FOLDER`, or a file whose name ends in .tar")
	return cmd
}

// counted is a number of things, in words that agree with it.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
