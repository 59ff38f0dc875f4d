package vllm

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/sdk/kit/engine"
	"github.com/recipe-rl/recipe/sdk/kit/engine/enginetest"
)

// The test binary is a fake vLLM when it is started as the block's interpreter: it accepts vLLM's arguments, writes
// vLLM's log and answers vLLM's routes. What it serves is a number, read from weights.txt of the loaded folder; its
// log-probabilities follow from it.

const (
	fakeMark  = "FAKE_VLLM"       // set: play vLLM
	fakeLog   = "FAKE_VLLM_LOG"   // write this file to the log and exit 1
	fakeOnce  = "FAKE_VLLM_ONCE"  // fail only while this file does not exist, and make it
	fakeLess  = "FAKE_VLLM_LESS"  // routes to leave out, comma separated
	fakeCache = "FAKE_VLLM_CACHE" // "keeps": a prefix cache that takes no notice of cache_salt and that nothing empties
	fakeBusy  = "FAKE_VLLM_BUSY"  // the prefix cache cannot be emptied: "answer" says so, "assert" fails
	fakePids  = "FAKE_VLLM_PIDS"  // append the pids of server and engine to this file
	fakeSay   = "FAKE_VLLM_SAY"   // a line of the log
	fakeWait  = "FAKE_VLLM_WAIT"  // listen when this file exists
)

func TestMain(m *testing.M) {
	if os.Getenv(fakeMark) != "" {
		os.Exit(playVLLM(os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

func playVLLM(args []string) int {
	if log := os.Getenv(fakeLog); log != "" {
		once := os.Getenv(fakeOnce)
		_, err := os.Stat(once)
		if once == "" || err != nil {
			data, _ := os.ReadFile(log)
			_, _ = os.Stderr.Write(data)
			if once != "" {
				_ = os.WriteFile(once, nil, 0o600)
			}
			return 1
		}
	}
	f := &fakeServer{args: args, model: args[3], names: map[string]string{}, kept: map[string]float64{}}
	base, port := f.flag("--served-model-name"), f.flag("--port")
	f.names[base] = "base"
	f.weight = enginetest.Weight(f.model)

	engine := exec.Command("sleep", "600") // stands for vLLM's engine process
	if err := engine.Start(); err != nil {
		return 1
	}
	if path := os.Getenv(fakePids); path != "" {
		out, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return 1
		}
		_, _ = fmt.Fprintf(out, "%d %d\n", os.Getpid(), engine.Process.Pid)
		_ = out.Close()
	}
	fmt.Println("(EngineCore pid=7) INFO 11-21 05:37:50 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config")
	fmt.Println("Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<00:00,  1.19it/s]")
	fmt.Println("(EngineCore pid=7) INFO 11-21 05:38:15 [kv_cache_utils.py:2327] CPU KV cache size: 23,296 tokens")
	fmt.Println("(Worker pid=9) WARNING 11-21 05:38:12 [cpu_worker.py:114] something to know")
	fmt.Println(os.Getenv(fakeSay))
	for path := os.Getenv(fakeWait); path != "" && !enginetest.Exists(path, ""); {
		time.Sleep(5 * time.Millisecond)
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("INFO:     Application startup complete.")
	_ = http.Serve(l, f.routes())
	return 0
}

type fakeServer struct {
	args  []string
	model string

	mu      sync.Mutex
	names   map[string]string // model name of a client: "base", or the path of an adapter
	weight  float64
	stale   float64 // weight that the prefix cache was computed with
	paused  bool
	version string
	poison  bool
	opened  string  // key of the trainer's tensors
	shared  float64 // weight that they hold
	live    bool    // weights were copied without a pause
	nap     fakeNap
	kept    map[string]float64 // with fakeCache: the first answer to each prompt
}

// forget empties the prefix cache, or fails as vLLM does when a request still holds a part of it.
func (f *fakeServer) forget(w http.ResponseWriter, _ *http.Request) {
	switch os.Getenv(fakeBusy) {
	case "answer":
		enginetest.Reply(w, map[string]any{"success": false})
	case "assert":
		http.Error(w, "AssertionError: the cache is in use", http.StatusInternalServerError)
	default:
		f.stale = f.weight // vLLM 0.24 answers with an empty body
	}
}

func (f *fakeServer) flag(name string) string { return enginetest.Flag(f.args, name) }

func (f *fakeServer) routes() http.Handler {
	paths := map[string]http.HandlerFunc{
		"/health": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) },
		"/version": func(w http.ResponseWriter, _ *http.Request) {
			enginetest.Reply(w,
				map[string]any{"version": "0.32.0"})
		},
		"/is_paused": func(w http.ResponseWriter, _ *http.Request) {
			enginetest.Reply(w,
				map[string]any{"is_paused": f.paused})
		},
		"/pause":                 f.set(func() { f.paused = true }),
		"/resume":                f.set(func() { f.needs(engine.Weights, engine.KVCache); f.paused = false }),
		"/reset_prefix_cache":    f.forget,
		"/v1/models":             func(w http.ResponseWriter, _ *http.Request) { enginetest.Reply(w, f.list()) },
		"/v1/completions":        f.complete,
		"/collective_rpc":        f.rpc,
		"/update_weight_version": f.label,
		"/v1/load_lora_adapter":  f.adapter,
	}
	f.sleepRoutes(paths)
	for _, less := range strings.Split(os.Getenv(fakeLess), ",") {
		delete(paths, less)
	}
	names := map[string]any{}
	for p := range paths {
		names[p] = map[string]any{}
	}
	paths["/openapi.json"] = func(w http.ResponseWriter, _ *http.Request) {
		enginetest.Reply(w, map[string]any{"paths": names})
	}
	// Only the middleware demands the key on paths that do not exist.
	if _, ok := paths["/"]; !ok {
		paths["/"] = http.NotFound
	}
	mux := http.NewServeMux()
	for p, h := range paths {
		mux.HandleFunc(p, func(w http.ResponseWriter, r *http.Request) {
			if f.guards() && r.Header.Get("Authorization") != "Bearer "+os.Getenv(keyVariable) {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			h(w, r)
		})
	}
	return mux
}

// guards reports whether requests need the key: with the plugin's middleware, if it can be imported, everywhere, and
// without it nowhere. TestTheRealServerAndTheFakeDemandTheKey compares it with the real server.
func (f *fakeServer) guards() bool {
	extension := strings.Split(os.Getenv("PYTHONPATH"), ":")[0]
	return f.flag("--middleware") == guardClass && enginetest.Exists(extension, "recipe_guard.py")
}

func (f *fakeServer) set(change func()) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		change()
		enginetest.Reply(w, map[string]any{"ok": true})
	}
}

func (f *fakeServer) list() any {
	return map[string]any{"data": []any{map[string]any{"id": f.flag("--served-model-name"), "max_model_len": 256}}}
}

func (f *fakeServer) label(w http.ResponseWriter, r *http.Request) {
	var b struct {
		Version string `json:"new_version"`
	}
	_ = json.NewDecoder(r.Body).Decode(&b)
	f.version = b.Version
	enginetest.Reply(w, b)
}

func (f *fakeServer) adapter(w http.ResponseWriter, r *http.Request) {
	var b struct {
		Name    string `json:"lora_name"`
		Path    string `json:"lora_path"`
		Inplace bool   `json:"load_inplace"`
	}
	_ = json.NewDecoder(r.Body).Decode(&b)
	old, known := f.names[b.Name]
	if old == "base" || (known && !b.Inplace) {
		http.Error(w, "conflicts with a served base model", http.StatusBadRequest)
		return
	}
	f.names[b.Name] = b.Path
	enginetest.Reply(w, "ok")
}

// rpc loads weights. A folder with a file "bad" (or "bad-PORT", for one server) corrupts the parameters, as vLLM's
// loader does; a good one repairs them. While the folder has a file "slow", loading waits.
func (f *fakeServer) rpc(w http.ResponseWriter, r *http.Request) {
	var b struct {
		Method string            `json:"method"`
		Kwargs map[string]string `json:"kwargs"`
	}
	_ = json.NewDecoder(r.Body).Decode(&b)
	f.needs(engine.Weights)
	switch b.Method {
	case "recipe_reload":
		path := b.Kwargs["weights_path"]
		for enginetest.Exists(path, "slow") {
			_ = os.WriteFile(filepath.Join(path, "loading"), nil, 0o600)
			time.Sleep(5 * time.Millisecond)
		}
		if enginetest.Exists(path, "bad") || enginetest.Exists(path, "bad-"+f.flag("--port")) {
			f.poison = true
			http.Error(w, "Worker failed", http.StatusInternalServerError)
			return
		}
		if !f.paused {
			http.Error(w, "not paused", http.StatusInternalServerError)
			return
		}
		f.weight, f.poison = enginetest.Weight(path), false
	case "recipe_facts":
		enginetest.Reply(w, map[string]any{"results": []any{map[string]any{"reach": []string{"host:here"}, "machine": "here",
			"arithmetic": "float32", "device": os.Getenv(fakeDevice)}}})
		return
	case "recipe_attach", "recipe_pull":
		enginetest.Reply(w, map[string]any{"results": []any{f.pull(b.Method, b.Kwargs)}})
		return
	case "recipe_zero_adapter":
		_ = os.MkdirAll(b.Kwargs["path"], 0o700)
	default:
		http.Error(w, "no such method "+b.Method, http.StatusInternalServerError)
		return
	}
	enginetest.Reply(w, map[string]any{"results": []any{nil}})
}

// pull stands for the worker extension: handles are {"key", "weight"}, and a negative weight does not fit. Key "half"
// makes it exit half-way.
func (f *fakeServer) pull(method string, kwargs map[string]string) any {
	if method == "recipe_attach" {
		var handles struct {
			Key    string  `json:"key"`
			Weight float64 `json:"weight"`
		}
		_ = json.Unmarshal([]byte(kwargs["handles"]), &handles)
		if handles.Weight < 0 {
			return map[string]any{"refused": "model.norm.weight has shape [3] in the trainer and [4] in the server"}
		}
		f.opened, f.shared = handles.Key, handles.Weight
		return map[string]any{"bytes": 8}
	}
	switch {
	case f.opened != kwargs["key"]:
		return map[string]any{"unknown": true}
	case f.opened == "half":
		os.Exit(1)
	}
	if !f.paused {
		f.live = true
	}
	f.weight = f.shared
	return map[string]any{"path": "direct", "tensors": 1, "bytes": 8, "seconds": 0.001}
}

func (f *fakeServer) complete(w http.ResponseWriter, r *http.Request) {
	var b struct {
		Model          string `json:"model"`
		Prompt         any    `json:"prompt"` // text or token ids
		PromptLogprobs *int   `json:"prompt_logprobs"`
	}
	_ = json.NewDecoder(r.Body).Decode(&b)
	f.needs(engine.Weights, engine.KVCache)
	served, ok := f.names[b.Model]
	switch {
	case !ok:
		http.Error(w, "The model does not exist", http.StatusNotFound)
		return
	case f.poison:
		os.Exit(1) // the engine dies at the next request
	case f.paused:
		http.Error(w, "paused", http.StatusGatewayTimeout)
		return
	}
	value := -1 - f.weight - f.stale
	if served != "base" {
		value -= enginetest.Weight(served)
	}
	if key := fmt.Sprint(b.Prompt); b.PromptLogprobs == nil && os.Getenv(fakeCache) == "keeps" {
		if before, ok := f.kept[key]; ok {
			value = before
		}
		f.kept[key] = value
	}
	choice := map[string]any{
		"index": 0, "text": "x", "finish_reason": "length", "token_ids": []int{7}, "prompt_token_ids": []int{1},
		"logprobs": map[string]any{"tokens": []string{"x"}, "token_logprobs": []float64{value}},
	}
	if b.PromptLogprobs != nil {
		list := []any{nil}
		for _, id := range b.Prompt.([]any)[1:] {
			list = append(list, map[string]any{fmt.Sprint(id): map[string]any{"logprob": value}})
		}
		choice["prompt_logprobs"] = list
	}
	enginetest.Reply(w, map[string]any{"choices": []any{choice}})
}
