package worker_test

import (
	"fmt"
	"testing"

	"github.com/recipe-rl/recipe/sdk/kit/worker"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Lengths of which one makes another useless: refused where no completion would fit, else told.
func TestLengthsThatDoNotGoTogether(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		all, prompt, response int64
		want                  string
	}{
		{2048, 0, 0, ""},
		{2048, 512, 1024, ""},
		{2048, 2048, 0, "max_prompt_length error"},
		{2048, 4096, 0, "max_prompt_length error"},
		{2048, 0, 2047, ""},
		{2048, 0, 2048, "max_response_length warning"},
		{2048, 1024, 1025, "max_length warning"},
	} {
		common := worker.Common{MaxLength: c.all, MaxPromptLength: c.prompt, MaxResponseLength: c.response}
		got := ""
		for _, p := range common.Problems() {
			got += fmt.Sprintf("%s %s", spec.PathString(p.Path), map[bool]string{true: "warning", false: "error"}[p.Warning])
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c, got, c.want)
		}
	}
}

// A plan counts the checkpoints that a disk has to hold: with keep_last = 0 all of them, and the best ones besides.
func TestCheckpointsThatAreKept(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		checkpoints *worker.Checkpoints
		want        int64
	}{
		{nil, 2},
		{&worker.Checkpoints{Every: 20, KeepLast: 2}, 2},
		{&worker.Checkpoints{Every: 20, KeepLast: 2, KeepBest: 3}, 5},
		{&worker.Checkpoints{Every: 20}, 6},
		{&worker.Checkpoints{}, 1},
	} {
		if got := c.checkpoints.Kept(101); got != c.want {
			t.Errorf("%+v: %d, want %d", c.checkpoints, got, c.want)
		}
	}
}
