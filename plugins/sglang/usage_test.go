package sglang

import (
	"testing"

	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
	"github.com/recipe-rl/recipe/sdk/kit/engine/enginetest"
)

// The page has the lines of SGLang 0.5.17.
func TestUsage(t *testing.T) {
	t.Parallel()
	const page = `sglang:token_usage{engine_type="unified",model_name="m",tp_rank="0"} 0.5
sglang:num_running_reqs{engine_type="unified",model_name="m",tp_rank="0"} 3.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",tp_rank="0"} 2.0
sglang:num_retracted_requests_total{engine_type="unified",model_name="m",tp_rank="0"} 7.0
sglang:max_total_num_tokens{engine_type="unified",model_name="m",tp_rank="0"} 1600.0
sglang:realtime_tokens_total{mode="decode",model_name="m"} 60.0
sglang:realtime_tokens_total{mode="prefill_compute",model_name="m"} 30.0
`
	c := newClient(engine.Address{Port: enginetest.Page(t, page)}, Config{})
	defer c.Close()
	want := inference.Usage{Cache: .5, Capacity: 1600, Running: 3, Queued: 2, Preemptions: 7, Tokens: 90, Reserves: true}
	if got, err := c.Usage(t.Context()); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}
