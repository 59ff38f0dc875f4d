package sglang

import (
	"slices"
	"testing"

	"github.com/recipe-rl/recipe/sdk/spec"
)

// What the symptoms of SGLang point to are attributes of its block.
func TestSymptomsPointToAttributes(t *testing.T) {
	t.Parallel()
	schema, err := spec.Of(Config{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, a := range schema.Attributes {
		names = append(names, a.Name)
	}
	for _, s := range causes() {
		for _, name := range s.Settings {
			if !slices.Contains(names, name) {
				t.Errorf("%s points to %s, which the block does not have", s.Name, name)
			}
		}
	}
}
