package engine

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/modelinfo"
)

func TestAmountsOfAServer(t *testing.T) {
	t.Parallel()
	m := modelinfo.Model{Layers: 2, Hidden: 8, Heads: 4, KVHeads: 2, HeadDim: 2, FFN: 16, Vocab: 32, Tied: true}
	parameters, embeddings := float64(m.Parameters()), 32.*8
	gpu, cpu := sdk.Placement{Devices: []string{"0", "1"}}, sdk.Placement{}
	for name, c := range map[string]struct {
		sizing Sizing
		want   map[string]float64
	}{
		"one GPU": {Sizing{Placement: sdk.Placement{GPUs: 1}, ParameterBytes: 2, MaxLen: 10},
			map[string]float64{"weights": 2 * parameters, "kv_cache": 2 * 2 * 2 * 2 * 2 * 10}},
		"two shards and graphs": {Sizing{Placement: gpu, Shards: 2, ParameterBytes: 4, MaxLen: 10, Graphs: true},
			map[string]float64{"weights": 2 * parameters, "kv_cache": 2 * 2 * 2 * 2 * 4 * 5, "cuda_graphs": 1 << 30}},
		"quantized, with a cache in fp8": {Sizing{Placement: gpu, ParameterBytes: 0.55, EmbeddingBytes: 2,
			CacheElementBytes: 1, MaxLen: 10},
			map[string]float64{"weights": 0.55*(parameters-embeddings) + 2*embeddings, "kv_cache": 2 * 2 * 2 * 2 * 10}},
		"two replicas on a CPU": {Sizing{Placement: cpu, Replicas: 2, ParameterBytes: 4, MaxLen: 10, Graphs: true},
			map[string]float64{"weights": 8 * parameters, "kv_cache": 2 * 2 * 2 * 2 * 4 * 20}},
		"a cache of a given size on a CPU": {Sizing{Placement: cpu, Replicas: 2, ParameterBytes: 4, MaxLen: 10,
			Cache: &Cache{Bytes: 1000, How: "cache = 1000"}}, map[string]float64{"weights": 8 * parameters, "kv_cache": 2000}},
		"a cache of a number of tokens": {Sizing{Placement: gpu, Shards: 2, ParameterBytes: 4, MaxLen: 10,
			Cache: &Cache{Tokens: 100}}, map[string]float64{"weights": 2 * parameters, "kv_cache": 2 * 2 * 2 * 2 * 4 * 50}},
	} {
		c.sizing.Model = m
		amounts := c.sizing.Amounts()
		if len(amounts) != len(c.want) {
			t.Errorf("%s: %d amounts, want %d: %+v", name, len(amounts), len(c.want), amounts)
		}
		for _, a := range amounts {
			if diff := a.Value - c.want[a.Part]; diff > 1e-6 || diff < -1e-6 {
				t.Errorf("%s: %s %v, want %v (%s)", name, a.Part, a.Value, c.want[a.Part], a.How)
			}
			if cpu := c.sizing.Placement.Count() == 0; (a.Resource == "host_memory") != cpu {
				t.Errorf("%s: %s counts as %s", name, a.Part, a.Resource)
			}
		}
	}
}

func TestPrecisionOfAServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dtype, quantization, served string
		bytes                       float64
	}{
		{"auto", "", "", 2}, {"half", "", "float16", 2}, {"bfloat16", "", "bfloat16", 2}, {"float", "", "float32", 4},
		{"auto", "fp8", "fp8", 1},
		{"auto", "fp8_per_channel", "fp8_per_channel", 1}, {"half", "awq", "awq", 0.55}, {"float32", "other", "other", 4},
	} {
		if got := ServedDtype(c.dtype, c.quantization); got != c.served {
			t.Errorf("dtype %q, quantization %q: served as %q, want %q", c.dtype, c.quantization, got, c.served)
		}
		if got := parameterBytes(c.dtype, c.quantization); got != c.bytes {
			t.Errorf("dtype %q, quantization %q: %g bytes a parameter, want %g", c.dtype, c.quantization, got, c.bytes)
		}
	}
}

func TestProblemsOfAPlan(t *testing.T) {
	t.Parallel()
	factors := []Factor{{"replicas", 2}, {"tp_size", 0}, {"dp_size", 2}}
	if p := checkGPUs(sdk.Placement{GPUs: 3}, factors...); len(p) != 1 ||
		!strings.HasPrefix(p[0].Detail, "replicas = 2 × tp_size = 1 × dp_size = 2. ") ||
		p[0].Summary != "4 GPUs are needed, placement gives 3" {
		t.Errorf("problems %+v", p)
	}
	for _, p := range []sdk.Placement{{}, {GPUs: 4}, {Devices: []string{"0", "1", "2", "3"}}} {
		if got := checkGPUs(p, factors...); len(got) > 0 {
			t.Errorf("placement %+v: %+v", p, got)
		}
	}
	m := modelinfo.Model{Heads: 9, MaxLen: 100}
	if p := checkLength("X", m, Factor{"context_length", 101}, ""); len(p) != 1 || p[0].Detail !=
		"X refuses to start. Lower context_length." || len(checkLength("X", m, Factor{"context_length", 100}, "")) > 0 {
		t.Errorf("problems %+v", p)
	}
	if p := checkHeads("X", m, Factor{"tp_size", 2}); len(p) != 1 || len(checkHeads("X", m, Factor{"tp_size", 3})) > 0 {
		t.Errorf("problems %+v", p)
	}
}
