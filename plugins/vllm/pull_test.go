package vllm

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
	"github.com/recipe-rl/recipe/sdk/kit/engine/enginetest"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// published are weights as a trainer publishes them by ipc, in the form of the fake server.
func published(version int64, by transport.Name, key string, weight float64) sdk.Weights {
	handles := fmt.Sprintf(`{"form":1,"key":%q,"weight":%g}`, key, weight)
	return sdk.Weights{Version: version, Format: "tensors", Transport: by, Precision: "float32", Handles: handles}
}

func TestWeightsFromMemory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		transport transport.Name
		busy      string
	}{{"ipc", ""}, {"live", ""}, {"nccl", ""}, {"ipc", "answer"},
		{"ipc", "assert"}} {
		t.Run(string(c.transport)+c.busy, func(t *testing.T) {
			t.Parallel()
			req := request(t, Config{Model: enginetest.Model(t, 0), Replicas: 2})
			req.Environment[fakeBusy] = c.busy
			s, host, _ := start(t, req)
			host.await(t, "two replicas", ready(2))
			out := host.outputs[0].(engine.Outputs)
			if got := strings.Join(out.Transports, " "); got != "live ipc nccl reload restart" || out.Reach[0] != "host:here" ||
				out.Machine != "here" || out.Arithmetic != "float32" {
				t.Fatalf("outputs %+v; want live and ipc among the transports, and what the worker says of itself", out)
			}
			for version, w := range []sdk.Weights{1: published(1, c.transport, "a", 3), 2: published(2, c.transport, "b", 5)} {
				if version == 0 {
					continue
				}
				if err := s.Load(t.Context(), w); err != nil {
					t.Fatal(err)
				}
			}
			for _, r := range host.served() {
				// -1 - weight - weight of the prefix cache, which ipc and nccl empty if they can.
				want := -1.0 - 5
				if c.transport != "live" && c.busy == "" {
					want -= 5
				}
				got, err := s.ReplicaLogprobs(t.Context(), r, []int{1, 2})
				if err != nil || got[0] != want {
					t.Errorf("replica %s: %v, %v; want %v: the weights of the second trainer", r.ID, got, err, want)
				}
			}
			if reported := strings.Contains(host.text(), "cache_salt"); reported != (c.busy != "") {
				t.Errorf("a cache that could not be emptied (%q) was reported: %v", c.busy, reported)
			}
		})
	}
}

func TestWeightsFromMemoryThatCannotFit(t *testing.T) {
	t.Parallel()
	s, host, _ := start(t, request(t, Config{Model: enginetest.Model(t, 0)}))
	host.await(t, "a replica", ready(1))
	before := host.served()[0].URL
	var e *sdk.Error
	if err := s.Load(t.Context(), published(1, "ipc", "a", -1)); !errors.As(err, &e) ||
		!strings.Contains(e.Error(), "model.norm.weight") {
		t.Errorf("got %v, want the tensor's name", err)
	}
	if err := s.Load(t.Context(), sdk.Weights{Version: 1, Transport: "ipc"}); !errors.As(err, &e) ||
		!strings.Contains(e.Error(), "without handles") {
		t.Errorf("got %v, want that there are no handles", err)
	}
	serves(t, s, 0)
	if host.served()[0].URL != before {
		t.Error("a server whose weights were not touched was started again")
	}
}

// The server exits while it copies: it comes back with unknown weights, and the next copy opens the tensors again.
func TestServerThatDiesWhileItCopies(t *testing.T) {
	t.Parallel()
	s, host, _ := start(t, request(t, Config{Model: enginetest.Model(t, 0), LimitSettings: restarts(3)}))
	host.await(t, "a replica", ready(1))
	before := host.served()[0].URL
	if err := s.Load(t.Context(), published(1, "ipc", "half", 3)); err == nil {
		t.Fatal("an update that killed the server went well")
	}
	host.await(t, "another server", func(r *recorder) bool { return len(r.replicas) == 1 && r.replicas[0].URL != before })
	if err := s.Load(t.Context(), published(1, "ipc", "a", 4)); err != nil {
		t.Fatal(err)
	}
	serves(t, s, 4)
}

func TestSettingsThatKeepWeightsOutOfMemory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]Config{
		"quantization": {Quantization: "awq"}, "pipeline_parallel_size": {PipelineParallelSize: 2},
		"data_parallel_size": {DataParallelSize: 2},
	} {
		e, _ := (&Server{}).Plan(c, sdk.Placement{})
		if !strings.Contains(e.Facts["no_memory"], name) || strings.Contains(e.Facts["transports"], "ipc") {
			t.Errorf("%s: facts %v; want the reason, and no ipc", name, e.Facts)
		}
	}
	for _, name := range requantized {
		e, _ := (&Server{}).Plan(Config{Quantization: name}, sdk.Placement{})
		if e.Facts["no_memory"] != "" || !strings.Contains(e.Facts["transports"], "live,ipc") {
			t.Errorf("quantization %q: facts %v; want live and ipc", name, e.Facts)
		}
	}
	got := strings.Join(transport.Texts((Config{EnableLora: true}).spec().Transports()), " ")
	if got != "live ipc nccl lora reload restart" {
		t.Errorf("with LoRA: %s", got)
	}
}
