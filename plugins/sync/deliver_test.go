package sync_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// distant makes a block one of a machine that does not see the files of this one; handle may answer its control
// requests.
func distant(t *testing.T, b *plugintest.Block, handle func(http.ResponseWriter, *http.Request) bool) spec.Ref {
	t.Helper()
	return offering(b.Reference(), between(t, func() string { return b.Output("control_url") },
		func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/sees") {
				return handle != nil && handle(w, r)
			}
			_, _ = io.WriteString(w, `{"path": ""}`)
			return true
		}), "reload")
}

// logged waits for a line of a block's log.
func logged(b *plugintest.Block, text string) string {
	return b.Wait(text, func(e *pluginpb.Event) bool {
		return strings.Contains(e.GetLog().GetMessage(), text)
	}).GetLog().GetMessage()
}

//docs:weights.md Tests
func TestWeightsAreSentToAMachineThatSharesNoFiles(t *testing.T) {
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 3})
	b := plugintest.Harness(t, sync.Definition())
	c := config(train, server)
	c.Inference[0] = distant(t, server, nil)
	b.Start(c)
	if why := logged(b, "weights move by "); !strings.HasPrefix(why, "weights move by delta") ||
		!strings.Contains(why, "reload: the machine of inference.fake.test does not see the files in "+b.Dir) {
		t.Errorf("the log says %q", why)
	}
	train.WaitPhase(sdk.Completed)
	if got, want := serves(t, server, 3), plugintest.FakeLogprobs(3, []int{1, 2, 3}); got[0] != want[0] {
		t.Errorf("it gives %v, want %v", got, want)
	}
	logged(b, "policy version 3 was sent to the machine of inference.fake.test: ")
}

//docs:weights.md Tests
func TestATransferGoesOnWhereItBrokeOff(t *testing.T) {
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 2})
	b := plugintest.Harness(t, sync.Definition())
	c := config(train, server)
	var cut, begun, resumed atomic.Int64
	c.Trainer = distant(t, train, func(_ http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/packed/") {
			return false
		}
		begun.Add(1)
		if r.Header.Get("Range") != "bytes=0-" {
			resumed.Add(1)
		}
		return false
	})
	c.Inference[0] = distant(t, server, func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/receive") || cut.Swap(1) == 1 {
			return false
		}
		// The first transfer loses its connection after ten bytes, which the receiver has taken.
		target := server.Output("control_url") + r.URL.RequestURI()
		part, err := http.NewRequestWithContext(r.Context(), r.Method, target, io.LimitReader(r.Body, 10))
		if err != nil {
			t.Error(err)
			return false
		}
		part.Header = r.Header.Clone()
		if answer, err := http.DefaultClient.Do(part); err == nil {
			_ = answer.Body.Close()
		}
		http.DefaultClient.CloseIdleConnections()
		panic(http.ErrAbortHandler)
	})
	b.Start(c)
	train.WaitPhase(sdk.Completed)
	if got, want := serves(t, server, 2), plugintest.FakeLogprobs(2, []int{1, 2, 3}); got[0] != want[0] {
		t.Errorf("it gives %v, want %v", got, want)
	}
	if begun.Load() != 3 || resumed.Load() != 1 {
		t.Errorf("%d transfers were begun, %d of them in the middle; want 3 for two versions, the second in the middle",
			begun.Load(), resumed.Load())
	}
}
