package vllm

import (
	"net/http"
	"os"
	"slices"

	"github.com/recipe-rl/recipe/sdk/kit/engine"
	"github.com/recipe-rl/recipe/sdk/kit/engine/enginetest"
)

// fakeNap is the sleep of the fake server. Like vLLM, it exits when released memory is used.
type fakeNap struct {
	away []engine.Part // released parts of the memory
}

const (
	fakeWake   = "FAKE_VLLM_WAKE"   // waking fails while this file does not exist, and makes it; "never": always
	fakeDevice = "FAKE_VLLM_DEVICE" // what the worker runs on
)

func (f *fakeServer) sleepRoutes(paths map[string]http.HandlerFunc) {
	paths["/sleep"], paths["/wake_up"] = f.sleep, f.wakeUp
	paths["/is_sleeping"] = func(w http.ResponseWriter, _ *http.Request) {
		enginetest.Reply(w, map[string]any{"is_sleeping": f.paused || len(f.nap.away) > 0})
	}
}

func (f *fakeServer) sleep(w http.ResponseWriter, r *http.Request) {
	if !slices.Contains(f.args, "--enable-sleep-mode") {
		http.Error(w, "sleep mode is not enabled", http.StatusInternalServerError)
		return
	}
	f.paused = true
	f.nap.away = []engine.Part{engine.Weights, engine.KVCache}
	if r.URL.Query().Get("level") == "2" {
		f.weight = -1e9
	}
	f.stale = f.weight
	enginetest.Reply(w, map[string]any{"status": "sleeping"})
}

func (f *fakeServer) wakeUp(w http.ResponseWriter, r *http.Request) {
	if once := os.Getenv(fakeWake); once != "" {
		if _, err := os.Stat(once); err != nil {
			if once != "never" {
				_ = os.WriteFile(once, nil, 0o600)
			}
			http.Error(w, "CUDA out of memory at wake-up", http.StatusInternalServerError)
			return
		}
	}
	var tags []engine.Part
	for _, tag := range r.URL.Query()["tags"] {
		tags = append(tags, engine.Part(tag))
	}
	if len(tags) == 0 {
		tags = slices.Clone(f.nap.away)
	}
	f.nap.away = slices.DeleteFunc(f.nap.away, func(part engine.Part) bool { return slices.Contains(tags, part) })
	if len(f.nap.away) == 0 {
		f.paused = false
	}
	enginetest.Reply(w, map[string]any{"status": "ok"})
}

// needs ends the process when a released part of the memory is used.
func (f *fakeServer) needs(parts ...engine.Part) {
	for _, part := range parts {
		if slices.Contains(f.nap.away, part) {
			_, _ = os.Stderr.WriteString("an illegal memory access was encountered\n")
			os.Exit(1)
		}
	}
}
