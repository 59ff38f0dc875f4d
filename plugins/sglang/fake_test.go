package sglang

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/sdk/kit/engine"
	"github.com/recipe-rl/recipe/sdk/kit/engine/enginetest"
)

// The test binary is a fake SGLang when it is started as the block's interpreter: it accepts the launcher's arguments,
// writes SGLang's log and answers its routes in the formats that SGLang 0.5.17 and 0.5.23 used on a CPU. It exits where
// SGLang exits: when memory is released under requests, or acquired that it has, or its cache is to be emptied under
// requests, or an adapter is used that changes a module which it has not. What it serves is a number, read from
// weights.txt of the loaded folder; its log-probabilities follow from it.

const (
	fakeMark = "FAKE_SGLANG"      // set: play SGLang
	fakeLog  = "FAKE_SGLANG_LOG"  // write this file to the log and exit 1
	fakeBusy = "FAKE_SGLANG_BUSY" // while this file exists there is a request
	fakeOld  = "FAKE_SGLANG_OLD"  // set: play the oldest supported version, else the newest
	// fakeAsked is a file to which each start and each request about an adapter is appended.
	fakeAsked = "FAKE_SGLANG_ASKED"
)

func TestMain(m *testing.M) {
	if os.Getenv(fakeMark) != "" {
		os.Exit(playSGLang(os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

func playSGLang(args []string) int {
	if log := os.Getenv(fakeLog); log != "" {
		data, _ := os.ReadFile(log)
		_, _ = os.Stderr.Write(data)
		return 1
	}
	note("start")
	f := &fakeServer{args: args, adapters: map[string]string{}}
	f.weight = enginetest.Weight(f.flag("--model-path"))
	fmt.Println("[2026-11-22 02:53:27] Load weight end. elapsed=0.65 s, type=LlamaForCausalLM, avail mem=19.67 GB, mem " +
		"usage=0.41 GB.")
	fmt.Println("[2026-11-22 02:53:33] The server is fired up and ready to roll!")
	err := http.ListenAndServe("127.0.0.1:"+f.flag("--port"), f.routes())
	fmt.Println(err)
	return 1
}

type fakeServer struct {
	args []string

	mu       sync.Mutex
	weight   float64
	stale    float64 // weight that the prefix cache was computed with
	paused   bool
	adapters map[string]string
	away     []string // released parts of the memory
	opened   string   // key of the trainer's tensors
	updating bool     // between the begin and the end of an update
	shared   float64  // weight that they hold
}

func (f *fakeServer) flag(name string) string { return enginetest.Flag(f.args, name) }

func busy() bool {
	_, err := os.Stat(os.Getenv(fakeBusy))
	return err == nil
}

// note appends a line to the file of requests about adapters, if there is one.
func note(what string) {
	name := os.Getenv(fakeAsked)
	if name == "" {
		return
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, _ = fmt.Fprintln(file, what)
		_ = file.Close()
	}
}

func die(why string) {
	fmt.Println("[2026-11-22 02:53:33] Scheduler hit an exception: " + why)
	os.Exit(1)
}

func (f *fakeServer) routes() http.Handler {
	paths := map[string]func(http.ResponseWriter, map[string]any){
		"/health":                     func(http.ResponseWriter, map[string]any) {},
		"/v1/loads":                   f.loads,
		"/v1/models":                  f.models,
		"/v1/completions":             f.complete,
		"/generate":                   f.generate,
		"/pause_generation":           f.pause(true),
		"/continue_generation":        f.pause(false),
		"/update_weights_from_tensor": f.tensors,
		"/update_weights_from_disk":   f.disk,
		"/update_weight_version":      func(w http.ResponseWriter, b map[string]any) { enginetest.Reply(w, b) },
		"/flush_cache":                f.flush,
		"/release_memory_occupation":  f.release,
		"/resume_memory_occupation":   f.takeBack,
		"/load_lora_adapter":          f.load,
		"/unload_lora_adapter":        f.unload,
	}
	if os.Getenv(fakeOld) == "" {
		paths["/begin_weight_update"], paths["/end_weight_update"] = f.session(true), f.session(false)
	}
	mux := http.NewServeMux()
	for path, h := range paths {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+os.Getenv("RECIPE_SGLANG_KEY") {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			body := map[string]any{}
			_ = json.NewDecoder(r.Body).Decode(&body)
			f.mu.Lock()
			defer f.mu.Unlock()
			if strings.HasSuffix(path, "_lora_adapter") {
				note(path)
			}
			h(w, body)
		})
	}
	return mux
}

func refuse(w http.ResponseWriter, message string) {
	w.WriteHeader(http.StatusBadRequest)
	enginetest.Reply(w, map[string]any{"success": false, "message": message})
}

func (f *fakeServer) pause(paused bool) func(http.ResponseWriter, map[string]any) {
	return func(w http.ResponseWriter, _ map[string]any) { f.paused = paused; enginetest.Reply(w, "ok") }
}

func (f *fakeServer) session(open bool) func(http.ResponseWriter, map[string]any) {
	return func(w http.ResponseWriter, _ map[string]any) {
		if f.updating == open {
			refuse(w, "a weight-update session is already open, or none is")
			return
		}
		f.updating = open
		enginetest.Reply(w, map[string]any{"success": true, "message": "Success"})
	}
}

func (f *fakeServer) loads(w http.ResponseWriter, _ map[string]any) {
	running := 0
	if busy() {
		running = 1
	}
	version := newestVersion
	if os.Getenv(fakeOld) != "" {
		version = oldestVersion
	}
	enginetest.Reply(w, map[string]any{"version": version, "loads": []any{map[string]any{"num_running_reqs": running,
		"num_waiting_reqs": 0}}})
}

func (f *fakeServer) models(w http.ResponseWriter, _ map[string]any) {
	model := map[string]any{"id": f.flag("--served-model-name"), "max_model_len": 256}
	enginetest.Reply(w, map[string]any{"data": []any{model}})
}

// value is the log-probability of any token; a new salt finds nothing in the cache.
func (f *fakeServer) value(w http.ResponseWriter, name string) (float64, bool) {
	if len(f.away) > 0 {
		die("an illegal memory access was encountered")
	}
	base, adapter, _ := strings.Cut(name, ":")
	path, loaded := f.adapters[adapter]
	if base != f.flag("--served-model-name") || (adapter != "" && !loaded) {
		refuse(w, "The following requested LoRA adapters are not loaded: "+name)
		return 0, false
	}
	if modules, err := engine.AdapterModules(path); err == nil && len(unknownTo(modules)) > 0 {
		die("ValueError: Cannot find target module name for " + unknownTo(modules)[0])
	}
	return -1 - f.weight - enginetest.Weight(path), true
}

func (f *fakeServer) complete(w http.ResponseWriter, b map[string]any) {
	value, ok := f.value(w, fmt.Sprint(b["model"]))
	if !ok {
		return
	}
	enginetest.Reply(w, map[string]any{"choices": []any{map[string]any{
		"index": 0, "text": "x", "finish_reason": "length", "matched_stop": nil, "token_ids": []int{7},
		"prompt_token_ids": []int{1},
		"logprobs": map[string]any{"text_offset": []int{-1}, "tokens": []string{"x"}, "token_logprobs": []float64{value},
			"top_logprobs": []any{}},
	}}, "usage": map[string]any{"completion_tokens": 1}, "metadata": map[string]any{"weight_version": "default"}})
}

func (f *fakeServer) generate(w http.ResponseWriter, b map[string]any) {
	name := f.flag("--served-model-name")
	if path, ok := b["lora_path"]; ok {
		name += ":" + fmt.Sprint(path)
	}
	value, ok := f.value(w, name)
	if !ok {
		return
	}
	list := []any{}
	for i, id := range b["input_ids"].([]any) {
		if i == 0 {
			list = append(list, []any{nil, id, nil})
			continue
		}
		list = append(list, []any{value, id, nil})
	}
	enginetest.Reply(w, map[string]any{"text": "x", "output_ids": []int{7},
		"meta_info": map[string]any{"input_token_logprobs": list}})
}

func (f *fakeServer) disk(w http.ResponseWriter, b map[string]any) {
	path := fmt.Sprint(b["model_path"])
	_, bad := os.Stat(filepath.Join(path, "bad"))
	switch {
	case b["flush_cache"] != false && busy():
		die("AssertionError: Cache flush failed after updating weights")
	case slices.Contains(f.away, weightsTag):
		die("an illegal memory access was encountered")
	case bad == nil:
		refuse(w, "Failed to update weights: the shapes differ")
		return
	case !f.paused && len(f.away) == 0:
		refuse(w, "the fake waits for no request to end")
		return
	}
	f.weight = enginetest.Weight(path)
	enginetest.Reply(w, map[string]any{"success": true, "message": "Succeeded to update model weights."})
}

// unknownTo are the modules that the fake has not: it has o_proj in two layers.
func unknownTo(modules []string) []string {
	return slices.DeleteFunc(slices.Clone(modules), func(m string) bool {
		return m == "model.layers.0.self_attn.o_proj" || m == "model.layers.1.self_attn.o_proj"
	})
}

// tensors stands for extension/recipe_sglang.py. Handles are {"key", "weight"}, and a negative weight does not fit.
func (f *fakeServer) tensors(w http.ResponseWriter, b map[string]any) {
	list, _ := b["serialized_named_tensors"].([]any)
	if want := f.flag("--tp-size"); want != "" && want != strconv.Itoa(len(list)) {
		die("not as many parts as workers")
	}
	if b["load_format"] != f.flag("--custom-weight-loader") || b["flush_cache"] != false {
		die("NotImplementedError: Unknown load_format")
	}
	if !f.updating && os.Getenv(fakeOld) == "" {
		refuse(w, "update_weights_from_tensor must run between begin_weight_update() and end_weight_update()")
		return
	}
	data, _ := base64.StdEncoding.DecodeString(fmt.Sprint(list[0]))
	_, text, _ := bytes.Cut(data, []byte("](X"))
	var r request
	_ = json.Unmarshal(text[4:4+binary.LittleEndian.Uint32(text)], &r)
	var answer any
	switch r.Do {
	case "facts":
		answer = engine.WorkerFacts{Reach: []string{"host:here"}, Machine: "here", Arithmetic: "float32", Device: "cuda"}
	case "attach":
		var handles struct {
			Key    string  `json:"key"`
			Weight float64 `json:"weight"`
		}
		_ = json.Unmarshal([]byte(r.Handles), &handles)
		if handles.Weight < 0 {
			answer = engine.Copied{Refused: "model.norm.weight has shape [3] in the trainer and [4] in the server"}
			break
		}
		f.opened, f.shared = handles.Key, handles.Weight
		answer = engine.Copied{Bytes: 8}
	case "pull":
		switch {
		case f.opened != r.Key:
			answer = engine.Copied{Unknown: true}
		case f.opened == "half":
			answer = failure{"RuntimeError: the trainer went away while version 1 was copied"}
		default:
			f.weight = f.shared
			answer = engine.Copied{Path: "direct", Tensors: 1, Bytes: 8, Seconds: 0.001}
		}
	case "zero_adapter":
		_ = os.MkdirAll(r.Path, 0o700)
		answer = failure{}
	case "unknown_modules":
		answer = lacking{Unknown: unknownTo(r.Modules), Served: []string{"o_proj"}}
	}
	out, _ := json.Marshal(answer)
	workers, _ := strconv.Atoi(f.flag("--tp-size"))
	for i := range max(1, workers) {
		_ = os.WriteFile(answerFile(r.Reply, i), out, 0o600)
	}
	enginetest.Reply(w, map[string]any{"success": true, "message": "Success"})
}

func (f *fakeServer) flush(w http.ResponseWriter, _ map[string]any) {
	if busy() {
		refuse(w, "Please check backend logs for more details.")
		return
	}
	f.stale = f.weight
}

func tags(b map[string]any) (list []string) {
	for _, tag := range b["tags"].([]any) {
		list = append(list, fmt.Sprint(tag))
	}
	return list
}

func (f *fakeServer) release(w http.ResponseWriter, b map[string]any) {
	if busy() {
		die("AssertionError: release_memory_occupation should be called only when server is idle.")
	}
	f.away = append(f.away, tags(b)...)
	if !slices.Contains(f.args, "--enable-memory-saver") {
		die("no memory saver")
	}
	if !slices.Contains(f.args, "--enable-weights-cpu-backup") {
		f.weight = -1e9
	}
	enginetest.Reply(w, nil)
}

func (f *fakeServer) takeBack(w http.ResponseWriter, b map[string]any) {
	for _, tag := range tags(b) {
		i := slices.Index(f.away, tag)
		if i < 0 {
			die("KeyError: " + tag)
		}
		f.away = slices.Delete(f.away, i, i+1)
	}
	enginetest.Reply(w, nil)
}

func (f *fakeServer) load(w http.ResponseWriter, b map[string]any) {
	name := fmt.Sprint(b["lora_name"])
	if _, there := f.adapters[name]; there {
		refuse(w, "LoRA with name "+name+" is already loaded")
		return
	}
	f.adapters[name] = fmt.Sprint(b["lora_path"])
	enginetest.Reply(w, map[string]any{"success": true})
}

func (f *fakeServer) unload(w http.ResponseWriter, b map[string]any) {
	name := fmt.Sprint(b["lora_name"])
	if _, there := f.adapters[name]; !there {
		refuse(w, "LoRA adapter "+name+" does not exist")
		return
	}
	if busy() {
		select {} // it waits for the request
	}
	delete(f.adapters, name)
	enginetest.Reply(w, map[string]any{"success": true})
}
