package vllm

import (
	"testing"

	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
	"github.com/recipe-rl/recipe/sdk/kit/engine/enginetest"
)

// The pages have the lines of vLLM 0.32 and, for the share of the cache, of releases before 0.10.
func TestUsage(t *testing.T) {
	t.Parallel()
	const rest = `vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_preemptions_total{engine="0",model_name="m"} 7.0
vllm:generation_tokens_total{engine="0",model_name="m"} 90.0
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="100"} 1.0
`
	want := inference.Usage{Cache: .5, Capacity: 1600, Running: 3, Queued: 2, Preemptions: 7, Tokens: 90}
	for name, page := range map[string]string{
		"0.32":  `vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5` + "\n" + rest,
		"older": `vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.5` + "\n" + rest,
		"none":  "up 1\n",
	} {
		c := newClient(engine.Address{Port: enginetest.Page(t, page)}, Config{})
		t.Cleanup(c.Close)
		got, err := c.Usage(t.Context())
		if name == "none" {
			if err == nil {
				t.Errorf("a page without figures gave %+v", got)
			}
			continue
		}
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
}
