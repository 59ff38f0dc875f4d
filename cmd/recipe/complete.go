package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// completer answers what a shell asks when a person presses the tab key. It reads files and records; it runs nothing of
// a recipe.
type completer struct{ app *app }

// addCompletions gives every command the completion of its arguments and flags, by the names that its usage gives them.
func addCompletions(root *cobra.Command, a *app) {
	c := completer{a}
	for _, cmd := range root.Commands() {
		addCompletions(cmd, a)
	}
	if root.ValidArgs == nil && root.ValidArgsFunction == nil {
		if fields := strings.Fields(root.Use); len(fields) > 1 {
			root.ValidArgsFunction = begun(c.arguments(fields[0], fields[1:]))
		}
	}
	for flag, complete := range map[string]cobra.CompletionFunc{"recipe": c.runOrFile, "target": c.target,
		"var": c.variable, "set": c.setting} {
		if f := root.Flags().Lookup(flag); f != nil {
			_ = root.RegisterFlagCompletionFunc(flag, begun(complete))
		}
	}
}

// begun leaves out what does not begin with the text that is there already.
func begun(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
		out, directive := complete(cmd, args, text)
		if directive&cobra.ShellCompDirectiveFilterFileExt == 0 {
			out = slices.DeleteFunc(out, func(s cobra.Completion) bool { return !strings.HasPrefix(s, text) })
		}
		return out, directive
	}
}

// arguments completes the arguments of a command, whose usage names them: the last one repeats when it ends in "…".
func (c completer) arguments(command string, names []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
		n := len(args)
		if last := len(names) - 1; n > last && strings.Contains(names[last], "…") {
			n = last
		}
		if n >= len(names) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		switch name := strings.Trim(names[n], "[]…"); {
		case name == "ADDRESS":
			return c.address(cmd, command, args)
		case name == "FILE" || name == "FILE|FOLDER":
			return []cobra.Completion{"hcl"}, cobra.ShellCompDirectiveFilterFileExt
		case strings.HasPrefix(name, "RUN"):
			return c.runOrFile(cmd, args, text)
		case name == "KIND":
			return kindNames(), cobra.ShellCompDirectiveNoFileComp
		case name == "NAME" && command == "output":
			return c.output(cmd)
		case name == "NAME" && n > 0 && names[0] == "KIND" && command != "new":
			catalog, err := c.app.catalog()
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return catalog.Names(kind.Kind(args[0])), cobra.ShellCompDirectiveNoFileComp
		case name == "NAME":
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveDefault
	}
}

func kindNames() []cobra.Completion {
	var out []cobra.Completion
	for _, k := range kind.All() {
		out = append(out, string(k))
	}
	return out
}

// address completes a block of the run, or of the recipe where the command takes one. Some commands take one kind only.
func (c completer) address(cmd *cobra.Command, command string, args []string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	var found []string
	switch command {
	case "try":
		found = outlineOf(args[0]).blocks
	case "rescore":
		found = blocksOfRun(args[0])
	default:
		found = blocksOfRun(flagOf(cmd, "recipe"))
	}
	if only := map[string]kind.Kind{"checkpoint": kind.Trainer, "evaluate": kind.Environment,
		"try": kind.Environment, "rescore": kind.Environment}[command]; only != "" {
		found = slices.DeleteFunc(found, func(a string) bool { return !strings.HasPrefix(a, string(only)+".") })
	}
	return slices.DeleteFunc(found, func(a string) bool { return slices.Contains(args, a) }),
		cobra.ShellCompDirectiveNoFileComp
}

func blocksOfRun(file string) []string {
	_, run, err := locateRun(file)
	if err != nil {
		return nil
	}
	var out []string
	for _, a := range slices.SortedFunc(maps.Keys(run.Blocks), addr.Compare) {
		out = append(out, a.String())
	}
	return out
}

// runOrFile completes the name of a run, or the path of a recipe.
func (c completer) runOrFile(_ *cobra.Command, _ []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	directive := cobra.ShellCompDirectiveNoFileComp
	dirs, _ := filepath.Glob(filepath.Join(".recipe", "*", "run.json"))
	for _, path := range dirs {
		out = append(out, filepath.Base(filepath.Dir(path)))
	}
	if list, err := c.app.listRuns(); err == nil {
		for _, r := range list {
			if !r.Gone && !slices.Contains(out, r.Name) {
				out = append(out, r.Name)
			}
		}
	}
	paths, _ := filepath.Glob(text + "*")
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case err != nil:
		case info.IsDir() && !strings.HasPrefix(filepath.Base(path), "."):
			out, directive = append(out, path+"/"), directive|cobra.ShellCompDirectiveNoSpace
		case parse.IsRecipeFile(filepath.Base(path)):
			out = append(out, path)
		}
	}
	if len(out) > 1 {
		directive = cobra.ShellCompDirectiveNoFileComp
	}
	return out, directive
}

// target completes a block of the recipe.
func (completer) target(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return outlineGiven(args).blocks, cobra.ShellCompDirectiveNoFileComp
}

// variable completes NAME= of a variable.
func (completer) variable(_ *cobra.Command, args []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if strings.Contains(text, "=") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for _, name := range outlineGiven(args).variables {
		out = append(out, name+"=")
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// setting completes ADDRESS., and then ATTRIBUTE= of the block's plugin.
func (c completer) setting(_ *cobra.Command, args []string, text string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	var out []cobra.Completion
	for _, block := range outlineGiven(args).blocks {
		if !strings.HasPrefix(text, block+".") {
			out = append(out, block+".")
			continue
		}
		a, err := addr.Parse(block)
		if err != nil {
			continue
		}
		catalog, err := c.app.catalog()
		if err != nil {
			continue
		}
		if d := catalog.Definition(a.Kind, a.Plugin); d != nil && d.Schema != nil { // others would have to be run
			for _, attribute := range d.Schema.Attributes {
				out = append(out, block+"."+attribute.Name+"=")
			}
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// output completes an output, of the recipe or of the run.
func (c completer) output(cmd *cobra.Command) ([]cobra.Completion, cobra.ShellCompDirective) {
	file := flagOf(cmd, "recipe")
	var out []cobra.Completion
	if dir, run, err := locateRun(file); err == nil {
		out = slices.Sorted(maps.Keys(run.Outputs))
		file = recipePath(dir, run)
	}
	for _, name := range outlineOf(file).outputs {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func flagOf(cmd *cobra.Command, name string) string {
	if f := cmd.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}

// outline is what a recipe declares at its top level, as written: a block with count or for_each is one.
type outline struct{ blocks, variables, outputs []string }

// outlineGiven is the outline of the recipe that the arguments of a command mean.
func outlineGiven(args []string) outline {
	file, err := recipeFile(args)
	if err != nil {
		return outline{}
	}
	return outlineOf(file)
}

func outlineOf(file string) (o outline) {
	text, err := parse.ReadFile(file) // it may be a pipe, or a link to a device
	if err != nil {
		return o
	}
	parsed, _ := parse.File(file, text) // names of a file with errors are names, too
	body, ok := parsed.Body.(*hclsyntax.Body)
	if !ok {
		return o
	}
	for _, b := range body.Blocks {
		switch {
		case b.Type == "variable" && len(b.Labels) == 1:
			o.variables = append(o.variables, b.Labels[0])
		case b.Type == "output" && len(b.Labels) == 1:
			o.outputs = append(o.outputs, b.Labels[0])
		case kind.Kind(b.Type).Valid() && len(b.Labels) == 2:
			o.blocks = append(o.blocks, b.Type+"."+strings.Join(b.Labels, "."))
		}
	}
	return o
}
