package view

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

// Environment is a Python environment of a recipe.
type Environment struct {
	interpreter.Environment
	Blocks []string // addresses of those that run in it
	Made   bool     // just now; false: it was there
	Named  bool     // the recipe names its packages, and not a plugin
}

// Environments says where the Python environments of a recipe are.
func Environments(w io.Writer, s Style, list []Environment) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "No block of this recipe needs a managed Python environment.")
		return err
	}
	for _, e := range list {
		state := "exists"
		if e.Made {
			state = s.Green("made")
		}
		if _, err := fmt.Fprintf(w, "%s  %s\n  for %s\n  with %s\n", state, e.Dir, strings.Join(e.Blocks, ", "),
			strings.Join(packagesOf(e), ", ")); err != nil {
			return err
		}
	}
	return nil
}

// packagesOf describes what is installed in an environment: requirements, or the lock that lists them.
func packagesOf(e Environment) []string {
	if project := e.Packages.Project; project != "" {
		return []string{interpreter.LockFile(project)}
	}
	return e.Packages.Requirements
}

// EnvironmentsJSON writes them for programs: one array.
func EnvironmentsJSON(w io.Writer, list []Environment) error {
	type entry struct {
		Python       string   `json:"python"`
		Blocks       []string `json:"blocks"`
		Requirements []string `json:"requirements"`
		Made         bool     `json:"made"`
	}
	out := make([]entry, 0, len(list))
	for _, e := range list {
		out = append(out, entry{e.Executable(), e.Blocks, packagesOf(e), e.Made})
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}
