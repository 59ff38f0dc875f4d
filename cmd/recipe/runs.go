package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/runs"
	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/lazyregexp"
)

func newRuns(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "List the runs of this machine, in whatever folder they are",
		Long: `List the runs of this machine, in whatever folder they are, newest first: each that recipe apply of this user
has started here. Other commands take the NAME of a run in place of its recipe, for example recipe status -r NAME.`,
		Args: cobra.NoArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			list, err := a.listRuns()
			if err != nil {
				return err
			}
			if asJSON {
				return view.RunsJSON(a.out, list)
			}
			return view.Runs(a.out, a.style(), list)
		},
	}
	addJSON(cmd, &asJSON)
	cmd.AddCommand(newCompareRuns(a), newRenameRun(a), newPruneRuns(a))
	return cmd
}

func newCompareRuns(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "compare RUN RUN…",
		Short: "Show the metrics of runs side by side",
		Long: `Show the metrics of runs side by side: of each the mean over its last steps. A run is a NAME of recipe runs, a
recipe file, its folder or a run directory. recipe diff says what two runs were made from.`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			results := make([]view.RunResult, len(args))
			for i, arg := range args {
				dir, _, err := findRun(arg)
				if err != nil {
					return err
				}
				snap, err := snapshot.Read(dir.Events())
				if err != nil {
					return err
				}
				results[i] = view.ResultOf(arg, snap)
			}
			if asJSON {
				return view.JSON(a.out, results)
			}
			return view.CompareRuns(a.out, a.style(), results)
		},
	}
	addJSON(cmd, &asJSON)
	return cmd
}

// runLabel is what a person may call a run: no path, and nothing that a flag looks like.
var runLabel = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$`)

func newRenameRun(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rename RUN NAME",
		Short: "Give a run another name in the list; its folder and its recipe keep theirs",
		Args:  cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			if !runLabel.MatchString(args[1]) {
				return fmt.Errorf("%q is no name for a run: expected at most 64 letters, digits, '.', '_' and '-'", args[1])
			}
			dir, _, err := findRun(args[0])
			if err != nil {
				return err
			}
			list, err := a.listRuns()
			if err != nil {
				return err
			}
			for _, r := range list {
				if r.Name == args[1] && !r.Gone && !sameDir(r.Dir, string(dir)) {
					return fmt.Errorf("the run in %s has the name %s already", r.Dir, args[1])
				}
			}
			registry, err := runs.Default(a.environ)
			if err != nil {
				return err
			}
			return registry.Rename(dir, args[1])
		},
	}
}

func newPruneRuns(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "prune",
		Short: "Forget the runs whose folders do not exist any more",
		Long:  `Forget the runs whose folders do not exist any more. It removes no file of a run: recipe destroy does that.`,
		Args:  cobra.NoArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			registry, err := runs.Default(a.environ)
			if err != nil {
				return err
			}
			gone, err := registry.Prune()
			for _, entry := range gone {
				fmt.Fprintf(a.out, "forgot %s\n", entry.Dir)
			}
			if err == nil && len(gone) == 0 {
				_, err = fmt.Fprintln(a.out, "Every run that is listed has its folder.")
			}
			return err
		},
	}
}

// remember notes the run directory of an apply. A registry that cannot be written must not keep a run from starting.
func (a *app) remember(dir state.Dir) {
	registry, err := runs.Default(a.environ)
	if err == nil {
		err = registry.Add(dir)
	}
	if err != nil {
		fmt.Fprintf(a.err, "recipe: the run will not be listed by recipe runs: %v\n", err)
	}
}

// listRuns describes the runs of the registry, newest first. Two of one name have a number behind it.
func (a *app) listRuns() ([]view.ListedRun, error) {
	registry, err := runs.Default(a.environ)
	if err != nil {
		return nil, err
	}
	entries, err := registry.List()
	if err != nil {
		return nil, err
	}
	list := make([]view.ListedRun, 0, len(entries))
	for _, entry := range entries {
		list = append(list, describeRun(entry))
	}
	slices.SortStableFunc(list, func(x, y view.ListedRun) int { return y.Started.Compare(x.Started) })
	nameRuns(list)
	return list, nil
}

// nameRuns names runs without a label after their recipes, the older ones of one name with a number.
func nameRuns(list []view.ListedRun) {
	taken := map[string]bool{}
	for _, r := range list {
		taken[r.Name] = true
	}
	for i := range list {
		r := &list[i]
		if r.Name != "" {
			continue
		}
		r.Name = r.Recipe
		for n := 2; taken[r.Name]; n++ {
			r.Name = fmt.Sprintf("%s-%d", r.Recipe, n)
		}
		taken[r.Name] = true
	}
}

func describeRun(entry runs.Entry) view.ListedRun {
	out := view.ListedRun{Name: entry.Label, Dir: string(entry.Dir), Recipe: filepath.Base(string(entry.Dir))}
	if !entry.Dir.Exists() {
		out.Gone, out.Status = true, "gone"
		return out
	}
	run, err := state.Read(entry.Dir)
	if err != nil {
		out.Status, out.Error = "unreadable", err.Error()
		return out
	}
	out.Record(run, state.Holder(entry.Dir))
	return out
}

// findRun is locateRun for an argument that may be a run directory.
func findRun(arg string) (state.Dir, *state.Run, error) {
	if base := filepath.Base(filepath.Dir(filepath.Clean(arg))); base == ".recipe" && state.Dir(arg).Exists() {
		run, err := state.Read(state.Dir(arg))
		return state.Dir(arg), run, err
	}
	return locateRun(arg)
}

// namedRun finds a run by the name that recipe runs lists it under, or by its id; nil when there is none. A name of
// several runs is an error.
func namedRun(name string) (state.Dir, *state.Run, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		return "", nil, nil
	}
	a := &app{environ: os.Environ()}
	list, err := a.listRuns()
	if err != nil {
		return "", nil, nil //nolint:nilerr // the caller says that there is no such run
	}
	var found []view.ListedRun
	for _, r := range list {
		if r.Gone {
			continue
		}
		if r.ID == name || r.Name == name && r.Recipe != name { // an id, or a name of its own
			found = []view.ListedRun{r}
			break
		}
		if r.Recipe == name && numbered(r) {
			found = append(found, r)
		}
	}
	if len(found) == 0 {
		return "", nil, nil
	}
	if len(found) > 1 {
		places := make([]string, len(found))
		for i, r := range found {
			places[i] = "  " + view.OneLine(r.ID) + "  " + view.OneLine(r.Dir)
		}
		return "", nil, fmt.Errorf("%d runs have the name %s: choose one by its id or its recipe file\n%s", len(found), name,
			strings.Join(places, "\n"))
	}
	run, err := state.Read(state.Dir(found[0].Dir))
	return state.Dir(found[0].Dir), run, err
}

// numbered reports whether a run is listed under the name of its recipe, which may have a number; else a person has
// named it.
func numbered(r view.ListedRun) bool {
	rest, ok := strings.CutPrefix(r.Name, r.Recipe)
	if !ok || rest == "" {
		return ok
	}
	n, err := strconv.Atoi(strings.TrimPrefix(rest, "-"))
	return err == nil && rest[0] == '-' && n >= 2
}

func sameDir(a, b string) bool {
	x, errA := filepath.Abs(a)
	y, errB := filepath.Abs(b)
	return errA == nil && errB == nil && x == y
}
