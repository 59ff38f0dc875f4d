package sglang

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
	"github.com/recipe-rl/recipe/sdk/kit/engine/enginetest"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// play makes the test binary the server program.
func play(t *testing.T, more map[string]string) plugintest.Option {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return func(r *pluginpb.StartRequest) {
		r.Runtime = &pluginpb.Runtime{Python: exe}
		r.Environment = map[string]string{fakeMark: "1"}
		for k, v := range more {
			r.Environment[k] = v
		}
	}
}

// serve runs a block with its gateway until the test ends.
func serve(t *testing.T, config map[string]cty.Value, more map[string]string) *gateway.Client {
	t.Helper()
	config["model"] = cty.StringVal(enginetest.Model(t, 0))
	b := plugintest.Harness(t, Plugin())
	b.Start(cty.ObjectVal(config), play(t, more))
	b.Ready()
	g := gateway.NewClient(b.Output("control_url"), b.Output("control_token"))
	t.Cleanup(g.Close)
	return g
}

// load loads weights that are then verified: a token's log-probability is -1 - weight.
func load(t *testing.T, g *gateway.Client, w sdk.Weights, weight float64) error {
	t.Helper()
	check := &gateway.Check{Tokens: []int{1, 2, 3}, Logprobs: []float64{0, -1 - weight, -1 - weight}, Tolerance: 1e-9}
	_, err := g.UpdateWeights(t.Context(), gateway.WeightUpdate{Weights: w, Check: check})
	return err
}

func TestCompliance(t *testing.T) {
	plugintest.Compliance(t, Plugin(), plugintest.Suite{
		Config: func(t *testing.T) any {
			return cty.ObjectVal(map[string]cty.Value{"model": cty.StringVal(enginetest.Model(t, 0))})
		},
		Options: []plugintest.Option{play(t, nil)},
		Bad: map[string]func(t *testing.T) any{
			"port in extra_args": func(t *testing.T) any {
				return cty.ObjectVal(map[string]cty.Value{"model": cty.StringVal(enginetest.Model(t, 0)),
					"extra_args": cty.ListVal([]cty.Value{cty.StringVal("--port"), cty.StringVal("8000")})})
			},
		},
		Weights: func(t *testing.T, _ string, version int64) sdk.Weights {
			return sdk.Weights{Version: version, Path: enginetest.Model(t, float64(version)), Format: "hf", Transport: "reload",
				Precision: "float32"}
		},
	})
}

// Every transport changes what is served, also for a server of several workers, and each update is verified.
func TestEachTransport(t *testing.T) {
	t.Parallel()
	for old, workers := range map[string]int64{"": 1, "yes": 2} {
		g := serve(t, map[string]cty.Value{"tp_size": cty.NumberIntVal(workers)}, map[string]string{fakeOld: old})
		version := int64(0)
		for i, by := range []transport.Name{"reload", "ipc", "live", "nccl", "ipc", "restart"} {
			version++
			weight := float64(version + 2)
			w := sdk.Weights{Version: version, Transport: by, Format: "hf", Path: enginetest.Model(t, weight)}
			if by.Tensors() {
				w.Path, w.Format = "", "handles"
				w.Handles = `{"key":"trainer-` + strconv.Itoa(i) + `","weight":` + strconv.FormatFloat(weight, 'g', -1, 64) + `}`
			}
			if err := load(t, g, w, weight); err != nil {
				t.Fatalf("%d workers, %s: %v", workers, by, err)
			}
		}
	}
}

func TestWeightsThatDoNotFitLeaveTheServerAsItIs(t *testing.T) {
	t.Parallel()
	g := serve(t, map[string]cty.Value{}, nil)
	for what, w := range map[string]sdk.Weights{
		"does not fit: model.norm.weight": {Transport: "ipc", Handles: `{"key":"a","weight":-1}`},
		"without handles":                 {Transport: "live"},
		"not complete":                    {Transport: "reload", Format: "hf", Path: t.TempDir()},
		"without LoRA":                    {Transport: "lora", Format: "lora", Path: enginetest.Model(t, 1)},
	} {
		w.Version = 1
		if err := load(t, g, w, 1); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v; want an error with %q", err, what)
		}
	}
	got, err := g.Logprobs(t.Context(), []int{1, 2})
	if err != nil || got[0].Logprobs[1] != -1 {
		t.Errorf("%v, %v; want what was served before", got, err)
	}
}

// A frozen request keeps the cache from being emptied, which would end the server: the update continues, since requests
// carry the version as their salt.
//
//docs:troubleshooting.md SGLang ends when its cache is to be emptied under frozen requests, or its memory given …
func TestAnUpdateUnderRequests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := serve(t, map[string]cty.Value{}, map[string]string{fakeBusy: filepath.Join(dir, "busy")})
	enginetest.Put(t, dir, "busy", "")
	w := sdk.Weights{Version: 1, Transport: "reload", Format: "hf", Path: enginetest.Model(t, 4)}
	if err := load(t, g, w, 4); err != nil {
		t.Error(err)
	}
	w = sdk.Weights{Version: 2, Transport: "live", Handles: `{"key":"a","weight":5}`}
	if err := load(t, g, w, 5); err != nil {
		t.Error(err)
	}
}

func TestAnAdapterTakesThePolicysName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := serve(t, map[string]cty.Value{"enable_lora": cty.True},
		map[string]string{fakeBusy: filepath.Join(dir, "busy")})
	for version := range int64(2) {
		weight := float64(version + 3)
		w := sdk.Weights{Version: version + 1, Transport: "lora", Format: "lora", Path: enginetest.Model(t, weight)}
		if err := load(t, g, w, weight); err != nil {
			t.Fatal(err)
		}
	}
	enginetest.Put(t, dir, "busy", "")
	w := sdk.Weights{Version: 3, Transport: "lora", Format: "lora", Path: enginetest.Model(t, 9)}
	if err := load(t, g, w, 9); err == nil || !strings.Contains(err.Error(), "no request uses it") {
		t.Errorf("%v; want a message about the requests in flight", err)
	}
}

// SGLang would accept an adapter of another model and end at the next request, and it refuses too large a rank when the
// adapter before it is gone. Here that one goes on to answer, in the same process: the restart of a server would have
// put the version before it back.
func TestAnAdapterThatDoesNotFitLeavesTheOneBefore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		old    string
		change func(t *testing.T, dir string)
		want   []string
	}{
		"another model": {"", func(t *testing.T, dir string) {
			t.Helper()
			enginetest.Adapt(t, dir, "model.layers.0.self_attn.q_projection")
		}, []string{"model.layers.0.self_attn.q_projection", "adapter_model.safetensors", "takes adapters in o_proj)"}},
		"more layers, an old server": {"yes", func(t *testing.T, dir string) {
			t.Helper()
			enginetest.Adapt(t, dir, "model.layers.2.self_attn.o_proj")
		}, []string{"model.layers.2.self_attn.o_proj", "adapter_model.safetensors", "takes adapters in o_proj)"}},
		"too large a rank": {"", func(t *testing.T, dir string) {
			t.Helper()
			enginetest.Put(t, dir, "adapter_config.json", `{"r": 17}`)
		}, []string{"is of rank 17", "up to 16"}},
		"no configuration": {"", func(t *testing.T, dir string) {
			t.Helper()
			enginetest.Put(t, dir, "adapter_config.json", "{")
		}, []string{"adapter_config.json", "the server was left as it was"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := filepath.Join(t.TempDir(), "asked")
			g := serve(t, map[string]cty.Value{"enable_lora": cty.True}, map[string]string{fakeOld: c.old, fakeAsked: asked})
			w := sdk.Weights{Version: 1, Transport: "lora", Format: "lora", Path: enginetest.Model(t, 3)}
			if err := load(t, g, w, 3); err != nil {
				t.Fatal(err)
			}
			before := adapterCalls(t, asked)
			w.Version, w.Path = 2, enginetest.Model(t, 4)
			c.change(t, w.Path)
			err := load(t, g, w, 4)
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v; want an error with %q", err, want)
				}
			}
			if after := adapterCalls(t, asked); !slices.Equal(after, before) {
				t.Errorf("the server was asked for %q beyond %q", after[len(before):], before)
			}
			got, err := g.Logprobs(t.Context(), []int{1, 2})
			if err != nil || got[0].Logprobs[1] != -4 {
				t.Errorf("%v, %v; want what was served before", got, err)
			}
		})
	}
}

// adapterCalls are the requests of fake servers that began or ended an adapter, and their starts.
func adapterCalls(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// The fake exits when released memory is used, or acquired twice.
//
//docs:troubleshooting.md SGLang ends when its cache is to be emptied under frozen requests, or its memory given …
func TestSleep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := serve(t, map[string]cty.Value{"enable_memory_saver": cty.True},
		map[string]string{fakeBusy: filepath.Join(dir, "busy")})
	turn := func(level int) string {
		t.Helper()
		hold, err := g.Hold(t.Context(), gateway.HoldRequest{Reason: "a turn", Lease: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Sleep(t.Context(), hold.ID, level); err != nil {
			t.Fatal(err)
		}
		return hold.ID
	}
	for version := range int64(2) {
		id := turn(int(version + 1))
		weight := float64(version + 3)
		w := sdk.Weights{Version: version + 1, Transport: "ipc", Handles: `{"key":"k` + strconv.Itoa(int(version)) +
			`","weight":` + strconv.Itoa(int(weight)) + `}`}
		check := &gateway.Check{Tokens: []int{1, 2, 3}, Logprobs: []float64{0, -1 - weight, -1 - weight}, Tolerance: 1e-9}
		if _, err := g.UpdateWeights(t.Context(), gateway.WeightUpdate{Weights: w, Check: check, Hold: id}); err != nil {
			t.Fatal(err)
		}
		if err := g.Resume(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Resume(t.Context(), turn(1)); err != nil { // without new weights
		t.Fatal(err)
	}
	if got, err := g.Logprobs(t.Context(), []int{1, 2}); err != nil || got[0].Logprobs[1] != -5 {
		t.Errorf("%v, %v; want what was served before it slept", got, err)
	}
	enginetest.Put(t, dir, "busy", "")
	hold, err := g.Hold(t.Context(), gateway.HoldRequest{Reason: "a turn", Lease: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Sleep(t.Context(), hold.ID, 1); err == nil || !strings.Contains(err.Error(), "no requests") {
		t.Errorf("%v; want a message about the requests in flight", err)
	}
}

// Packages that lie there as sources only are compiled once, not by each of the server's processes.
func TestCompiledPackagesAreKept(t *testing.T) {
	python, _, cache := plugintest.Uncompiled(t)
	p := &program{in: engine.Installation{Python: python}}
	env := p.environ(engine.Launch{Environ: []string{"PYTHONDONTWRITEBYTECODE=1"}})
	if want := "PYTHONPYCACHEPREFIX=" + cache; !slices.Contains(env, want) {
		t.Errorf("%q is not in %q", want, env)
	}
}

//docs:troubleshooting.md Sampling defaults that change when a server starts from a checkpoint
func TestArguments(t *testing.T) {
	t.Parallel()
	seed := int64(3)
	in := engine.Installation{Python: "python", Extension: "/x"}
	gpu := &program{in: in, config: Config{Model: "org/m", Dtype: "bfloat16", TpSize: 2,
		MemFractionStatic: 0.4, EnableMemorySaver: true, EnableLora: true, MaxLoraRank: 8, RandomSeed: &seed,
		AttentionBackend: "fa3", ExtraArgs: []string{"--schedule-policy", "lpm"}}}
	l := engine.Launch{Model: "org/m", Port: 7, Devices: []string{"0", "1"}, Key: "secret"}
	command, err := gpu.Command(l)
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Join(command.Argv, " ")
	for _, want := range []string{"-m recipe_serve --model-path org/m --host 127.0.0.1 --port 7", "--tp-size 2",
		"--mem-fraction-static 0.4", "--enable-memory-saver --enable-weights-cpu-backup", "--lora-target-modules all",
		"--random-seed 3", "--attention-backend fa3", "--custom-weight-loader recipe_sglang.call"} {
		if !strings.Contains(line, want) {
			t.Errorf("%q is missing in %s", want, line)
		}
	}
	if !strings.HasSuffix(line, "--schedule-policy lpm") || strings.Contains(line, "secret") ||
		strings.Contains(line, "--device") {
		t.Errorf("odd: %s", line)
	}
	if !slices.Contains(command.Env, "RECIPE_SGLANG_KEY=secret") || !slices.Contains(command.Env, "PYTHONPATH=/x") ||
		!slices.Contains(command.Env, "CUDA_VISIBLE_DEVICES=0,1") {
		t.Errorf("environment %v", command.Env)
	}
	cpu := &program{in: in, cpu: true, config: Config{Model: "org/m"}}
	if command, err = cpu.Command(l); err != nil {
		t.Fatal(err)
	}
	line = strings.Join(command.Argv, " ")
	for _, want := range []string{"--device cpu", "--attention-backend torch_native", "--max-total-tokens 32768",
		"--disable-cuda-graph --disable-overlap-schedule"} {
		if !strings.Contains(line, want) {
			t.Errorf("%q is missing in %s", want, line)
		}
	}
	if !slices.Contains(command.Env, "SGLANG_USE_CPU_ENGINE=1") || !slices.Contains(command.Env, "PYTHONPATH=/x:/x/cpu") {
		t.Errorf("environment %v", command.Env)
	}
}

// Python's unpickler can read the request to the workers; extension/tests reads the same file.
func TestNamed(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("testdata/request.b64")
	if err != nil {
		t.Fatal(err)
	}
	if got := named([]byte(`{"do":"facts","reply":"/tmp/ü"}`)); got != strings.TrimSpace(string(want)) {
		t.Errorf("%s, want %s", got, want)
	}
}

// `recipe init`, the documentation and the plugin's warnings state the same range of versions.
func TestSupportedVersionsAreStatedOnce(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("../../scripts/python/sglang.txt")
	if err != nil {
		t.Fatal(err)
	}
	override, err := os.ReadFile("../../scripts/python/sglang.override.txt")
	if err != nil {
		t.Fatal(err)
	}
	cpu := packages(false)
	if !slices.Contains(packages(true).Requirements, "sglang=="+oldestVersion) {
		t.Errorf("with a GPU %v is installed", packages(true).Requirements)
	}
	for _, want := range cpu.Requirements {
		if !strings.Contains(string(list), want+"\n") {
			t.Errorf("scripts/python/sglang.txt lacks %s", want)
		}
	}
	for _, want := range cpu.Overrides {
		if !strings.Contains(string(override), want+"\n") {
			t.Errorf("scripts/python/sglang.override.txt lacks %s", want)
		}
	}
	oldest, err := os.ReadFile("../../scripts/python/sglang-oldest.txt")
	if err != nil || !strings.Contains(string(oldest), "sglang=="+oldestVersion+"\n") {
		t.Errorf("scripts/python/sglang-oldest.txt is not of %s: %v", oldestVersion, err)
	}
	docs, err := os.ReadFile("../../docs/sglang.md")
	if want := "SGLang " + oldestVersion + " to " + newestVersion; err != nil || !strings.Contains(string(docs), want) {
		t.Errorf("docs/sglang.md does not name %s: %v", want, err)
	}
}

// Logs called NAME.real.log were written by SGLang 0.5.17 on a machine without a GPU (scheduler: on one with a GPU),
// start-newest by 0.5.23.
func TestDiagnose(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/log/*.log")
	if err != nil || len(files) < 3 {
		t.Fatalf("found %d logs, %v", len(files), err)
	}
	for _, file := range files {
		name, _, _ := strings.Cut(filepath.Base(file), ".")
		if strings.HasPrefix(name, "start") {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		for _, s := range diagnosis().Symptoms {
			if s.Name == name {
				want = "SGLang did not start: " + s.Summary
			}
		}
		var e *sdk.Error
		if err := diagnosis().Explain(errors.New("exit status 1"), string(data), false); !errors.As(err, &e) ||
			e.Summary != want || e.Remedy == "" {
			t.Errorf("%s: got %+v\nwant %q", name, e, want)
		}
	}
}

// Of a traceback the message quotes the last line.
func TestAFailedSchedulerIsQuoted(t *testing.T) {
	t.Parallel()
	log, err := os.ReadFile("testdata/log/scheduler.real.log")
	if err != nil {
		t.Fatal(err)
	}
	var e *sdk.Error
	if err := diagnosis().Explain(errors.New("signal: killed"), string(log), false); !errors.As(err, &e) ||
		!strings.HasPrefix(e.Detail, "TypeError: linear(): argument 'input'") {
		t.Errorf("got %+v", e)
	}
}

// The stages of a real start are reported in their order, and nothing in it is reported as a failure.
func TestStagesOfAStart(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"start.real.log", "start-newest.real.log"} {
		data, err := os.ReadFile(filepath.Join("testdata/log", file))
		if err != nil {
			t.Fatal(err)
		}
		var begun []string
		for line := range strings.Lines(string(data)) {
			line = strings.TrimRight(line, "\n")
			if s, ok := logFormat().Stage(line); ok && s.Begins != "" {
				begun = append(begun, s.Begins)
			}
			if level, text, ok := logFormat().Event(line); ok {
				t.Errorf("%s: reported as %s: %s", file, level, text)
			}
		}
		want := []string{"importing for the schedulers", "loading weights", "warming up", "the first answer"}
		if !slices.Equal(begun, want) {
			t.Errorf("%s: stages %q, want %q", file, begun, want)
		}
	}
	level, text, ok := logFormat().Event("[2026-11-22 03:31:27 TP0] Scheduler hit an exception: Traceback (most recent " +
		"call last):")
	if !ok || level != "error" || !strings.HasPrefix(text, "Scheduler hit") {
		t.Errorf("%q %q %v; want the failure of a scheduler reported as an error", level, text, ok)
	}
}

// A server that does not start is explained by the plugin's message.
func TestAStartThatFailsIsExplained(t *testing.T) {
	t.Parallel()
	log, err := filepath.Abs("testdata/log/argument.real.log") // this failure is not retried, so it is reported at once
	if err != nil {
		t.Fatal(err)
	}
	b := plugintest.Harness(t, Plugin())
	b.Start(cty.ObjectVal(map[string]cty.Value{"model": cty.StringVal(enginetest.Model(t, 0))}),
		play(t, map[string]string{fakeLog: log}))
	b.Wait("the reason", func(e *pluginpb.Event) bool {
		return strings.Contains(e.String(), "this SGLang does not know an argument")
	})
}

func TestPlan(t *testing.T) {
	t.Parallel()
	e, problems := (&Server{}).Plan(Config{Model: enginetest.Model(t, 0), TpSize: 3, Replicas: 2, ContextLength: 1024,
		MaxTotalTokens: 4096, EnableLora: true, MaxLoraRank: 32}, sdk.Placement{GPUs: 2})
	var all []string
	for _, p := range problems {
		all = append(all, p.Summary)
	}
	for _, want := range []string{"6 GPUs are needed, placement gives 2", "made for 512 tokens", "2 attention heads"} {
		if !strings.Contains(strings.Join(all, "\n"), want) {
			t.Errorf("%q is missing in %q", want, all)
		}
	}
	if e.Facts["logprobs_mode"] != "processed" || e.Facts["transports"] != "live,ipc,nccl,lora,reload,restart" ||
		e.Facts["max_lora_rank"] != "32" || e.Facts["sleeps"] != "false" || len(e.Amounts) < 2 {
		t.Errorf("facts %v, amounts %v", e.Facts, e.Amounts)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	on := true
	problems := (&Server{}).Validate(Config{ExtraArgs: []string{"--api-key=x", "--max-lora-rank=32", "--tp-size",
		"2"}, ServedModelName: "a:b", EnableWeightsCPUBackup: &on, EnableLora: true, DpSize: 2})
	if len(problems) != 6 {
		t.Errorf("%d problems, want 6: %v", len(problems), problems)
	}
	problems = (&Server{}).Validate(Config{MaxLoraRank: 32, LoraTargetModules: []string{"q_proj"}, LoraBackend: "triton",
		Device: "cpu", EnableMemorySaver: true, ChatTemplate: "{{ x }}", HFChatTemplateName: "rag", ContextLength: 512,
		ExtraArgs: []string{"--context-length=1024"}})
	var idle []string
	for _, p := range problems {
		if !p.Warning {
			t.Errorf("not a warning: %v", p)
		}
		idle = append(idle, spec.PathString(p.Path))
	}
	if got := strings.Join(idle, " "); got != "lora_backend lora_target_modules max_lora_rank hf_chat_template_name "+
		"enable_memory_saver extra_args[0]" {
		t.Errorf("warned of %s", got)
	}
	if problems := (&Server{}).Validate(Config{JSONModelOverrideArgs: []any{1}}); len(problems) != 1 ||
		problems[0].Warning {
		t.Errorf("overrides that are no object: %v", problems)
	}
}
