package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

// TestTheQuickstartIsRepeatable trains the quickstart twice with one seed: the weights and the state of the optimizer
// are the same, bit for bit. With another seed they are not.
//
//docs:lineage.md Equal weights from equal seeds
func TestTheQuickstartIsRepeatable(t *testing.T) {
	t.Parallel()
	var first *lm.Checkpoint
	for _, seed := range []string{"7", "7", "8"} {
		dir := example(t)
		file := filepath.Join(dir, "train.hcl")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		const size = "group_size = local.group"
		seeded := strings.Replace(string(text), size, size+"\n  deterministic = true\n  seed = "+seed, 1)
		if err := os.WriteFile(file, []byte(seeded), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := shell(t, dir, "recipe apply --auto-approve --var steps=10 train.hcl")
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		checkpoint, err := lm.Load(filepath.Join(dir, ".recipe", "train", "checkpoints", "trainer.tiny.policy",
			"step-00000010.tiny"))
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = checkpoint
			continue
		}
		same := reflect.DeepEqual(checkpoint.Params, first.Params) && reflect.DeepEqual(checkpoint.Adam, first.Adam)
		if same != (seed == "7") {
			t.Errorf("seed %s: the first run had seed 7, and equal weights is %t", seed, same)
		}
	}
}
