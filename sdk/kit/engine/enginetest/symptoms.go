package enginetest

import (
	"slices"
	"testing"

	"github.com/recipe-rl/recipe/sdk/kit/engine"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// PointToAttributes checks that the settings to which symptoms point are attributes of the engine's block, of which
// config is the configuration.
func PointToAttributes(t *testing.T, symptoms []engine.Symptom, config any) {
	t.Helper()
	schema, err := spec.Of(config)
	if err != nil {
		t.Fatal(err)
	}
	known := func(name string) bool {
		return slices.ContainsFunc(schema.Attributes, func(a *spec.Attribute) bool { return a.Name == name })
	}
	for _, s := range symptoms {
		for _, name := range s.Settings {
			if !known(name) {
				t.Errorf("%s points to %s, which the block does not have", s.Name, name)
			}
		}
	}
}
