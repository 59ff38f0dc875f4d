package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/outfile"
	"github.com/recipe-rl/recipe/engine/packages"
	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk"
)

func newTrust(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trust",
		Short: "Say which programs of recipes may run on this machine",
		Long: `A recipe names programs: a plugin's, a Python file, an executor's. validate, plan, graph, doctor, init, editors
and agents run one only where it is trusted: its content by digest, which this user has approved, or its folder. What
recipe plugin new writes is trusted from the start. In CI, trusted folders do not count. apply lists what it
runs and asks.

What is trusted stands in recipe/trust in XDG_STATE_HOME (~/.local/state), readable by this user only.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTrustList(a), newTrustAdd(a), newTrustRemove(a), newTrustDigest(a), newTrustLock(a))
	return cmd
}

func newTrustList(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what this user has approved",
		Args:  cobra.NoArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			list, err := trust.Default(a.environ).List()
			if err != nil {
				return err
			}
			if asJSON {
				return view.JSON(a.out, append([]trust.Entry{}, list...))
			}
			for _, e := range list {
				what := e.Digest + "  " + e.Path
				if e.Folder != "" {
					what = "folder " + e.Folder
				}
				if _, err := fmt.Fprintf(a.out, "%s  %s\n", e.Added.Local().Format("2006-01-02 15:04"), what); err != nil {
					return err
				}
			}
			return nil
		},
	}
	addJSON(cmd, &asJSON)
	return cmd
}

func newTrustAdd(a *app) *cobra.Command {
	var folder bool
	cmd := &cobra.Command{
		Use:   "add FILE|DIGEST…",
		Short: "Approve the content of programs, or folders with --folder",
		Long: `Approve the content of programs: what they are now runs, also where it is copied to, and not what they become.
Of a Python file the digest covers the files of its folder that it may import, too.

With --folder approve a folder with all that is in it now and later, such as the one that you write a plugin in. It
counts while the folder and the file are yours, and not in CI.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, path := range args {
				e, err := entryOf(path, folder)
				if err == nil {
					err = trust.Default(a.environ).Add(e)
				}
				if err != nil {
					return err
				}
				if _, err := fmt.Fprintf(a.out, "Trusted: %s\n", strings.TrimSpace(e.Digest+" "+path)); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&folder, "folder", false, "approve folders instead of contents")
	return cmd
}

func entryOf(path string, folder bool) (trust.Entry, error) {
	if trust.Check(path) && path != trust.All {
		return trust.Entry{Digest: path}, nil
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return trust.Entry{}, err
	}
	info, err := os.Stat(absolute)
	switch {
	case err != nil:
		return trust.Entry{}, err
	case folder && !info.IsDir():
		return trust.Entry{}, fmt.Errorf("%s is no folder: leave --folder out to approve its content", path)
	case folder:
		return trust.Entry{Folder: absolute}, nil
	case info.IsDir():
		return trust.Entry{}, &sdk.Error{Summary: path + " is a folder",
			Remedy: "name the programs in it or, for all that is in it now and later, add --folder"}
	}
	digest, err := host.DigestOf(absolute)
	return trust.Entry{Digest: digest, Path: absolute}, err
}

func newTrustRemove(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "remove DIGEST|PATH|all…",
		Short: "Take an approval back: of a digest, of all that was approved at a path, of a folder",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, what := range args {
				n, err := trust.Default(a.environ).Remove(what)
				if err != nil {
					return err
				}
				if n == 0 {
					return &sdk.Error{Summary: what + " is not among what is trusted", Remedy: "recipe trust list shows what is"}
				}
				if _, err := fmt.Fprintf(a.out, "Not trusted any more: %s (%d)\n", what, n); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func newTrustDigest(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "digest FILE…",
		Short: "Print the digest of a program, as --trust takes it; nothing is run or remembered",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, path := range args {
				e, err := entryOf(path, false)
				if err != nil {
					return err
				}
				if _, err := fmt.Fprintf(a.out, "%s  %s\n", e.Digest, path); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func newTrustLock(a *app) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "lock [FILE [PROGRAM…]]",
		Short: "Write the digests of what a recipe names to NAME.trust.json, for CI",
		Long: `Write the digests of the programs that the recipe NAME.hcl names to NAME.trust.json beside it. Commit it: CI hands
the file of the base branch over by --trust-lock (docs/ci.md), where a pull request cannot change it. Nothing is run.
Further files, such as a kubeconfig or the interpreter of a block, are those after the recipe.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := recipeFile(args[:min(len(args), 1)])
			if err != nil {
				return err
			}
			if out == "" {
				out = strings.TrimSuffix(file, filepath.Ext(file)) + ".trust.json"
			}
			lock, err := lockOf(a, file, args[min(len(args), 1):])
			if err != nil {
				return err
			}
			text, err := json.MarshalIndent(lock, "", "  ")
			if err == nil {
				err = outfile.Write(cmd.Context(), out, append(text, '\n'), 0o644)
			}
			if err != nil {
				return fmt.Errorf("write what is trusted: %w", err)
			}
			_, err = fmt.Fprintf(a.out, "Wrote %d digests to %s\n", len(lock.Trusted), out)
			return err
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "write to this `FILE` (default: NAME.trust.json)")
	return cmd
}

// lockOf reads the recipe as far as it can be read without plugins and variables.
func lockOf(a *app, file string, further []string) (trust.Lock, error) {
	lock := trust.Lock{V: trust.FormatVersion, Trusted: []trust.LockedEntry{}}
	if _, err := os.Stat(file); err != nil {
		return lock, fmt.Errorf("read the recipe: %w", err)
	}
	r, _ := schema.Load(file, schema.Options{Environ: a.environ})
	var paths []string
	locked, err := packages.ReadLock(parse.LockFile(file))
	if err != nil {
		return lock, err
	}
	for _, q := range r.Required {
		path := q.Source
		if parse.IsPackage(path) {
			if e, ok := locked.Plugins[q.Name]; ok && e.Index != "" {
				lock.Trusted = append(lock.Trusted, trust.LockedEntry{Path: q.Source + ":" + e.Version, Digest: e.Index})
			}
			continue
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(q.Range.Filename), path)
		}
		paths = append(paths, path)
	}
	for _, path := range append(paths, further...) {
		e, err := entryOf(path, false)
		if err != nil {
			return lock, err
		}
		shown := path
		if rel, err := filepath.Rel(filepath.Dir(file), path); err == nil {
			shown = rel
		}
		lock.Trusted = append(lock.Trusted, trust.LockedEntry{Path: shown, Digest: e.Digest})
	}
	return lock, nil
}
