package trainer

import (
	"os"
	"path/filepath"
	"testing"
)

// The number goes on from the checkpoint that an attempt continues from, not from the last step that was reported.
func TestTokensGoOnFromTheCheckpoint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func() *tokens {
		t.Helper()
		made, err := openTokens(dir)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	step := func(c *tokens, step int64, name string, want float64) {
		t.Helper()
		if got := c.add(step, map[string]float64{name: 10})[MetricTokens]; got != want {
			t.Errorf("step %d: %v tokens, want %v", step, got, want)
		}
	}
	first := open()
	if _, said := first.add(0, map[string]float64{"rejected_groups": 1})[MetricTokens]; said {
		t.Error("a batch that was left out counts as a step")
	}
	step(first, 1, "tokens", 10)
	step(first, 2, "tokens/trained", 20)
	if err := first.checkpoint(2); err != nil {
		t.Fatal(err)
	}
	step(first, 3, "tokens", 30) // lost: the attempt ends here

	second := open()
	step(second, 3, "tokens", 30)
	if err := second.checkpoint(3); err != nil {
		t.Fatal(err)
	}
	step(open(), 3, "tokens", 30) // continues from step 2, of two checkpoints
	step(open(), 1, "tokens", 10) // begins anew

	if err := os.WriteFile(filepath.Join(dir, tokensFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openTokens(dir); err == nil {
		t.Error("a file that is cut off is no error")
	}
}
