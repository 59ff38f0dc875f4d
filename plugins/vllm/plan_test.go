package vllm

import (
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/chat"
	"github.com/recipe-rl/recipe/sdk/kit/engine/enginetest"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	e, problems := (&Server{}).Plan(Config{Model: "Qwen/Qwen2.5-1.5B-Instruct", MaxModelLen: 2048,
		GPUMemoryUtilization: 0.45}, sdk.Placement{GPUs: 1})
	if len(problems) > 0 {
		t.Fatalf("problems: %+v", problems)
	}
	part := func(name string) sdk.Amount {
		for _, a := range e.Amounts {
			if a.Part == name {
				return a
			}
		}
		t.Fatalf("no amount %q in %+v", name, e.Amounts)
		return sdk.Amount{}
	}
	if w := part("weights"); math.Abs(w.Value-3.087e9) > 0.01e9 || w.Resource != "gpu_memory" {
		t.Errorf("weights %+v, want 3.09 GB of gpu_memory", w)
	}
	if kv := part("kv_cache"); kv.Value != 2*28*2*128*2*2048 || !strings.Contains(kv.How, "28672 bytes") {
		t.Errorf("KV cache %+v, want 28,672 bytes a token", kv)
	}
	if e.Facts["tokenizer"] != "Qwen/Qwen2.5-1.5B-Instruct" || e.Facts["max_model_len"] != "2048" ||
		e.Facts["gpu_memory_utilization"] != "0.45" {
		t.Errorf("facts %v", e.Facts)
	}
	half, _ := (&Server{}).Plan(Config{Model: "Qwen/Qwen2.5-1.5B-Instruct", MaxModelLen: 2048, TensorParallelSize: 2},
		sdk.Placement{GPUs: 2})
	if e.Facts["max_lora_rank"] != "" {
		t.Errorf("a server without adapters takes them up to rank %s", e.Facts["max_lora_rank"])
	}
	lora, _ := (&Server{}).Plan(Config{Model: "Qwen/Qwen2.5-1.5B-Instruct", EnableLora: true, MaxLoraRank: 32},
		sdk.Placement{GPUs: 1})
	if lora.Facts["max_lora_rank"] != "32" {
		t.Errorf("facts of a server with adapters: %v", lora.Facts)
	}
	if got := half.Amounts[0].Value * 2; math.Abs(got-part("weights").Value) > 1 {
		t.Errorf("two GPUs hold %v of the weights, want half each", got)
	}
}

func TestPlanProblems(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config Config
		place  sdk.Placement
		want   string
	}{
		"too long": {Config{Model: "Qwen/Qwen2.5-1.5B-Instruct", MaxModelLen: 40000}, sdk.Placement{GPUs: 1},
			"made for 32768 tokens"},
		"heads": {Config{Model: "HuggingFaceTB/SmolLM2-135M-Instruct", TensorParallelSize: 2},
			sdk.Placement{GPUs: 2}, "9 attention heads"},
		"too few GPUs": {Config{Model: "Qwen/Qwen2.5-7B", Replicas: 2, TensorParallelSize: 2}, sdk.Placement{GPUs: 2},
			"4 GPUs are needed"},
		"LoRA in float32": {Config{Model: "Qwen/Qwen2.5-1.5B-Instruct", EnableLora: true, Dtype: "float32"},
			sdk.Placement{GPUs: 1}, "16 bits only"},
		"LoRA in bfloat16": {Config{Model: "Qwen/Qwen2.5-1.5B-Instruct", EnableLora: true}, sdk.Placement{GPUs: 1},
			"lose much"},
		"LoRA in half": {Config{Model: "Qwen/Qwen2.5-1.5B-Instruct", EnableLora: true, Dtype: "half"},
			sdk.Placement{GPUs: 1}, ""},
		"LoRA on a CPU": {Config{Model: "Qwen/Qwen2.5-1.5B-Instruct", EnableLora: true, Dtype: "float32"},
			sdk.Placement{}, ""},
		"longer on demand": {Config{Model: "Qwen/Qwen2.5-1.5B-Instruct", MaxModelLen: 40000,
			HFOverrides: map[string]any{"rope_scaling": 1}}, sdk.Placement{GPUs: 1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, problems := (&Server{}).Plan(c.config, c.place)
			text := ""
			for _, p := range problems {
				text += p.Summary + "\n"
			}
			if (c.want == "") != (len(problems) == 0) || !strings.Contains(text, c.want) {
				t.Errorf("problems %q, want %q", text, c.want)
			}
		})
	}
}

func TestPlanOfAModelThatIsNotKnown(t *testing.T) {
	t.Parallel()
	e, problems := (&Server{}).Plan(Config{Model: "someone/new-model"}, sdk.Placement{GPUs: 1})
	if len(problems) > 0 || len(e.Amounts) > 0 || len(e.Notes) != 1 {
		t.Errorf("amounts %v, notes %v, problems %v; want one note and nothing invented", e.Amounts, e.Notes, problems)
	}
}

func TestPlanOnACPU(t *testing.T) {
	t.Parallel()
	e, _ := (&Server{}).Plan(Config{Model: "HuggingFaceTB/SmolLM2-135M-Instruct", Dtype: "float32", MaxModelLen: 256,
		CPUKVCacheSpace: 1}, sdk.Placement{})
	for _, a := range e.Amounts {
		if a.Resource != "host_memory" {
			t.Errorf("%+v, want host_memory", a)
		}
	}
	if got := e.Amounts[1].Value; got != 1<<30 {
		t.Errorf("KV cache %v, want 1 GiB", got)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	yes := true
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"managed rank":            {Config{ExtraArgs: []string{"--max-lora-rank=64"}}, "--max-lora-rank cannot be given"},
		"managed flag":            {Config{ExtraArgs: []string{"--seed", "1", "--port=8000"}}, "--port cannot be given"},
		"lora and servers":        {Config{EnableLora: true, MaxLoraRank: 16, APIServerCount: 4}, "go with enable_lora"},
		"rank":                    {Config{EnableLora: true, MaxLoraRank: 24}, "LoRA rank 24"},
		"compile":                 {Config{EnforceEager: true, Compile: &yes}, "does not go with enforce_eager"},
		"tools":                   {Config{EnableAutoToolChoice: &yes}, "needs tool_call_parser"},
		"rank without adapters":   {Config{MaxLoraRank: 64}, "max_lora_rank has no effect"},
		"number without adapters": {Config{MaxLoras: 2}, "max_loras has no effect"},
		"default rank":            {Config{MaxLoraRank: 16}, ""},
		"two templates": {Config{ChatTemplate: "{{ x }}", ChatTemplateName: "tool_use"},
			"chat_template_name has no effect"},
		"twice": {Config{MaxModelLen: 4096, ExtraArgs: []string{"--max_model_len=8192"}},
			"--max-model-len in extra_args stands in the place"},
		"managed with underscores": {Config{ExtraArgs: []string{"--served_model_name", "x"}},
			"--served-model-name cannot be given"},
		"tokens of a step":    {Config{MaxNumSeqs: 512, MaxNumBatchedTokens: 256}, "is below max_num_seqs"},
		"overrides":           {Config{HFOverrides: "x"}, "hf_overrides cannot be given"},
		"float8 of float32":   {Config{Quantization: "fp8", Dtype: "float"}, `does not go with dtype = "float"`},
		"float8 that sleeps":  {Config{Quantization: "fp8_per_channel", EnableSleepMode: true}, ""},
		"quantized and sleep": {Config{Quantization: "awq", EnableSleepMode: true}, "takes new ones by restart only"},
		"fine": {Config{EnableLora: true, MaxLoraRank: 64, ToolCallParser: "hermes",
			ExtraArgs: []string{"--swap-space", "4"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			problems := (&Server{}).Validate(c.config)
			text := ""
			for _, p := range problems {
				text += p.Summary + "\n"
			}
			if (c.want == "") != (len(problems) == 0) || !strings.Contains(text, c.want) {
				t.Errorf("problems %q, want %q", text, c.want)
			}
		})
	}
}

// A server on a CPU has nothing to give back; a recipe for both kinds of machine says the size of a CPU's cache, too.
func TestWhoSleeps(t *testing.T) {
	t.Parallel()
	for _, gpus := range []int{0, 1} {
		e, problems := (&Server{}).Plan(Config{Model: "org/m", CPUKVCacheSpace: 1, EnableSleepMode: true},
			sdk.Placement{GPUs: gpus})
		told := len(problems) == 1 && problems[0].Warning && problems[0].Summary == "enable_sleep_mode has no effect"
		if told != (gpus == 0) || len(problems) > 0 != told {
			t.Errorf("%d GPUs: %v", gpus, problems)
		}
		if sleeps := strconv.FormatBool(gpus > 0); e.Facts["sleeps"] != sleeps {
			t.Errorf("%d GPUs: sleeps is %s", gpus, e.Facts["sleeps"])
		}
	}
}

func TestDefinition(t *testing.T) {
	t.Parallel()
	d := Plugin()
	for _, name := range []string{"model", "max_model_len", "gpu_memory_utilization", "tensor_parallel_size",
		"extra_args"} {
		a := d.Schema.Attribute(name)
		if a == nil || a.Doc == "" {
			t.Errorf("attribute %s is missing or has no documentation", name)
		}
	}
}

func TestPlanTellsPrecisionAndLogprobs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config Config
		want   [2]string
	}{
		"nothing set": {Config{Dtype: "auto", LogprobsMode: "processed_logprobs"}, [2]string{"processed", ""}},
		"half":        {Config{Dtype: "half", LogprobsMode: "raw_logprobs"}, [2]string{"raw", "float16"}},
		"float":       {Config{Dtype: "float", LogprobsMode: "processed_logprobs"}, [2]string{"processed", "float32"}},
		"quantized": {Config{Dtype: "auto", Quantization: "fp8", LogprobsMode: "processed_logprobs"},
			[2]string{"processed", "fp8"}},
	} {
		e, _ := (&Server{}).Plan(c.config, sdk.Placement{})
		if got := [2]string{e.Facts["logprobs_mode"], e.Facts["dtype"]}; got != c.want {
			t.Errorf("%s: facts %v, want %v", name, got, c.want)
		}
	}
}

func TestPlanTellsTheChatTemplate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	enginetest.Put(t, dir, "tokenizer_config.json", `{"chat_template":[{"name":"default","template":"A"},{"name":"tool_use","template":"B"}]}`)
	enginetest.Put(t, dir, "own.jinja", "C\n")
	own := filepath.Join(dir, "own.jinja")
	for name, c := range map[string]struct {
		config     Config
		want, from string
		wrong      string
	}{
		"default of the tokenizer": {Config{Model: dir}, chat.Digest("A"), dir, ""},
		"by name":                  {Config{Model: dir, ChatTemplateName: "tool_use"}, chat.Digest("B"), dir, ""},
		"no such name":             {Config{Model: dir, ChatTemplateName: "rag"}, "", "", `none is called "rag"`},
		"file":                     {Config{Model: dir, ChatTemplate: own}, chat.Digest("C"), own, ""},
		"literal": {Config{Model: dir, ChatTemplate: "{{ messages }}"}, chat.Digest("{{ messages }}"),
			"its attribute chat_template", ""},
		"tokenizer elsewhere": {Config{Model: "org/m", Tokenizer: dir}, chat.Digest("A"), dir, ""},
		"not on this machine": {Config{Model: "org/m"}, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, problems := (&Server{}).Plan(c.config, sdk.Placement{})
			if got := e.Facts["chat_template"]; got != c.want || e.Facts["chat_template_from"] != c.from {
				t.Errorf("facts %v, want template %q from %q", e.Facts, c.want, c.from)
			}
			if (c.wrong == "") != (len(problems) == 0) || c.wrong != "" && !strings.Contains(problems[0].Summary, c.wrong) {
				t.Errorf("problems %v, want %q", problems, c.wrong)
			}
		})
	}
}
