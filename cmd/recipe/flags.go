package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/input"
	"github.com/recipe-rl/recipe/schema/parse"
)

// addJSON gives a command the --json flag.
func addJSON(cmd *cobra.Command, v *bool) {
	cmd.Flags().BoolVar(v, "json", false, "print JSON")
}

// recipeFlags are the flags of every command that loads a recipe.
type recipeFlags struct {
	vars     []string
	varFiles []string
	settings []string
	planned  map[string]input.Planned // by apply --plan
	savedID  string                   // of the plan of apply --plan
	opened   map[string][]byte        // of varFiles; nil: not read yet

	fromScratch bool // of plan and apply

	annotations annotations // of commands that report to a CI system
	trust       trustFlags
}

func (f *recipeFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.vars, "var", nil,
		"set a variable, `NAME=VALUE`; repeatable; takes precedence over all other values")
	cmd.Flags().StringArrayVar(&f.varFiles, "var-file", nil,
		"read variables from a `FILE`; later files take precedence; precedence over RECIPE_VAR_NAME and defaults")
	cmd.Flags().StringArrayVar(&f.settings, "set", nil,
		"set an attribute of a block, `ADDRESS.ATTRIBUTE=VALUE`, in place of what the file says; repeatable")
	_ = cmd.MarkFlagFilename("var-file", "tfvars", "hcl", "json")
	f.trust.add(cmd)
}

// options are what the language needs to load the recipe in file.
func (f *recipeFlags) options(a *app, file string) (schema.Options, error) {
	vars, err := variables(f.vars)
	if err == nil {
		err = f.trust.into(a, file)
	}
	if err != nil {
		return schema.Options{}, err
	}
	catalog, err := a.catalog()
	return schema.Options{Vars: vars, VarFiles: f.varFiles, Opened: f.read(), Planned: f.planned, Set: f.settings,
		Environ: a.environ, Plugins: catalog}, err
}

// read reads what a shell has opened, <(…), the first time that it is asked.
func (f *recipeFlags) read() map[string][]byte {
	if f.opened == nil {
		f.opened = parse.ReadOpened(f.varFiles)
	}
	return f.opened
}

// request is what the engine needs to load the recipe, here or in the engine of a live run.
func (f *recipeFlags) request(a *app, args, targets []string) (session.Request, error) {
	file, err := recipeFile(args)
	if err != nil {
		return session.Request{}, err
	}
	vars, err := variables(f.vars)
	if err == nil {
		err = f.trust.into(a, file)
	}
	if err != nil {
		return session.Request{}, err
	}
	blocks, err := addresses(targets)
	if err != nil {
		return session.Request{}, err
	}
	return session.Request{File: file, Vars: vars, VarFiles: f.varFiles, Opened: f.read(), Planned: f.planned,
		SavedID: f.savedID, Set: f.settings, Environ: a.environ, Targets: blocks,
		FromScratch: f.fromScratch}, nil
}

func variables(given []string) (map[string]input.Value, error) {
	vars := make(map[string]input.Value, len(given))
	for _, g := range given {
		name, value, ok := strings.Cut(g, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--var %q: expected NAME=VALUE, for example --var steps=200", g)
		}
		vars[strings.TrimSpace(name)] = input.Value{Raw: value, Source: "--var"}
	}
	return vars, nil
}

func addresses(given []string) ([]addr.Block, error) {
	blocks := make([]addr.Block, 0, len(given))
	for _, g := range given {
		b, err := addr.Parse(g)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

// addTarget gives a command the --target flag.
func addTarget(cmd *cobra.Command, v *[]string) {
	cmd.Flags().StringArrayVar(v, "target", nil,
		"only the block at `ADDRESS` and the blocks it needs; repeatable")
}

// addFromScratch gives a command the --from-scratch flag.
func addFromScratch(cmd *cobra.Command, f *recipeFlags) {
	cmd.Flags().BoolVar(&f.fromScratch, "from-scratch", false,
		"start trainers at step 0 whose recorded checkpoints are all gone, which is an error otherwise")
}

// addRun adds the flag that selects a run.
func addRun(cmd *cobra.Command, v *string) {
	cmd.Flags().StringVarP(v, "recipe", "r", "",
		"the recipe `FILE` of the run, or its name in recipe runs; needed when there are several runs here")
}

// addPlain adds the flag that switches the live view off.
func addPlain(cmd *cobra.Command, v *bool) {
	cmd.Flags().BoolVar(v, "plain", false, "print lines at a terminal, too, instead of the live view")
}
