package sync_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// A trainer that is killed and comes back while this block is busy with inference leaves an offer of the process that
// died.
func TestAnOfferOfAnEarlierTrainerIsGivenUp(t *testing.T) {
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 2})
	var offered atomic.Bool
	stale := between(t, func() string { return train.Output("control_url") },
		func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/pending") || offered.Swap(true) {
				return false
			}
			_, _ = w.Write([]byte(`{"version": 46, "step": 45}`))
			return true
		})
	b := plugintest.Harness(t, sync.Definition())
	c := config(train, server)
	c.Trainer = offering(c.Trainer, stale, "reload")
	b.Start(c)
	train.WaitPhase(sdk.Completed)
	serves(t, server, 2)
	if len(said(b, "policy version 46 is given up")) != 1 {
		t.Errorf("the log says nothing of it: %q", said(b, ""))
	}
}
