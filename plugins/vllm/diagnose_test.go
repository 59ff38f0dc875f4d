package vllm

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
)

// Logs called NAME.real.log were written by vLLM 0.32 on a machine without a GPU; NAME.text.log has messages from the
// sources of vLLM, PyTorch, transformers and huggingface_hub, for failures that need a GPU or the hub.
func TestDiagnose(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/log/*.log")
	if err != nil || len(files) < 15 {
		t.Fatalf("found %d logs, %v; want at least 15", len(files), err)
	}
	for _, file := range files {
		name, _, _ := strings.Cut(filepath.Base(file), ".")
		if name == "start" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want := ""
			for _, s := range diagnosis().Symptoms {
				if s.Name == name {
					want = "vLLM did not start: " + s.Summary
				}
			}
			cause := errors.New("exit status 1")
			var e *sdk.Error
			if err := diagnosis().Explain(cause, string(data), false); !errors.As(err, &e) || e.Summary != want ||
				!errors.Is(err, cause) {
				t.Fatalf("got %+v\nwant %q", e, want)
			}
			if e.Remedy == "" || e.Detail == "" || strings.Contains(e.Detail, "ulimit") {
				t.Errorf("remedy %q, detail %q: both must help", e.Remedy, e.Detail)
			}
		})
	}
}

func TestDiagnoseUnknown(t *testing.T) {
	t.Parallel()
	var e *sdk.Error
	if err := diagnosis().Explain(errors.New("exit status 1"), "a\nsomething new\n", false); !errors.As(err, &e) ||
		!strings.Contains(e.Detail, "something new") {
		t.Fatalf("got %+v, want the log's last lines", e)
	}
	killed := exec.Command("sh", "-c", "kill -9 $$").Run()
	// Some builds report a missing optional part at each start; it is no reason for a failure.
	optional := "WARNING [cuda.py:45] Failed to import from vllm._qutlass_C: ModuleNotFoundError(\"No module " +
		"named 'vllm._qutlass_C'\")\n"
	if err := diagnosis().Explain(killed, optional+"INFO serving\n", false); !errors.As(err, &e) ||
		!strings.Contains(e.Remedy, "memory") {
		t.Fatalf("got %+v, want a message about the machine's memory", e)
	}
}

// Lines of the start do not explain the end of a server that has answered; lines about what ends one later do.
func TestDiagnoseLater(t *testing.T) {
	t.Parallel()
	start := "ImportError: cannot import name 'flash_attn'\n404 Client Error: generation_config.json\n"
	killed := exec.Command("sh", "-c", "kill -9 $$").Run()
	for log, want := range map[string]string{
		start:                                "vLLM was killed",
		start + "torch.OutOfMemoryError: \n": "vLLM ended: the GPU ran out of memory",
		start + "EngineDeadError: \n":        "vLLM ended: vLLM's engine process died",
		start + "[Errno 28] No space left on device\n": "vLLM ended: a disk is full",
	} {
		err := diagnosis().Explain(killed, log, true)
		var e *sdk.Error
		if !errors.As(err, &e) || e.Summary != want || e.Remedy == "" || engine.Hopeless(err) {
			t.Errorf("%q: got %+v, hopeless %v; want %q, and another try", log, e, engine.Hopeless(err), want)
		}
	}
}

func TestStagesOfARealStart(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/log/start.real.log")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	reported := 0
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\n")
		if s, ok := logFormat().Stage(line); ok && (len(got) == 0 || got[len(got)-1] != string(s.Phase)+" "+s.Message) {
			got = append(got, string(s.Phase)+" "+s.Message)
		}
		if _, _, ok := logFormat().Event(line); ok {
			reported++
		}
	}
	want := []string{
		"starting model is a LlamaForCausalLM", "starting starting the engine", "loading loading weights",
		"loading weights loaded in 0.84 s",
		"loading KV cache holds 23,296 tokens", "loading engine ready after 1.38 s, starting the front end",
		"loading waiting for the first answer",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("stages:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	crash, err := os.ReadFile("testdata/log/lora-dtype.real.log")
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for line := range strings.Lines(string(crash)) {
		if _, text, ok := logFormat().Event(strings.TrimRight(line, "\n")); ok {
			said = append(said, text)
		}
	}
	if strings.Join(said, "|") != "EngineCore failed to start.|AssertionError" {
		t.Errorf("a crash is reported as %q, want its first and its last line", said)
	}
	if reported > 1 {
		t.Errorf("%d lines of an ordinary start are reported as warnings; want at most 1", reported)
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]engine.Stage{
		"Loading safetensors checkpoint shards:  50% Completed | 1/2 " +
			"[00:00<00:00,  1.19it/s]": {Phase: sdk.Loading,
			Message: "loading weights", Done: 1, Total: 2},
		"Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  40%|████      | 27/67 " +
			"[00:01<00:02, 18.1it/s]": {Phase: sdk.Loading, Message: "capturing CUDA graphs",
			Begins: "capturing CUDA graphs", Done: 27, Total: 67},
		"(EngineCore pid=7) INFO 06-01 10:00:00 [monitor.py:34] torch.compile takes " +
			"14.20 s in total": {Phase: sdk.Loading, Message: "compiled in 14.20 s", Begins: "measuring memory"},
		"(EngineCore pid=7) INFO 06-01 10:00:00 [decorators.py:706] torch.compile and initial profiling/warmup run " +
			"together took 16.5 s in total": {Phase: sdk.Loading, Message: "compiled in 16.5 s", Begins: "measuring memory"},
		"(EngineCore pid=7) INFO 06-01 10:00:00 [backends.py:1105] Using cache directory: " +
			"/c/torch_compile_cache/1/rank_0_0 " +
			"for vLLM's torch.compile": {Phase: sdk.Loading, Message: "compiling the model", Begins: "compiling"},
		"(EngineCore pid=7) INFO 06-01 10:00:00 [kv_cache_utils.py:1086] GPU KV cache size: " +
			"1,165,232 tokens": {Phase: sdk.Loading,
			Message: "KV cache holds 1,165,232 tokens", Begins: "warming up", Takes: true},
		"(EngineCore pid=7) INFO 06-01 10:00:00 [model_runner.py:281] Loading model from scratch...": {Phase: sdk.Loading,
			Message: "loading weights", Begins: "loading weights"},
		"(EngineCore pid=7) INFO 06-01 10:00:00 [model_runner.py:726] Graph capturing finished in 27 secs, took " +
			"0.50 GiB": {Phase: sdk.Loading, Message: "CUDA graphs captured", Begins: "warming up kernels"},
		"(EngineCore pid=7) INFO 06-01 10:00:00 [core.py:402] init engine (profile, create kv cache, warmup model) took " +
			"26.73 s (compile 14.2 s)": {Phase: sdk.Loading, Message: "engine ready after 26.73 s, starting the front end",
			Begins: "starting the front end"},
	} {
		if got, ok := logFormat().Stage(line); !ok || got != want {
			t.Errorf("%s\ngot %+v, %v; want %+v", line, got, ok, want)
		}
	}
	if s, ok := logFormat().Stage("INFO: 200 OK"); ok {
		t.Errorf("an ordinary line became stage %+v", s)
	}
}
