package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/reference"
	"github.com/recipe-rl/recipe/cmd/recipe/scaffold"
	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/packages"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

func newPlugin(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plugin",
		Short: "Show, create, test and publish plugins",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPluginList(a), newPluginSchema(a), newPluginDocs(a), newPluginNew(a), newPluginTest(a),
		newPluginBuild(a), newPluginPush(a), newPluginPull(a), newPluginVendor(a), newPluginSign(a), newPluginVerify(a))
	return cmd
}

func newPluginList(a *app) *cobra.Command {
	var asJSON bool
	var file string
	cmd := &cobra.Command{
		Use:   "list [oci://HOST/PATH]",
		Short: "List every plugin with its kind, version and summary, or the versions of a package",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return a.listVersions(cmd.Context(), args[0], asJSON)
			}
			plugins, err := a.everyPlugin(file)
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
	a.addPluginsOf(cmd, &file)
	return cmd
}

// listVersions prints the versions of a package, newest first.
func (a *app) listVersions(ctx context.Context, text string, asJSON bool) error {
	source, err := packages.ParseSource(text)
	if err != nil {
		return err
	}
	r, err := a.resolver()
	if err != nil {
		return err
	}
	versions, err := r.Versions(ctx, source)
	if err != nil {
		return err
	}
	if asJSON {
		return view.JSON(a.out, versions)
	}
	_, err = fmt.Fprintln(a.out, strings.Join(versions, "\n"))
	return err
}

// addPluginsOf adds the flag that names a recipe whose plugins are known, too.
func (a *app) addPluginsOf(cmd *cobra.Command, file *string) {
	a.trusted.add(cmd)
	cmd.Flags().StringVarP(file, "recipe", "r", "",
		"also know the plugins that this recipe `FILE` names in required_plugins")
	_ = cmd.MarkFlagFilename("recipe", "hcl")
}

func newPluginSchema(a *app) *cobra.Command {
	var outputs, beside bool
	var file string
	cmd := &cobra.Command{
		Use:   "schema KIND NAME",
		Short: "Print the JSON schema of a plugin's block",
		Long: `Print the JSON schema of a plugin's block.

With --sidecar write what the plugin says of its block beside it: words.schema.json for words.py or the program words.
Commit it: where the plugin is not trusted, validate and plan check its blocks by this file, without running it. The
file counts for the content that it was written for.`,
		Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := a.plugin(file, args[0], args[1])
			if err != nil {
				return err
			}
			if beside {
				return a.writeSidecar(p)
			}
			if outputs {
				return view.JSON(a.out, spec.JSONSchema(p.Outputs))
			}
			return view.JSON(a.out, spec.JSONSchema(p.Config))
		},
	}
	cmd.Flags().BoolVar(&outputs, "outputs", false, "of the block's outputs instead of its configuration")
	cmd.Flags().BoolVar(&beside, "sidecar", false, "write NAME.schema.json beside the plugin's program, for where it is "+
		"not trusted")
	cmd.MarkFlagsMutuallyExclusive("outputs", "sidecar")
	a.addPluginsOf(cmd, &file)
	return cmd
}

// writeSidecar writes the file beside a plugin's program.
func (a *app) writeSidecar(p *schema.PluginSchema) error {
	catalog, err := a.catalog()
	if err != nil {
		return err
	}
	path, err := catalog.WriteSidecar(p)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.out, "Wrote "+path)
	return err
}

func newPluginDocs(a *app) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "docs KIND NAME",
		Short: "Print the reference page of a plugin's block",
		Args:  cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := a.plugin(file, args[0], args[1])
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(a.out, reference.Block(p))
			return err
		},
	}
	a.addPluginsOf(cmd, &file)
	return cmd
}

// pluginAt is the plugin whose program is at a path, or the error that it is none. A recipe may give it a name.
func (a *app) pluginAt(path, file string) (*schema.PluginSchema, error) {
	catalog, err := a.catalogOf(file)
	if err != nil {
		return nil, err
	}
	return catalog.Add(path)
}

// catalogOf is the catalog, with the plugins of a recipe where one is named. Mistakes elsewhere in the recipe do not
// matter here.
func (a *app) catalogOf(file string) (*host.Catalog, error) {
	catalog, err := a.catalog()
	if err != nil || file == "" {
		return catalog, err
	}
	if _, err := os.Stat(file); err != nil {
		return nil, fmt.Errorf("read the recipe: %w", err)
	}
	if err := a.trusted.into(a, file); err != nil {
		return nil, err
	}
	_, _ = schema.Load(file, schema.Options{Environ: a.environ, Plugins: catalog})
	return catalog, nil
}

// plugin looks one plugin up by the names that a block's header has.
func (a *app) plugin(file, k, name string) (*schema.PluginSchema, error) {
	if err := scaffold.CheckKind(kind.Kind(k)); err != nil {
		return nil, err
	}
	catalog, err := a.catalogOf(file)
	if err != nil {
		return nil, err
	}
	p, err := catalog.Lookup(kind.Kind(k), name)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, fmt.Errorf("there is no %s plugin %q; known are: %s. -r FILE also knows the plugins of a recipe", k, name,
			strings.Join(catalog.Names(kind.Kind(k)), ", "))
	}
	return p, nil
}

// everyPlugin lists all plugins, by kind and name.
func (a *app) everyPlugin(file string) ([]*schema.PluginSchema, error) {
	catalog, err := a.catalogOf(file)
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
