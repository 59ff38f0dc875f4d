package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/internal/nearest"
	"github.com/recipe-rl/recipe/sdk"
)

// explainUsage makes commands say what they take, and what to do, when they are given something else.
func explainUsage(root *cobra.Command) {
	root.SetFlagErrorFunc(wrongFlag)
	for _, c := range root.Commands() {
		explainArguments(c)
	}
}

func explainArguments(c *cobra.Command) {
	for _, sub := range c.Commands() {
		explainArguments(sub)
	}
	accept := c.Args
	if accept == nil {
		return
	}
	c.Args = func(cmd *cobra.Command, args []string) error {
		if err := namedByFlag(cmd, args); err != nil {
			return err
		}
		err := accept(cmd, args)
		switch {
		case err == nil:
			return wrongFlags(cmd)
		case errors.As(err, new(*sdk.Error)):
			return err
		case cmd.HasSubCommands():
			return noCommand(cmd, args[0])
		case len(args) > 0:
			if line := withRunAsFlag(cmd, accept, args); line != "" {
				return namedAsArgument(cmd, "run", args[len(args)-1], line)
			}
		}
		return &sdk.Error{
			Summary: fmt.Sprintf("%s takes %s; given: %s", cmd.CommandPath(), argumentsOf(cmd), quoted(args)),
			Remedy:  cmd.CommandPath() + " --help explains it",
		}
	}
}

// namedByFlag explains what plan and apply take as an argument and most commands about a run do not: its recipe.
func namedByFlag(cmd *cobra.Command, args []string) error {
	if cmd.Flags().Lookup("recipe") == nil || strings.Contains(cmd.Use, "FILE") {
		return nil
	}
	for i, arg := range args {
		if strings.HasSuffix(arg, ".hcl") {
			line := slices.Concat([]string{cmd.CommandPath()}, args[:i], args[i+1:])
			if _, rest, takes := strings.Cut(cmd.Use, " "); takes && len(args) == 1 && !strings.HasPrefix(rest, "[") {
				line = append(line, rest) // the argument that it does take is missing
			}
			return namedAsArgument(cmd, "recipe", arg, strings.Join(append(line, "-r", arg), " "))
		}
	}
	return nil
}

// withRunAsFlag is the command with its last argument, which is one too many, as the run's name in -r; empty: there is
// no such run, or the command takes none.
func withRunAsFlag(cmd *cobra.Command, accept cobra.PositionalArgs, args []string) string {
	rest, last := args[:len(args)-1], args[len(args)-1]
	if last == "" || cmd.Flags().Lookup("recipe") == nil || accept(cmd, rest) != nil {
		return ""
	}
	if _, run, err := locateRun(last); err != nil || run == nil {
		return ""
	}
	return strings.Join(slices.Concat([]string{cmd.CommandPath()}, rest, []string{"-r", printable.ShellWord(last)}), " ")
}

func namedAsArgument(cmd *cobra.Command, what, given, instead string) error {
	return &sdk.Error{
		Summary: fmt.Sprintf("%s takes no %s as an argument; given: %q", cmd.CommandPath(), what, given),
		Remedy:  "name the " + what + " by -r: " + instead,
	}
}

// noCommand reports that a group of commands has none of this name.
func noCommand(group *cobra.Command, name string) error {
	var known []string
	for _, c := range group.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}
	return &sdk.Error{
		Summary: fmt.Sprintf("%s has no command %q", group.CommandPath(), name),
		Remedy:  didYouMean(nearest.Name(name, known)) + group.CommandPath() + " --help lists its commands",
	}
}

// wrongFlag names which flag was probably meant, and where the flags of a command are explained.
func wrongFlag(cmd *cobra.Command, err error) error {
	summary, remedy := err.Error(), cmd.CommandPath()+" --help lists its flags"
	var value *pflag.InvalidValueError
	if errors.As(err, &value) {
		summary = wrongValue(value)
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				known = append(known, f.Name)
			}
		})
		if meant := nearestFlag(unknown.GetSpecifiedName(), known); meant != "" {
			remedy = didYouMean("--"+meant) + remedy
		}
	}
	return &sdk.Error{Summary: summary, Remedy: remedy}
}

// flagNames finds the names in what cobra says of flags that are missing or exclude each other. Of a group whose flags
// exclude each other it names all of them, then those that were given.
var flagNames = lazyregexp.New(`"([^"]+)"|\[([^\]]+)\]`)

// wrongFlags names which flags are missing and which exclude each other, before cobra does in words of its own.
func wrongFlags(cmd *cobra.Command) error {
	remedy := cmd.CommandPath() + " --help lists its flags"
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return &sdk.Error{Summary: cmd.CommandPath() + " needs " + flagsIn(err, " and "), Remedy: remedy}
	}
	err := cmd.ValidateFlagGroups()
	switch {
	case err == nil:
		return nil
	case strings.HasPrefix(err.Error(), "at least one"):
		return &sdk.Error{Summary: cmd.CommandPath() + " needs " + flagsIn(err, " or "), Remedy: remedy}
	}
	return &sdk.Error{Summary: cmd.CommandPath() + ": " + flagsIn(err, " and ") + " exclude each other",
		Remedy: "give one of them; " + remedy}
}

func flagsIn(err error, between string) string {
	all := flagNames.FindAllStringSubmatch(err.Error(), -1)
	var names []string
	for _, found := range all {
		if found[2] != "" {
			names = strings.Fields(found[2]) // the last group has those that were given
		} else {
			names = append(names, found[1])
		}
	}
	return "--" + strings.Join(names, between+"--")
}

// wrongValue describes what a flag takes, in place of what Go's parsers say.
func wrongValue(err *pflag.InvalidValueError) string {
	expected := map[string]string{
		"int": "a whole number", "int64": "a whole number", "intSlice": "whole numbers with commas between them",
		"float64": "a number", "bool": "true or false", "duration": "a duration such as 30s, 10m or 2h",
	}[err.GetFlag().Value.Type()]
	switch {
	case expected == "":
		return err.Error()
	case errors.Is(err, strconv.ErrRange):
		expected += " of at most 64 bits"
	}
	return fmt.Sprintf("--%s %q: expected %s", err.GetFlag().Name, err.GetValue(), expected)
}

// nearestFlag also finds what was written out or cut short: --language for --lang.
func nearestFlag(given string, known []string) string {
	if given == "yes" && slices.Contains(known, "auto-approve") { // as apt and conda have it
		return "auto-approve"
	}
	if near := nearest.Name(given, known); near != "" {
		return near
	}
	for _, name := range known {
		if len(given) > 1 && (strings.HasPrefix(given, name) || strings.HasPrefix(name, given)) {
			return name
		}
	}
	return ""
}

// argumentsOf are the arguments of a command, as its help has them.
func argumentsOf(cmd *cobra.Command) string {
	if _, arguments, some := strings.Cut(cmd.Use, " "); some {
		return arguments
	}
	return "no arguments"
}

func quoted(args []string) string {
	if len(args) == 0 {
		return "none"
	}
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = strconv.Quote(a)
	}
	return strings.Join(out, " ")
}

func didYouMean(name string) string {
	if name == "" {
		return ""
	}
	return "did you mean " + name + "? "
}
