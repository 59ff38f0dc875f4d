package grpo

import (
	"fmt"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
)

// Weights that stay in memory are published by their handles; the text of a proof is split by the worker.
func TestWeightsInMemoryAndTheTextOfTheProof(t *testing.T) {
	t.Parallel()
	tr, h, req := start(t, "", nil)
	var problem error
	h.publish = func(step int64) bool {
		for _, transport := range []string{"ipc", "live", "nccl"} {
			w, err := tr.Publish(t.Context(), sdk.PublishRequest{Version: step, Transport: transport, Keep: step == 2})
			by := transport
			if by == "live" { // the same memory
				by = "ipc"
			}
			want := fmt.Sprintf(`{"by":%q,"form":1,"keep":%v}`, by, step == 2)
			if err != nil || w.Handles != want || w.Path != "" || w.Format != "tensors" || w.Transport != transport || w.Precision != "float32" {
				problem = fmt.Errorf("published %+v, %w; want handles %s", w, err, want)
			}
		}
		if ids, err := tr.Tokenize(t.Context(), "abc"); err != nil || len(ids) != 3 {
			problem = fmt.Errorf("tokens %v, %w; want three", ids, err)
		}
		if _, err := tr.Publish(t.Context(), sdk.PublishRequest{Version: step, Transport: "pigeon"}); err == nil {
			problem = fmt.Errorf("a transport that is not offered was published by")
		}
		return true
	}
	if err := tr.Run(t.Context(), req, h); err != nil {
		t.Fatalf("%v; log %q", err, h.logs)
	}
	if problem != nil {
		t.Error(problem)
	}
	out := h.outputs[len(h.outputs)-1]
	if out.Memory != "host:here" || out.Machine != "here" || fmt.Sprint(out.Transports) != "[live ipc nccl reload restart]" {
		t.Errorf("outputs %+v; want where its weights are, and that they can be copied", out)
	}
}
