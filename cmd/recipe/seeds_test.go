package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

// TestTheFirstStepIsRepeatable trains the quickstart twice for one step, with one group at a time: the weights are the
// same, bit for bit. Sampling of later steps runs beside training, so their weights depend on time.
func TestTheFirstStepIsRepeatable(t *testing.T) {
	t.Parallel()
	var first *lm.Params
	for _, seed := range []string{"7", "7", "8"} {
		dir := example(t)
		file := filepath.Join(dir, "train.hcl")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		const size = "group_size = local.group"
		seeded := strings.Replace(string(text), size, size+"\n  concurrency = 1\n  seed = "+seed, 1)
		if err := os.WriteFile(file, []byte(seeded), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := shell(t, dir, "recipe apply --auto-approve --var steps=1 train.hcl")
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		checkpoint, err := lm.Load(filepath.Join(dir, ".recipe", "train", "checkpoints", "trainer.tiny.policy",
			"step-00000001.tiny"))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case first == nil:
			first = checkpoint.Params
		case reflect.DeepEqual(checkpoint.Params, first) != (seed == "7"):
			t.Errorf("seed %s: the weights of the first run had seed 7, and equal is %t", seed, seed != "7")
		}
	}
}
