package session

import (
	"path/filepath"

	"github.com/recipe-rl/recipe/engine/lineage"
	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/engine/state"
)

// Again is the command that applies a recipe with the values that its variables had in the last apply of the run.
func Again(dir state.Dir, file string) string {
	words := []string{"recipe", "apply"}
	if l, err := lineage.Read(filepath.Join(string(dir), lineage.FileName)); err == nil {
		words = append(words, l.Arguments()...)
	}
	return printable.ShellWords(append(words, file)...)
}
