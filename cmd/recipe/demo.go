package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/recipes"
)

func newDemo(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "demo [FOLDER]",
		Short: "Train a tiny language model on this machine in about a minute",
		Long: `Write a recipe into a folder (default: recipe-demo) and apply it: a tiny language model learns to add. It needs
no GPU, no Python and no network. The recipe and its run stay in the folder.

A second demo in the same folder continues the run if it was stopped. It changes no recipe that you have edited, and
asks before it applies one. A folder of another user, or one that every user may write to, is refused.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			folder := "recipe-demo"
			if len(args) > 0 {
				folder = args[0]
			}
			file, own, err := writeQuickstart(folder)
			if err != nil {
				return err
			}
			apply := newApply(a)
			apply.SetContext(cmd.Context())
			said := "The recipe is %s. It is not the one of the demo, so it is applied as by:\n  recipe apply %[1]s\n"
			if own {
				said = "The recipe is %s. It is applied without a question, as by:\n  recipe apply --auto-approve %[1]s\n"
				if err := apply.Flags().Set("auto-approve", "true"); err != nil {
					return err
				}
			}
			if _, err := fmt.Fprintf(a.out, said, printable.ShellWord(file)); err != nil {
				return err
			}
			return apply.RunE(apply, []string{file})
		},
	}
}

// writeQuickstart writes the recipe of the demo, unless the folder has a file with that name. Own: the file is the
// demo's. Any other file may come from a stranger, and would run programs: the user is asked before it is applied.
func writeQuickstart(folder string) (file string, own bool, err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", false, err
	}
	if err := private.Own(folder); err != nil {
		return "", false, err
	}
	file = filepath.Join(folder, "quickstart.hcl")
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		if err := private.Own(file); err != nil {
			return "", false, err
		}
		text, err := regular.FollowFile(file, maxQuickstart)
		return file, err == nil && string(text) == recipes.Quickstart, nil
	}
	if err != nil {
		return "", false, err
	}
	_, err = f.WriteString(recipes.Quickstart)
	return file, true, errors.Join(err, f.Close())
}

// maxQuickstart is how much of a file is read to see whether it is the demo's.
const maxQuickstart = 1 << 20
