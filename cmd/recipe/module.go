package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/packages"
	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk"
)

func newModule(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "module",
		Short: "Build and publish modules",
		Long: `Build and publish modules: folders with a recipe file, which other recipes call by the address of a registry.
recipe plugin list, pull, sign, verify and vendor take packages of modules, too.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newModuleBuild(a), newModulePush(a))
	return cmd
}

func newModuleBuild(a *app) *cobra.Command {
	var version, out string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "build FOLDER",
		Short: "Build the package of a module",
		Long: `Build the package of a module, as an OCI layout, which recipe plugin sign signs and recipe module push
publishes. It has the files of the folder that are not hidden. The same files give the same digest.`,
		Example: "  recipe module build modules/eval --version 1.2.0 -o dist",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			digest, err := buildModule(cmd.Context(), args[0], version, out)
			if err != nil {
				return err
			}
			return a.sayBuilt(version, digest, out, asJSON)
		},
	}
	cmd.Flags().StringVar(&version, "version", "", "version of the package")
	_ = cmd.MarkFlagRequired("version")
	addOut(cmd, &out)
	addJSON(cmd, &asJSON)
	return cmd
}

func newModulePush(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "push FOLDER|LAYOUT oci://HOST/PATH[:VERSION]",
		Short: "Publish a module in a registry",
		Long: `Publish a module in a registry: the FOLDER of its recipe file, or a LAYOUT that recipe module build has
written. A FOLDER needs the VERSION. Credentials come from the docker configuration (docker login) and its helpers. A
version that is published cannot be changed: locks refuse it.`,
		Example: "  recipe module push modules/eval oci://registry.example.com/acme/eval:1.2.0",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.push(cmd, args, asJSON, func(version, dir string) (string, error) {
				if version == "" {
					return "", &sdk.Error{Summary: args[1] + " names no version",
						Remedy: "write " + args[1] + ":VERSION"}
				}
				_, err := buildModule(cmd.Context(), args[0], version, dir)
				return version, err
			})
		},
	}
	addJSON(cmd, &asJSON)
	return cmd
}

// buildModule writes the package of a module into a layout, and returns its digest.
func buildModule(ctx context.Context, folder, version, out string) (digest string, err error) {
	info, err := os.Stat(folder)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", errors.New(folder + " is no folder: a module is a folder with one recipe file")
	}
	if _, err := parse.FindFile(folder); err != nil {
		return "", err
	}
	files, err := packages.Folder(folder)
	if err != nil {
		return "", err
	}
	index, err := packages.ModuleIndex(version, files)
	if err != nil {
		return "", err
	}
	return writePackage(ctx, out, version, index)
}

// push publishes the package in a layout, or one that build makes in an empty folder. Args are the layout or source,
// and the address.
func (a *app) push(cmd *cobra.Command, args []string, asJSON bool,
	build func(version, dir string) (string, error)) (err error) {
	to, version, err := packages.ParseReference(args[1])
	if err != nil {
		return err
	}
	dir := args[0]
	if !packages.IsLayout(dir) {
		temp, remove, failed := temporary.Dir("", "recipe-push-")
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, remove()) }()
		dir = filepath.Join(temp, "layout")
		if version, err = build(version, dir); err != nil {
			return err
		}
	}
	version, digest, err := packages.Registries{}.Push(cmd.Context(), dir, version, to)
	if err != nil {
		return err
	}
	if asJSON {
		return view.JSON(a.out, map[string]string{"source": to.String(), "version": version, "digest": digest})
	}
	_, err = fmt.Fprintf(a.out, "Published %s:%s, %s\n", to, version, digest)
	return err
}
