package engine_test

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// A server that multiplies wrong answers all the same.
func TestAShareOfAGPUIsWarnedOf(t *testing.T) {
	for value, want := range map[string]bool{"60": true, " 12.5 ": true, "100": false, "": false} {
		t.Run(value, func(t *testing.T) {
			t.Setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", value)
			dir := t.TempDir()
			if _, err := plugintest.FakeWeights(dir, 1); err != nil {
				t.Fatal(err)
			}
			b := plugintest.Harness(t, stubDefinition())
			b.Start(stubConfig{Model: dir, Replicas: 1})
			b.Ready()
			warned := false
			for _, e := range b.Events() {
				warned = warned || e.GetLog().GetLevel() == "warn" && isAboutShares(e)
			}
			if warned != want {
				t.Errorf("%q: warned: %t", value, warned)
			}
		})
	}
}

func isAboutShares(e *pluginpb.Event) bool {
	said := e.GetLog().GetMessage()
	return strings.Contains(said, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is ") && strings.Contains(said, "come out wrong")
}
