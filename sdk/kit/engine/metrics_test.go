package engine

import (
	"strings"
	"testing"
)

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
