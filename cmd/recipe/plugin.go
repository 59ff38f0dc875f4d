package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/reference"
	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

func newPlugin(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plugin",
		Short: "Show the available plugins",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPluginList(a), newPluginSchema(a), newPluginDocs(a))
	return cmd
}

func newPluginList(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List every plugin with its kind, version and summary",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			plugins, err := a.everyPlugin()
			if err != nil {
				return err
			}
			if asJSON {
				return view.PluginsJSON(a.out, plugins)
			}
			return view.Plugins(a.out, a.style(), plugins)
		},
	}
	addJSON(cmd, &asJSON)
	return cmd
}

func newPluginSchema(a *app) *cobra.Command {
	var outputs bool
	cmd := &cobra.Command{
		Use:   "schema KIND NAME",
		Short: "Print the JSON schema of a plugin's block",
		Args:  cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := a.plugin(args[0], args[1])
			if err != nil {
				return err
			}
			if outputs {
				return view.JSON(a.out, spec.JSONSchema(p.Outputs))
			}
			return view.JSON(a.out, spec.JSONSchema(p.Config))
		},
	}
	cmd.Flags().BoolVar(&outputs, "outputs", false, "of the block's outputs instead of its configuration")
	return cmd
}

func newPluginDocs(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "docs KIND NAME",
		Short: "Print the reference page of a plugin's block",
		Args:  cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := a.plugin(args[0], args[1])
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(a.out, reference.Block(p))
			return err
		},
	}
}

// plugin looks one plugin up by the names that a block's header has.
func (a *app) plugin(k, name string) (*schema.PluginSchema, error) {
	if !kind.Kind(k).Valid() {
		return nil, fmt.Errorf("%q is not a kind of block; expected one of %v", k, kind.All())
	}
	catalog, err := a.catalog()
	if err != nil {
		return nil, err
	}
	p, err := catalog.Lookup(kind.Kind(k), name)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, fmt.Errorf("there is no %s plugin %q; known are: %s", k, name,
			strings.Join(catalog.Names(kind.Kind(k)), ", "))
	}
	return p, nil
}

// everyPlugin lists all plugins, by kind and name.
func (a *app) everyPlugin() ([]*schema.PluginSchema, error) {
	catalog, err := a.catalog()
	if err != nil {
		return nil, err
	}
	var out []*schema.PluginSchema
	for _, k := range kind.All() {
		for _, name := range catalog.Names(k) {
			p, err := catalog.Lookup(k, name)
			if err != nil {
				return nil, err
			}
			out = append(out, p)
		}
	}
	return out, nil
}
