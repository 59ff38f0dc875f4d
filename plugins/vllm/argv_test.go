package vllm

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/kit/chat"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// launch is one start of a server.
type launch struct {
	Config                                            Config
	Model, Tokenizer, ChatTemplate, Extension, APIKey string
	Formats                                           engine.Formats
	Port, Cores                                       int
	Devices                                           []string
	Environment                                       map[string]string
}

func (l launch) split() (*program, engine.Launch) {
	p := &program{l.Config, engine.Installation{Extension: l.Extension, ChatTemplate: l.ChatTemplate,
		Environment: l.Environment, Formats: l.Formats}, machine{l.Cores, 1 << 30}}
	return p, engine.Launch{Model: l.Model, Tokenizer: l.Tokenizer, Port: l.Port, Devices: l.Devices, Key: l.APIKey}
}

func (l launch) arguments() ([]string, error) {
	p, e := l.split()
	return p.arguments(e)
}

func (l launch) environ(base []string) []string {
	p, e := l.split()
	e.Environ = base
	return p.environ(e)
}

// launches are starts that together set every attribute.
func launches() map[string]launch {
	yes, no, seed, unlimited := true, false, int64(0), int64(-1)
	return map[string]launch{
		"least": {Config: Config{Model: "Qwen/Qwen2.5-1.5B-Instruct", Dtype: "auto", GenerationConfig: "vllm",
			LogprobsMode: "processed_logprobs"}, Model: "Qwen/Qwen2.5-1.5B-Instruct", Port: 41000, Extension: "/run/python",
			APIKey: "key"},
		"cpu": {
			Config: Config{Model: "./smollm2", Dtype: "float32", MaxModelLen: 256, MaxNumSeqs: 64, EnforceEager: true,
				CPUKVCacheSpace: 1, GenerationConfig: "vllm", LogprobsMode: "processed_logprobs"},
			Model: "/recipes/smollm2", Port: 41000, Extension: "/run/python", APIKey: "key",
			Environment: map[string]string{"OMP_NUM_THREADS": "1", "PYTHONPATH": "/mine"},
		},
		"lora": {
			Config: Config{Model: "org/m", EnableLora: true, MaxLoraRank: 64, MaxLoras: 2, ServedModelName: "policy",
				Seed: &seed, EnablePrefixCaching: &no},
			Model: "org/m", Port: 41001, Devices: []string{"2", "3"}, Extension: "/run/python", APIKey: "key",
		},
		"gpu": {
			Config: Config{Model: "org/m", GPUMemoryUtilization: 0.4, Replicas: 1, TensorParallelSize: 1}, Model: "org/m",
			Devices: []string{"1"}, Extension: "/run/python", Port: 41003, Cores: 16, APIKey: "key",
		},
		"tools": {
			Config: Config{Model: "org/m", ToolCallParser: "auto", ReasoningParser: "auto"}, Model: "org/m", Port: 41004,
			Extension: "/run/python", APIKey: "key", Formats: engine.Formats{Tools: chat.Llama3, Reasoning: chat.Qwen3},
		},
		"everything": {
			Config: Config{
				Model: "org/m", Revision: "main", Tokenizer: "org/t", ServedModelName: "m", Dtype: "bfloat16", Quantization: "fp8",
				LoadFormat: "safetensors", TrustRemoteCode: true,
				HFOverrides: map[string]any{"rope_scaling": map[string]any{"factor": 2.0}}, MaxModelLen: 4096, MaxNumSeqs: 256,
				MaxNumBatchedTokens:  8192,
				GPUMemoryUtilization: 0.45, KVCacheDtype: "fp8", KVCacheMemoryBytes: 1 << 30, EnablePrefixCaching: &yes,
				EnforceEager:       true,
				TensorParallelSize: 2, PipelineParallelSize: 2, DataParallelSize: 2, APIServerCount: 4, StreamInterval: 8,
				ToolCallParser:   "hermes",
				ReasoningParser:  "qwen3",
				GenerationConfig: "auto", LogprobsMode: "raw_logprobs", MaxLogprobs: &unlimited, EnableSleepMode: true,
				ExtraArgs: []string{"--swap-space", "4"},
			},
			Model: "org/m", Tokenizer: "org/t", ChatTemplate: "/run/chat_template.jinja", Port: 41002, APIKey: "key",
			Extension: "/run/python",
		},
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for name, l := range launches() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args, err := l.arguments()
			if err != nil {
				t.Fatal(err)
			}
			env := l.environ([]string{"PATH=/bin", "VLLM_API_KEY=of the user", "PYTHONPATH=/theirs"})
			golden(t, "argv/"+name, strings.Join(args, "\n")+"\n\n"+strings.Join(env, "\n")+"\n")
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update rewrites it)\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

// Whether a model is compiled: as the recipe says, else left to recipe_graphs.py where nothing in the block needs the
// compiler.
func TestCompiling(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	const open, set = graphsVariable + "=auto", compilerVariable + "="
	gpu := []string{"0"}
	for name, c := range map[string]struct {
		config  Config
		devices []string
		want    string // the one variable of the two that is set; empty: none
	}{
		"one gpu":            {Config{}, gpu, open},
		"without a gpu":      {Config{}, nil, ""},
		"asked for":          {Config{Compile: &yes}, gpu, set + "0"},
		"unwanted":           {Config{Compile: &no, EnableLora: true, TensorParallelSize: 2}, []string{"0", "1"}, set + "1"},
		"two gpus":           {Config{TensorParallelSize: 2}, []string{"0", "1"}, ""},
		"beside the trainer": {Config{PeerDevices: []string{"1"}}, []string{"0", "1"}, open},
		"adapters":           {Config{EnableLora: true}, gpu, ""},
		"quantized before":   {Config{Quantization: "awq"}, gpu, ""},
		"float8":             {Config{Quantization: "fp8_per_channel"}, gpu, graphsVariable + "=auto"},
		"eager":              {Config{EnforceEager: true}, gpu, ""},
		"other arguments":    {Config{ExtraArgs: []string{"--swap-space", "4"}}, gpu, open},
		"its own graphs":     {Config{ExtraArgs: []string{"--compilation-config", `{"mode": 3}`}}, gpu, ""},
		"with an equal sign": {Config{ExtraArgs: []string{"--max-cudagraph-capture-size=64"}}, gpu, ""},
		"shortened":          {Config{ExtraArgs: []string{"-cc.mode=3"}}, gpu, ""},
		"optimization level": {Config{ExtraArgs: []string{"-O3"}}, gpu, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := launch{Config: c.config, Devices: c.devices}.environ(nil)
			var got []string
			for _, v := range env {
				if strings.HasPrefix(v, graphsVariable) || strings.HasPrefix(v, compilerVariable) {
					got = append(got, v)
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("set %q, want %q", got, c.want)
			}
		})
	}
	own := launch{Devices: gpu, Environment: map[string]string{compilerVariable: "0"}}.environ(nil)
	if !slices.Contains(own, set+"0") || slices.Contains(own, set+"1") {
		t.Errorf("the recipe's own %s is not passed on: %q", compilerVariable, own)
	}
}

// Both ends of the supported range have every option, and accept the values that vLLM restricts; so does the newer
// version that was read.
func TestBothEndsOfTheRangeKnowTheOptions(t *testing.T) {
	t.Parallel()
	for _, version := range []string{oldestVersion, newestVersion, readVersion} {
		known := options(t, version)
		for name, l := range launches() {
			l.Config.ExtraArgs = nil // the user's own
			args, err := l.arguments()
			if err != nil {
				t.Fatal(err)
			}
			for i, arg := range args {
				if !strings.HasPrefix(arg, "--") {
					continue
				}
				values, ok := known[arg]
				if !ok {
					t.Errorf("%s: vLLM %s has no option %s", name, version, arg)
				}
				if len(values) > 0 && i+1 < len(args) && !slices.Contains(values, args[i+1]) {
					t.Errorf("%s: %s of vLLM %s does not take %s, only %q", name, arg, version, args[i+1], values)
				}
			}
		}
		for _, attribute := range []string{"dtype", "logprobs_mode"} {
			flag := "--" + strings.ReplaceAll(attribute, "_", "-")
			for _, value := range Plugin().Schema.Attribute(attribute).Enum {
				if len(known[flag]) > 0 && !slices.Contains(known[flag], value) {
					t.Errorf("%s of vLLM %s does not take %s, only %q", flag, version, value, known[flag])
				}
			}
		}
	}
}

// options are those of `vllm serve` as testdata/options.py has printed them with a version of vLLM, each with the
// values that it is restricted to.
func options(t *testing.T, version string) map[string][]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "options", version+".txt"))
	if err != nil {
		t.Fatalf("%v; record it: run testdata/options.py with the Python of vLLM %s", err, version)
	}
	known := map[string][]string{}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		known[fields[0]] = fields[1:]
	}
	return known
}

func TestTheKeyIsNoArgument(t *testing.T) {
	t.Parallel()
	l := launch{Config: Config{Model: "m"}, APIKey: "very secret"}
	args, err := l.arguments()
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, "secret") }) {
		t.Fatalf("every user of the machine can read the arguments of a process: %q", args)
	}
}

func TestFrontEndsWhereNothingSaysHowMany(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config      Config
		gpus, cores int
		want        int64
	}{
		"a GPU, many cores":        {Config{}, 1, 64, 4},
		"a GPU, sixteen cores":     {Config{Replicas: 1}, 1, 16, 4},
		"a GPU, eight cores":       {Config{}, 1, 8, 2},
		"a GPU, few cores":         {Config{}, 1, 4, 0},
		"replicas share the cores": {Config{Replicas: 4}, 1, 32, 2},
		"no GPU":                   {Config{}, 0, 64, 0},
		"adapters":                 {Config{EnableLora: true}, 1, 64, 0},
		"data parallel":            {Config{DataParallelSize: 2}, 2, 64, 0},
		"in extra_args":            {Config{ExtraArgs: []string{"--api-server-count=1"}}, 1, 64, 0},
	} {
		if got := c.config.frontEnds(c.gpus, c.cores); got != c.want {
			t.Errorf("%s: %d, expected %d", name, got, c.want)
		}
	}
}

func TestTheWorkerIsApartWhereNothingSaysOtherwise(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config      Config
		gpus, cores int
		shared      uint64 // MiB
		want        bool
	}{
		"a GPU, sixteen cores":      {Config{Replicas: 1}, 1, 16, 1024, true},
		"a GPU, few cores":          {Config{}, 1, 4, 1024, false},
		"a container as Docker has": {Config{}, 1, 16, 64, false},
		"replicas share the cores":  {Config{Replicas: 4}, 1, 24, 65536, false},
		"replicas share the memory": {Config{Replicas: 4}, 1, 64, 1024, false},
		"a server for each GPU":     {Config{Replicas: 4}, 1, 32, 2048, true},
		"no GPU":                    {Config{}, 0, 64, 65536, false},
		"it sees another's memory":  {Config{}, 2, 16, 1024, true},
		"vLLM does so itself":       {Config{TensorParallelSize: 2}, 2, 64, 65536, false},
		"in extra_args":             {Config{ExtraArgs: []string{executorArgument, "uni"}}, 1, 64, 65536, false},
	} {
		if got := c.config.workerApart(c.gpus, machine{c.cores, c.shared << 20}); got != c.want {
			t.Errorf("%s: %t, expected %t", name, got, c.want)
		}
	}
}

// Packages that lie there as sources only are compiled once, not by each server.
func TestCompiledPackagesAreKept(t *testing.T) {
	python, _, cache := plugintest.Uncompiled(t)
	p := &program{Config{}, engine.Installation{Python: python}, machine{}}
	env := p.environ(engine.Launch{Environ: []string{"PYTHONDONTWRITEBYTECODE=1"}})
	if want := "PYTHONPYCACHEPREFIX=" + cache; !slices.Contains(env, want) {
		t.Errorf("%q is not in %q", want, env)
	}
}
