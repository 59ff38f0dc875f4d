package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/build"
	"github.com/recipe-rl/recipe/cmd/recipe/scaffold"
	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/sdk/kind"
)

func newPluginNew(a *app) *cobra.Command {
	var p scaffold.Plugin
	cmd := &cobra.Command{
		Use:   "new KIND NAME",
		Short: "Create a plugin that builds, passes its tests and trains",
		Long: `Create a plugin: a folder with a program, its test, a recipe that trains with it, a CI file and a README that
says how to go on. As created it builds, passes its tests and trains; then change it. No file is overwritten. A folder
that it makes is trusted (recipe trust), also after you have changed what is in it.

KIND is ` + kinds() + `. Environments and trainers can be
written in Go or in Python, the other kinds in Go; programs that a plugin starts can be in any language.`,
		Example: "  recipe plugin new environment words\n  recipe plugin new environment words --lang python",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 { // a wrong kind is said also where the name is missing
				if err := scaffold.CheckKind(kind.Kind(args[0])); err != nil {
					return err
				}
			}
			return cobra.ExactArgs(2)(cmd, args)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			p.Kind, p.Name = kind.Kind(args[0]), args[1]
			return a.createPlugin(p)
		},
	}
	cmd.Flags().StringVar(&p.Language, "lang", "go", "the `LANGUAGE` of the plugin: go or python")
	cmd.Flags().StringVar(&p.Dir, "dir", "", "create the files in this `FOLDER` (default: NAME)")
	cmd.Flags().StringVar(&p.Module, "module", "", "`PATH` of the Go module, for example github.com/you/words (default: NAME)")
	cmd.Flags().StringVar(&p.SDK, "sdk", "", "use the SDK in this `FOLDER` with recipe's sources (default: a released "+
		"version, where this program is one, else the sources that it was built from, where it lies in their bin/)")
	return cmd
}

// released is the version of a release, which the Go module proxy has.
var released = lazyregexp.New(`^v\d+\.\d+\.\d+$`)

// kinds are all kinds of block, for the help.
func kinds() string {
	var names []string
	for _, k := range kind.All() {
		if len(scaffold.Languages(k)) > 0 {
			names = append(names, string(k))
		}
	}
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// modulePath is the path of this module.
const modulePath = "github.com/recipe-rl/recipe"

// isSource reports whether a folder holds recipe's sources.
func isSource(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && strings.HasPrefix(string(text), "module "+modulePath+"\n")
}

// checkout returns the folder with recipe's sources in which this program lies, where make build puts it; empty: none.
func checkout() string {
	path, err := os.Executable()
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return ""
	}
	for dir := filepath.Dir(path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if isSource(dir) {
			return dir
		}
	}
	return ""
}

// isEmpty reports whether a folder has nothing in it, or is not there.
func isEmpty(dir string) bool {
	entries, err := os.ReadDir(dir)
	return errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0
}

func (a *app) createPlugin(p scaffold.Plugin) error {
	p.Dir, p.Module = cmp.Or(p.Dir, p.Name), cmp.Or(p.Module, p.Name)
	if v := build.Read().Version; released.MatchString(v) {
		p.Version = v
	}
	if p.SDK == "" && p.Version == "" {
		p.SDK = checkout()
	}
	if p.SDK != "" {
		dir, err := filepath.Abs(p.SDK)
		if err != nil {
			return err
		}
		if !isSource(dir) {
			return fmt.Errorf("--sdk %s: these are not the sources of recipe: go.mod does not declare the module %s", p.SDK,
				modulePath)
		}
		p.SDK, p.Version = dir, "v0.0.0"
	}
	fresh := isEmpty(p.Dir)
	files, err := p.Write()
	if err != nil {
		return err
	}
	if fresh {
		a.trustNew(p.Dir)
	}
	s := a.style()
	fmt.Fprintf(a.out, "%s %q in %s:\n\n", s.Bold(string(p.Kind)), p.Name, p.Dir)
	for _, f := range files {
		fmt.Fprintf(a.out, "  %s\n", f)
	}
	fmt.Fprintf(a.out, "\nNext:\n\n  cd %s\n", printable.ShellWord(p.Dir))
	goes := slices.Contains(files, "go.mod")
	if goes && p.Version == "" {
		fmt.Fprintf(a.out, "  go get %s@latest    # or begin again with --sdk FOLDER, a checkout of its sources\n",
			modulePath)
	}
	if goes {
		fmt.Fprintf(a.out, "  go mod tidy\n  go build -o bin/%s .\n  go test ./...\n", p.Name)
	}
	for _, line := range p.Next() {
		fmt.Fprintln(a.out, "  "+line)
	}
	_, err = fmt.Fprintln(a.out, "\nREADME.md says more.")
	return err
}

// trustNew trusts a folder that a command has made: what this user writes there runs without a question.
func (a *app) trustNew(folder string) {
	if err := trust.Default(a.environ).Add(trust.Entry{Folder: folder}); err != nil {
		fmt.Fprintf(a.err, "The folder is not trusted: %v. recipe trust add --folder %s trusts it.\n", err,
			printable.ShellWord(folder))
	}
}
