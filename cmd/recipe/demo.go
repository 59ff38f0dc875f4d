package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/recipes"
)

func newDemo(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "demo [FOLDER]",
		Short: "Train a tiny language model on this machine in about a minute",
		Long: `Write a recipe into a folder (default: recipe-demo) and apply it: a tiny language model learns to add. It needs
no GPU, no Python and no network. The recipe and its run stay in the folder.

A second demo in the same folder continues the run if it was stopped. It changes no recipe that you have edited.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			folder := "recipe-demo"
			if len(args) > 0 {
				folder = args[0]
			}
			file, err := writeQuickstart(folder)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(a.out, "The recipe is %s. It is applied without a question, as by:\n  recipe apply "+
				"--auto-approve %[1]s\n", file); err != nil {
				return err
			}
			apply := newApply(a)
			apply.SetContext(cmd.Context())
			if err := apply.Flags().Set("auto-approve", "true"); err != nil {
				return err
			}
			return apply.RunE(apply, []string{file})
		},
	}
}

// writeQuickstart writes the recipe of the demo, unless the folder has one of that name.
func writeQuickstart(folder string) (string, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	file := filepath.Join(folder, "quickstart.hcl")
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return file, nil
	}
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(recipes.Quickstart)
	return file, errors.Join(err, f.Close())
}
