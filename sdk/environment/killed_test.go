package environment_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// TestAKilledLifeIsSaidGoodbyeFor: what a killed environment owed to each batch would be waited for.
func TestAKilledLifeIsSaidGoodbyeFor(t *testing.T) {
	t.Parallel()
	a, dir := newAPI(t), t.TempDir()
	c := posting(t, a)
	life := func() *plugintest.Block {
		b := plugintest.Harness(t, definition())
		b.Start(c, func(r *pluginpb.StartRequest) { r.Dir = dir })
		a.until(t, "group", func(a *api) bool { return len(a.groups) > 0 })
		return b
	}
	left := func(want ...int) {
		t.Helper()
		a.mu.Lock()
		defer a.mu.Unlock()
		if !slices.Equal(a.left, want) {
			t.Fatalf("said goodbye for %v, want %v", a.left, want)
		}
	}
	first := life()
	noted, err := os.ReadFile(filepath.Join(dir, "registered.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Stop(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	left(0)
	// As it is found after kill -9.
	if err := os.WriteFile(filepath.Join(dir, "registered.json"), noted, 0o600); err != nil {
		t.Fatal(err)
	}
	a.set(func(a *api) { a.groups = nil })
	second := life()
	left(0, 0)
	if err := second.Stop(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	left(0, 0, 1)
}
