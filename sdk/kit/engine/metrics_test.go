package engine

import (
	"strings"
	"testing"
)

func TestLabelsOfAMetric(t *testing.T) {
	t.Parallel()
	const page = `vllm:cache_config_info{block_size="16",cpu_num="None",num_gpu_blocks="1000"} 1.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75
`
	m, err := ReadMetrics(strings.NewReader(page), "vllm:cache_config_info", "vllm:kv_cache_usage_perc", "vllm:other")
	if err != nil {
		t.Fatal(err)
	}
	if got := m["vllm:kv_cache_usage_perc"].Mean(); got != .5 {
		t.Errorf("mean %v, want 0.5", got)
	}
	info := m["vllm:cache_config_info"]
	if len(info) != 1 || info[0].Label("num_gpu_blocks") != 1000 || info[0].Label("block_size") != 16 ||
		info[0].Label("cpu_num") != 0 || info[0].Label("blocks") != 0 {
		t.Errorf("labels %+v", info)
	}
	if got := m["vllm:other"]; got.Mean() != 0 || got.Sum() != 0 {
		t.Errorf("a metric that is not there: %v", got)
	}
	if _, err := ReadMetrics(strings.NewReader("up x\n"), "up"); err == nil {
		t.Error("a value that is no number is an error")
	}
}

func TestSumOfAMetric(t *testing.T) {
	t.Parallel()
	const page = `# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="a }b"} 1.5e+03
vllm:generation_tokens_total{engine="1",model_name="a"} 500.0
vllm:generation_tokens_created{engine="0"} 1.7e+09
vllm:prompt_tokens_total{engine="0"} 7.0
`
	if n, err := SumMetric(strings.NewReader(page), "vllm:generation_tokens_total"); err != nil || n != 2000 {
		t.Errorf("got %v, %v; want 2000", n, err)
	}
	if _, err := SumMetric(strings.NewReader("up 1\n"), "vllm:generation_tokens_total"); err == nil {
		t.Error("a page without the metric is an error")
	}
}
