package grpo

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/worker"
)

// TestOutOfMemorySaysWhatToLower: when the GPU or the machine ran out of memory before the worker could report it, the
// remedy names settings to change, and every block { attribute } that it names is in the schema.
func TestOutOfMemorySaysWhatToLower(t *testing.T) {
	t.Parallel()
	schema := Plugin().Schema
	named := regexp.MustCompile(`(\w+) \{ (\w+)`)
	for log, want := range map[string]string{
		"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB": "row_tokens",
		"RuntimeError: DefaultCPUAllocator: can't allocate memory":               "row_tokens",
	} {
		var e *sdk.Error
		if err := worker.Diagnose(errors.New("exit status 1"), log, symptoms()); !errors.As(err, &e) {
			t.Fatalf("%s: no diagnosis: %v", log, err)
		}
		if !strings.Contains(e.Summary, "ran out of memory") || !strings.Contains(e.Remedy, "lower compute { "+want) {
			t.Errorf("%s: %s; %s", log, e.Summary, e.Remedy)
		}
		for _, m := range named.FindAllStringSubmatch(e.Remedy, -1) {
			if m[1] == "placement" { // errors of every kind
				continue
			}
			if block := schema.Block(m[1]); block == nil || block.Schema.Attribute(m[2]) == nil {
				t.Errorf("%s: the remedy names %s { %s }, which the block does not have", log, m[1], m[2])
			}
		}
	}
}
