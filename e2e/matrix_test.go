//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/cmd/recipe/reference"
)

// TestMatrix runs the pairs of engine and trainer for which docs/compatibility.md names it, with each of the transports
// there, for two steps, on groups of three environments: one of Atropos, one in Go, one in Python.
func TestMatrix(t *testing.T) {
	for _, pair := range reference.Tests() {
		if pair.Test != "TestMatrix" {
			continue
		}
		for _, transport := range slices.Concat(pair.Transports, pair.Pending) {
			t.Run(pair.Engine+"/"+pair.Trainer+"/"+transport, func(t *testing.T) {
				t.Parallel()
				vars := map[string]string{"steps": "2", "transport": transport, "evaluate": "false"}
				if transport == "lora" {
					vars["lora_rank"] = "8"
				}
				setTrainer(t, pair.Trainer, vars)
				if pair.Engine == "sglang" {
					setSGLang(t, vars)
				}
				r := newRun(t, "addition.hcl", vars)
				withMore(t, r)
				trains(t, r, transport)
				checkSteps(t, r, 2)
				checkEnvironments(t, r, 3)
			})
		}
	}
}

// checkEnvironments: the trainer has trained on groups of so many environments. It reports each by the number that the
// trajectory API has given it.
func checkEnvironments(t *testing.T, r *run, want int) {
	t.Helper()
	seen := map[string]bool{}
	for _, e := range r.all(func(e event) bool { return e.Type == "metrics" && e.Address == r.trainer }) {
		for name := range e.Metrics {
			if strings.HasPrefix(name, "env/") && strings.HasSuffix(name, "/groups") {
				seen[name] = true
			}
		}
	}
	if len(seen) != want {
		t.Errorf("the trainer has trained on groups of %d environments (%v), want %d", len(seen), seen, want)
	}
}

// more are environments besides the one of addition.hcl: one in Go, and a reward function in Python.
const more = `
environment "arithmetic" "sums" {
  inference            = local.policy
  group_size           = 8
  drop_uninformative   = false
  min_batch_allocation = 0.25
}

environment "reward" "digits" {
  inference            = local.policy
  dataset              = "environments/reward/sums.jsonl"
  function             = "environments/reward/rewards.py:digits"
  group_size           = 8
  max_tokens           = 8
  drop_uninformative   = false
  min_batch_allocation = 0.25
}
`

// withMore adds them to the run's recipe, and each trainer learns from all three.
func withMore(t *testing.T, r *run) {
	t.Helper()
	path := filepath.Join(r.dir, r.recipe)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data) + more
	for _, change := range [][2]string{
		{"environment.atropos.addition]",
			"environment.atropos.addition, environment.arithmetic.sums, environment.reward.digits]"},
		{"max_token_length      = 64\n", "max_token_length      = 64\n  min_batch_allocation  = 0.25\n"},
	} {
		if !strings.Contains(text, change[0]) {
			t.Fatalf("%s lacks %q", r.recipe, change[0])
		}
		text = strings.ReplaceAll(text, change[0], change[1])
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
