package grpo

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
)

// What a user's loss imports lies beside the user's file, and the worker runs a copy of that file.
func TestImportsOfALossLieBesideIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "losses"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"losses/mine.py", "adv.py"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("def f(): pass\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := program(sdk.Request[Config]{Block: sdk.Block{RecipeDir: dir, Dir: t.TempDir()}, Config: Config{
		Loss: &Loss{Import: "losses/mine.py:f"}, Advantages: &Advantages{Import: "adv.py:f"}}})
	if err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(dir, "losses") + string(filepath.ListSeparator) + dir
	if got := p.Environment[importsVariable]; got != want {
		t.Errorf("imports are looked for in %q, want %q", got, want)
	}
	p, err = program(sdk.Request[Config]{Block: sdk.Block{RecipeDir: dir, Dir: t.TempDir()}})
	if err != nil || len(p.Environment) > 0 {
		t.Errorf("without a function: %v, %v", p.Environment, err)
	}
}
