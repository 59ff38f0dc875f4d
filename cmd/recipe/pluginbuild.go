package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/reference"
	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/packages"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	"github.com/recipe-rl/recipe/sdk/kit/script"
)

// buildFlags are the flags of the commands that build a package.
type buildFlags struct {
	platforms []string
	version   string
}

func (f *buildFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.platforms, "platform", nil,
		"build a Go program for these platforms, `OS/ARCHITECTURE`, such as linux/amd64,darwin/arm64; default this one")
	cmd.Flags().StringVar(&f.version, "version", "", "version of the package; default that of the plugin")
}

func newPluginBuild(a *app) *cobra.Command {
	var f buildFlags
	var out string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "build PATH [PATH]...",
		Short: "Build the package of a plugin",
		Long: `Build the package of a plugin, as an OCI layout: a folder that recipe plugin push publishes, and from which
recipe init --from installs. PATH is the folder of a Go program, which is compiled for each --platform; a Python file,
or the folder of a Python project whose plugin is NAME.py in the folder NAME; or programs that were compiled before,
one for each platform.

The package has the plugin's schema, so that a recipe can be checked without running the plugin, its reference page, and
a list of what it contains (SPDX). The same source gives the same digest.`,
		Example: "  recipe plugin build . --platform linux/amd64,linux/arm64 -o dist\n" +
			"  recipe plugin build words.py --version 1.2.0 -o dist",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			version, digest, err := a.buildPackage(cmd.Context(), args, f, out)
			if err != nil {
				return err
			}
			return a.sayBuilt(version, digest, out, asJSON)
		},
	}
	f.add(cmd)
	addOut(cmd, &out)
	addJSON(cmd, &asJSON)
	return cmd
}

// addOut gives a command that builds packages the --out flag.
func addOut(cmd *cobra.Command, out *string) {
	cmd.Flags().StringVarP(out, "out", "o", "dist",
		"the `FOLDER` of the layout, where a version that is in it is replaced; or a file whose name ends in .tar")
}

func (a *app) sayBuilt(version, digest, out string, asJSON bool) error {
	if asJSON {
		return view.JSON(a.out, map[string]string{"version": version, "digest": digest, "layout": out})
	}
	_, err := fmt.Fprintf(a.out, "Built version %s in %s: %s\n", version, out, digest)
	return err
}

// buildPackage writes the package of a plugin into a layout.
func (a *app) buildPackage(ctx context.Context, paths []string, f buildFlags, out string) (version, digest string,
	err error) {
	temp, remove, err := temporary.Dir("", "recipe-build")
	if err != nil {
		return "", "", err
	}
	defer func() { err = errors.Join(err, remove()) }()
	b, version, err := a.gather(ctx, paths, f, temp)
	if err != nil {
		return "", "", err
	}
	index, err := b.Index()
	if err != nil {
		return "", "", err
	}
	digest, err = writePackage(ctx, out, version, index)
	return version, digest, err
}

// writePackage writes the index of a version into a layout, and returns its digest.
func writePackage(ctx context.Context, out, version string, index v1.ImageIndex) (digest string, err error) {
	if err := packages.WriteLayout(ctx, out, strings.ReplaceAll(version, "+", "_"), index); err != nil {
		return "", err
	}
	d, err := index.Digest()
	return d.String(), err
}

// gather finds out what the paths are and reads them.
func (a *app) gather(ctx context.Context, paths []string, f buildFlags, temp string) (packages.Build, string, error) {
	path, err := filepath.Abs(paths[0])
	if err != nil {
		return packages.Build{}, "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return packages.Build{}, "", notBuilt(paths[0], "it cannot be read", err)
	}
	entry := path
	if info.IsDir() {
		entry = filepath.Join(path, filepath.Base(path)+".py")
	}
	isPython := script.IsFile(entry)
	if _, err := os.Stat(entry); info.IsDir() && err != nil {
		isPython = false
	}
	sources, _ := filepath.Glob(filepath.Join(path, "*.go")) // the pattern is valid
	switch {
	case len(paths) > 1 && (info.IsDir() || script.IsFile(path)):
		return packages.Build{}, "", errors.New("expected one folder, one Python file, or programs")
	case len(sources) > 0:
		programs, err := compile(ctx, path, temp, f.platforms)
		if err != nil {
			return packages.Build{}, "", err
		}
		return a.gatherPrograms(programs, f, filepath.Base(path))
	case len(f.platforms) > 0:
		return packages.Build{}, "", &sdk.Error{Summary: "--platform is for the folder of a Go program, which " + paths[0] +
			" is not", Remedy: "leave it out: a package of Python is for all platforms, one of programs for theirs"}
	case isPython:
		return a.gatherPython(ctx, entry, info.IsDir(), f)
	case info.IsDir():
		return packages.Build{}, "", notBuilt(paths[0], "the folder has neither *.go nor "+filepath.Base(entry), nil)
	}
	return a.gatherPrograms(paths, f, "")
}

// notBuilt describes what can be built into a package.
func notBuilt(path, why string, err error) error {
	return &sdk.Error{Summary: "no plugin to build at " + path + ": " + why, Err: err,
		Remedy: "name the folder of a Go program, a Python file, the folder of a Python project that has its own name with " +
			".py in it, or compiled programs; recipe plugin new writes a plugin to begin with"}
}

// compile builds a Go program for the platforms and for this one, whose program says what the plugin is.
func compile(ctx context.Context, source, temp string, platforms []string) ([]string, error) {
	if len(platforms) == 0 {
		platforms = []string{packages.ThisPlatform()}
	}
	for _, p := range platforms {
		if err := packages.CheckPlatform(p); err != nil {
			return nil, &sdk.Error{Summary: "--platform", Err: err,
				Remedy: "go tool dist list prints the platforms; several have commas between them"}
		}
	}
	if !slices.Contains(platforms, packages.ThisPlatform()) {
		return nil, &sdk.Error{Summary: "--platform lacks " + packages.ThisPlatform() + ", which this machine is",
			Remedy: "add it: the program of this platform is run to read the schema"}
	}
	programs, err := packages.Compile(ctx, source, temp, platforms)
	return slices.Sorted(maps.Values(programs)), err
}

// mostProgram is how many bytes a compiled program may have.
const mostProgram = 2 << 30

// gatherPrograms makes a package of compiled programs. One of them runs here.
func (a *app) gatherPrograms(paths []string, f buildFlags, name string) (b packages.Build, version string, err error) {
	contents := map[string][]byte{}
	var here string
	for _, path := range paths {
		content, err := regular.FollowFile(path, mostProgram)
		if err != nil {
			return b, "", err
		}
		_, platform, err := packages.ProgramSBOM("", "", content, nil)
		if err != nil {
			return b, "", notBuilt(path, "it is no compiled Go program", err)
		}
		if contents[platform] != nil {
			return b, "", fmt.Errorf("%s is a second program for %s", path, platform)
		}
		if contents[platform] = content; platform == packages.ThisPlatform() {
			here = path
		}
	}
	if here == "" {
		return b, "", &sdk.Error{Summary: "none of the programs is for " + packages.ThisPlatform(),
			Remedy: "add the one for this machine: it is run to read the schema"}
	}
	s, err := a.document(here, filepath.Dir(here), f, &b)
	if err != nil {
		return b, "", err
	}
	python, err := a.lockedPackages(s)
	if err != nil {
		return b, "", err
	}
	b.Runtime, b.Targets = packages.Program, map[string]packages.Target{}
	for platform, content := range contents {
		t := packages.Target{Entrypoint: s.Name, Files: map[string]packages.File{s.Name: {Content: content,
			Executable: true}}}
		if t.SBOM, _, err = packages.ProgramSBOM(s.Name, s.Version, content, python); err != nil {
			return b, "", err
		}
		b.Targets[platform] = t
	}
	return b, s.Version, nil
}

// gatherPython makes a package of a Python file: with the files beside it that it imports, or with its whole folder.
func (a *app) gatherPython(ctx context.Context, path string, whole bool, f buildFlags) (b packages.Build,
	version string, err error) {
	catalog, err := a.catalog()
	if err != nil {
		return b, "", err
	}
	catalog.Prepare = func(p sdk.Packages) error { return prepareProject(ctx, a, p, map[string]bool{}) }
	folder := filepath.Dir(path)
	s, err := a.document(path, folder, f, &b)
	if err != nil {
		return b, "", err
	}
	p := catalog.Packages(s.Kind, s.Name, false)
	t := packages.Target{Entrypoint: filepath.Base(path)}
	if whole {
		t.Files, err = packages.Folder(folder)
	} else {
		d, derr := catalog.Document(s, folder)
		if derr != nil {
			return b, "", derr
		}
		names := slices.Sorted(maps.Keys(d.Python.Files))
		if p.Project != "" {
			for _, one := range []string{p.Project, interpreter.LockFile(p.Project)} {
				name, rerr := filepath.Rel(folder, one)
				if rerr != nil {
					return b, "", rerr
				}
				names = append(names, name)
			}
		}
		t.Files, err = packages.Files(folder, names)
	}
	if err != nil {
		return b, "", err
	}
	var lock []byte
	if p.Project != "" {
		if lock, err = os.ReadFile(interpreter.LockFile(p.Project)); err != nil {
			return b, "", fmt.Errorf("read the lock of its packages: %w", err)
		}
	}
	if t.SBOM, err = packages.PythonSBOM(s.Name, s.Version, lock); err != nil {
		return b, "", err
	}
	b.Runtime, b.Targets = packages.Python, map[string]packages.Target{packages.AnyPlatform: t}
	return b, s.Version, nil
}

// document puts the schema and the page of the plugin at a path into a package.
func (a *app) document(path, folder string, f buildFlags, b *packages.Build) (*schema.PluginSchema, error) {
	catalog, err := a.catalog()
	if err != nil {
		return nil, err
	}
	found, err := catalog.Add(path)
	if err != nil {
		return nil, err
	}
	s := *found
	if f.version != "" {
		s.Version = f.version
	}
	d, err := catalog.Document(&s, folder)
	if err != nil {
		return nil, err
	}
	b.Docs = reference.Block(&s)
	b.Schema, err = json.Marshal(d)
	return &s, err
}

// lockedPackages are the Python packages of a program, for both kinds of machine. Without their hashes its users would
// get others than its author.
func (a *app) lockedPackages(s *schema.PluginSchema) ([]string, error) {
	catalog, err := a.catalog()
	if err != nil {
		return nil, err
	}
	var all []string
	for _, gpu := range []bool{false, true} {
		list := catalog.Packages(s.Kind, s.Name, gpu)
		if !list.Empty() && !list.Locked() {
			return nil, &sdk.Error{
				Summary: "the Python packages of the plugin are not locked: expected each with its hashes",
				Detail:  strings.Join(list.Requirements, ", "),
				Remedy: "run uv pip compile --universal --generate-hashes requirements.in -o requirements.txt, where " +
					"requirements.in lists them, and build the program with what that writes",
			}
		}
		all = append(all, list.Requirements...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
