package run

import (
	"testing"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// A block names ports of its own machine in its outputs, and none of another block's machine.
func TestOutputsNameNoOtherBlocksPorts(t *testing.T) {
	t.Parallel()
	own := addr.Block{Kind: kind.Inference, Plugin: "vllm", Name: "own"}
	third := nameOf(addr.Block{Kind: kind.Trainer, Plugin: "grpo", Name: "third"})
	for _, c := range []struct {
		name, text, away, here string
	}{
		{name: "an address", text: "http://127.0.0.1:80/v1", away: "http://" + nameOf(own) + ":80/v1",
			here: "http://127.0.0.1:80/v1"},
		{name: "a name of another block", text: "http://" + third + ":22/", away: "http://block.invalid/",
			here: "http://block.invalid/"},
	} {
		if got := named(c.text, own, true); got != c.away {
			t.Errorf("%s, away: %s, expected %s", c.name, got, c.away)
		}
		if got := named(c.text, own, false); got != c.here {
			t.Errorf("%s, here: %s, expected %s", c.name, got, c.here)
		}
	}
}
