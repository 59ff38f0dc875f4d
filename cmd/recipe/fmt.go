package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk"
)

// formatting is what a person chose for one run of fmt.
type formatting struct {
	check, diff, recursive bool
}

func newFmt(a *app) *cobra.Command {
	var f formatting
	cmd := &cobra.Command{
		Use:   "fmt [PATH…]",
		Short: "Format recipes in place",
		Long: `Format recipes in place: files, or the *.hcl files of folders (of this one without arguments). It prints
the names of changed files. With - it formats standard input to standard output.

With --check nothing is written, and the exit code is 1 if a file would change.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] == "-" {
				return a.formatInput(f)
			}
			if slices.Contains(args, "-") {
				return &sdk.Error{Summary: "recipe fmt takes - alone, for standard input; given: " + quoted(args),
					Remedy: "format the files by another recipe fmt; ./- is a file of that name"}
			}
			paths, err := recipeFiles(args, f.recursive)
			if err != nil {
				return err
			}
			changed, broken := false, false
			var failed error
			for _, path := range paths { // one that cannot be formatted does not keep the others from it
				differs, err := a.formatFile(path, f)
				var said exitError
				if errors.As(err, &said) {
					broken = true
				} else {
					failed = errors.Join(failed, err)
				}
				changed = changed || differs
			}
			if failed != nil {
				return failed
			}
			if broken || f.check && changed {
				return exitError(exitFailed)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&f.check, "check", false, "write nothing; exit with 1 if a file would change")
	cmd.Flags().BoolVar(&f.diff, "diff", false, "show the changes")
	cmd.Flags().BoolVar(&f.recursive, "recursive", false, "include subfolders")
	return cmd
}

func (a *app) formatInput(f formatting) error {
	src, err := io.ReadAll(a.in)
	if err != nil {
		return fmt.Errorf("read standard input: %w", err)
	}
	out, err := a.formatted("<stdin>", src)
	if err != nil {
		return err
	}
	differs := !bytes.Equal(src, out)
	switch {
	case f.diff:
		err = view.Diff(a.out, a.style(), "<stdin>", src, out)
	case !f.check:
		_, err = a.out.Write(out)
	}
	if err == nil && f.check && differs {
		return exitError(exitFailed)
	}
	return err
}

func (a *app) formatFile(path string, f formatting) (differs bool, err error) {
	info, err := os.Stat(path)
	if err == nil {
		err = parse.Regular(path, info.Mode())
	}
	if err != nil {
		return false, fmt.Errorf("format: %w", err)
	}
	src, err := parse.ReadFile(path)
	if err != nil {
		return false, fmt.Errorf("format: %w", err)
	}
	out, err := a.formatted(path, src)
	if err != nil || bytes.Equal(src, out) {
		return false, err
	}
	if !f.check { // first, so that a name is printed only of a file that was changed
		if err := replaceFile(path, out); err != nil {
			return true, fmt.Errorf("format %s: %w", path, err)
		}
	}
	if _, err := fmt.Fprintln(a.out, path); err != nil {
		return true, err
	}
	if f.diff {
		return true, view.Diff(a.out, a.style(), path, src, out)
	}
	return true, nil
}

// replaceFile gives a file another content, at once: a full disk or a crash leaves the old one. A symbolic link stays
// one. Where the folder allows no new file but the file may be written, it is written in its place.
func replaceFile(path string, content []byte) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if err := unix.Access(path, unix.W_OK); err != nil {
		// a file that its owner has protected, in a folder that would let it be replaced
		return err
	}
	mode := info.Mode().Perm()
	err = renameio.WriteFile(path, content, mode, renameio.WithTempDir(filepath.Dir(path)),
		renameio.WithStaticPermissions(mode))
	if errors.Is(err, fs.ErrPermission) {
		return os.WriteFile(path, content, mode)
	}
	return err
}

// formatted refuses what does not parse: laying out a file that is broken would only hide where.
func (a *app) formatted(path string, src []byte) ([]byte, error) {
	file, diags := parse.File(path, src)
	if diags.HasErrors() {
		return nil, a.diagnose(&schema.Recipe{Files: map[string]*hcl.File{path: file}}, diags, false)
	}
	return parse.Format(src), nil
}

// recipeFiles lists the files that fmt means, sorted. Hidden folders, such as run directories, are left alone.
func recipeFiles(args []string, recursive bool) ([]string, error) {
	if len(args) == 0 {
		args = []string{"."}
	}
	var out []string
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil {
			return nil, fmt.Errorf("format: %w", err)
		}
		if !info.IsDir() {
			out = append(out, arg)
			continue
		}
		err = filepath.WalkDir(arg, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && path != arg && (!recursive || strings.HasPrefix(d.Name(), ".")):
				return filepath.SkipDir
			case !d.IsDir() && strings.HasSuffix(path, ".hcl"):
				out = append(out, path)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("format: %w", err)
		}
	}
	sort.Strings(out)
	return out, nil
}
