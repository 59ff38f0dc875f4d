package vllm

import (
	"testing"

	"github.com/recipe-rl/recipe/sdk"
)

// Weights that reach the servers by a restart are verified and served like others.
func TestTransportRestartBehindTheGateway(t *testing.T) {
	t.Parallel()
	_, g := twoServers(t)
	serve := func(version int) {
		t.Helper()
		eventually(t, "two servers to serve", func() bool {
			s, err := g.Status(t.Context())
			return err == nil && s.Version == version && len(s.Replicas) == 2 && s.Replicas[0].Ready && s.Replicas[1].Ready
		})
	}
	serve(0)
	for version := 1; version <= 2; version++ {
		update := verified(t, version, float64(version), "")
		w := sdk.Weights{Version: int64(version), Path: update.Path, Format: "hf", Transport: "restart"}
		update.Weights, update.Transport = w, "restart"
		for i := range update.Check.Logprobs { // a fresh server has an empty prefix cache
			update.Check.Logprobs[i] = -1 - float64(version)
		}
		if _, err := g.UpdateWeights(t.Context(), update); err != nil {
			t.Fatalf("update to version %d: %v", version, err)
		}
		serve(version)
	}
}
