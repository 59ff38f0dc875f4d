package vllm

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/engine/enginetest"
)

// TestReadyMeansItAnswers: a server whose /health is 200 and that produces no token is not ready; it never reaches the
// gateway, and the block fails with the server's answer.
func TestReadyMeansItAnswers(t *testing.T) {
	t.Parallel()
	req := request(t, Config{Model: enginetest.Model(t, 0)})
	req.Environment[fakeLess] = "/v1/completions"
	req.Config.StartTimeout, req.Config.MaxRestarts = 3*time.Second, 0
	host := newRecorder()
	err := serveUntilItEnds(t, req, host)
	var e *sdk.Error
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "did not answer") ||
		!strings.Contains(err.Error(), "/v1/completions") {
		t.Errorf("got %v; want an error that says which request was not answered", err)
	}
	host.mu.Lock()
	defer host.mu.Unlock()
	if len(host.outputs) > 0 || len(host.replicas) > 0 {
		t.Errorf("a server that answers nothing was called ready (%v) and given to the gateway (%v)",
			host.outputs, host.replicas)
	}
}
