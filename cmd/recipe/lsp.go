package main

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/build"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/lsp"
)

func newLSP(a *app) *cobra.Command {
	var recipe recipeFlags
	var stdio bool
	cmd := &cobra.Command{
		Use:   "lsp",
		Short: "Serve editors: completion, diagnostics and more over the Language Server Protocol",
		Long: `Serve an editor over the Language Server Protocol, on standard input and output: diagnostics as you type
(those of recipe validate), completion, documentation, definitions, references, renaming, formatting.
Editors start it; docs/editor.md has settings for them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.unasked()
			language, err := recipe.options(a, ".")
			if err != nil {
				return err
			}
			// Each keystroke makes much garbage and little that stays: collecting it seldom halves the time.
			defer debug.SetGCPercent(debug.SetGCPercent(400))
			err = lsp.Serve(cmd.Context(), stream{a.in, a.out}, lsp.Options{
				Language: language,
				Plugins:  func() (schema.Plugins, error) { return a.newCatalog() },
				Version:  build.Read().Version,
				Log:      func(format string, args ...any) { fmt.Fprintf(a.err, format+"\n", args...) },
			})
			if errors.Is(err, lsp.ErrNoShutdown) {
				return exitError(exitFailed) // as the protocol demands; nobody is there to read a message
			}
			return err
		},
	}
	recipe.add(cmd)
	cmd.Flags().BoolVar(&stdio, "stdio", true,
		"use standard input and output; there is no other way, but some editors ask for it")
	_ = cmd.Flags().MarkHidden("stdio")
	return cmd
}

// stream is a connection over what a command reads and writes.
type stream struct {
	io.Reader
	io.Writer
}

// Close ends nothing: the process ends with the command.
func (stream) Close() error { return nil }
