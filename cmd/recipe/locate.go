package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/parse"
)

// recipeFile is the file that a command means: the one given, or the only recipe in the folder given or in this one.
func recipeFile(args []string) (string, error) {
	dir := "."
	if len(args) > 0 {
		info, err := os.Stat(args[0])
		if err != nil || !info.IsDir() {
			return args[0], nil // the loader says what is wrong with a file that is not there
		}
		dir = args[0]
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.hcl"))
	if err != nil {
		return "", fmt.Errorf("find a recipe: %w", err)
	}
	found = slices.DeleteFunc(found, func(path string) bool { return !parse.IsRecipeFile(filepath.Base(path)) })
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "",
			fmt.Errorf("there is no recipe (*.hcl) in %s: name one, for example recipe plan recipes/quickstart.hcl",
				dir)
	default:
		return "", fmt.Errorf("there are %d recipes in %s (%s): name one of them", len(found), dir,
			strings.Join(found, ", "))
	}
}

// errNoRun means that nothing was ever applied.
var errNoRun = errors.New("there is no run")

// locateRun finds the run that a command means: that of the recipe file given, the only one of the folder given, the
// one that recipe runs lists under the name given, or the only one here or in a folder of here.
func locateRun(file string) (state.Dir, *state.Run, error) {
	named := file
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		named, file = "", filepath.Join(file, "*.hcl")
	}
	dirs, err := runDirs(file)
	if err != nil {
		return "", nil, err
	}
	if len(dirs) == 0 {
		if err := state.ForbiddenHere(filepath.Dir(cmp.Or(file, "."))); err != nil {
			return "", nil, err
		}
	}
	type candidate struct {
		dir state.Dir
		run *state.Run
	}
	var found, called []candidate
	var forbidden error // runs of other users
	for _, d := range dirs {
		dir := state.Dir(d)
		if err := dir.Forbidden(); err != nil {
			forbidden = errors.Join(forbidden, err)
			continue
		}
		if !dir.Exists() && state.Holder(dir) == nil {
			continue
		}
		run, err := healedRun(dir)
		if err != nil {
			return "", nil, err
		}
		if run.Status == state.New && !dir.Exists() {
			continue // an engine is starting
		}
		if named == "" || filepath.Base(run.File) == filepath.Base(file) {
			found = append(found, candidate{dir, run})
		}
		if filepath.Base(d) == named || run.ID == named {
			called = append(called, candidate{dir, run})
		}
	}
	if file != "" && !exists(file) && len(found) == 0 {
		if len(called) == 1 { // a name is that of a run here, before those elsewhere
			return called[0].dir, called[0].run, nil
		}
		if dir, run, err := namedRun(file); err != nil || run != nil {
			return dir, run, err
		}
	}
	switch {
	case len(found) == 0 && forbidden != nil:
		return "", nil, forbidden
	case len(found) == 1:
		return found[0].dir, found[0].run, nil
	case len(found) == 0 && file != "" && named == "":
		return "", nil, fmt.Errorf("%w in %s yet: recipe apply FILE starts one", errNoRun, filepath.Dir(file))
	case len(found) == 0 && file != "" && !exists(file):
		return "", nil, fmt.Errorf("%w of %s, nor a file of that name: recipe runs lists the runs of this machine", errNoRun,
			file)
	case len(found) == 0 && file != "":
		return "", nil, fmt.Errorf("%w of %s yet: recipe apply %s starts one", errNoRun, file, file)
	case len(found) == 0:
		return "", nil, fmt.Errorf("%w here yet: recipe apply FILE starts one; for a run elsewhere use -r FILE",
			errNoRun)
	}
	files := make([]string, len(found))
	for i, c := range found {
		files[i] = view.OneLine(c.run.File)
	}
	return "", nil, fmt.Errorf("there are %d runs here (of %s): choose one with -r FILE", len(found),
		strings.Join(files, ", "))
}

// healWithin bounds how long a command waits for an engine to rewrite a damaged record.
const healWithin = 10 * time.Second

// healedRun reads the record of a run. A record that is damaged or missing while an engine works on the run is written
// again by that engine first.
func healedRun(dir state.Dir) (*state.Run, error) {
	run, err := state.Read(dir)
	if err == nil && run.Status != state.New || state.Holder(dir) == nil {
		return run, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), healWithin)
	defer cancel()
	engine, unreachable := session.Dial(ctx, dir)
	if unreachable != nil {
		return run, err // what is wrong with the record matters more
	}
	defer engine.Close()
	if engine.Heal(ctx) != nil {
		return run, err
	}
	return state.Read(dir)
}

// recipePath is the path, from this folder, of the recipe that a run belongs to, which lies beside the run directory.
// The record has it as the person typed it, maybe in another folder.
func recipePath(dir state.Dir, run *state.Run) string {
	return filepath.Join(filepath.Dir(filepath.Dir(string(dir))), filepath.Base(run.File))
}

// recipeOrRun finds the recipe of a command that needs a recipe and works without a run: that of the file given or of
// this folder, else of the run that status and logs would show.
func recipeOrRun(given string) (string, error) {
	if given != "" {
		if _, err := os.Stat(given); err == nil {
			return given, nil
		}
		if dir, run, err := locateRun(given); err == nil {
			return recipePath(dir, run), nil
		}
		return given, nil // the loader says what is wrong with a file that is not there
	}
	file, err := recipeFile(nil)
	if err == nil {
		return file, nil
	}
	dir, run, missing := locateRun("")
	switch {
	case missing == nil:
		return recipePath(dir, run), nil
	case errors.Is(missing, errNoRun):
		return "", fmt.Errorf("%w; or use -r FILE", err)
	}
	return "", missing
}

func runDirs(file string) ([]string, error) {
	patterns := []string{filepath.Join(".recipe", "*"), filepath.Join("*", ".recipe", "*")}
	if file != "" {
		patterns = []string{filepath.Join(filepath.Dir(file), ".recipe", "*")}
	}
	for _, p := range patterns {
		dirs, err := filepath.Glob(p)
		if err != nil {
			return nil, fmt.Errorf("find runs: %w", err)
		}
		if len(dirs) > 0 {
			return dirs, nil
		}
	}
	return nil, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
