package sync_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// offering adds transports to the outputs of a fake block, and replaces its control endpoint if one is given.
func offering(r spec.Ref, control string, transports ...string) spec.Ref {
	values := r.Values.AsValueMap()
	var list []cty.Value
	for _, name := range transports {
		list = append(list, cty.StringVal(name))
	}
	values["transports"] = cty.ListVal(list)
	if control != "" {
		values["control_url"] = cty.StringVal(control)
	}
	r.Values = cty.ObjectVal(values)
	return r
}

var every = []string{"live", "ipc", "nccl", "lora", "reload", "delta", "restart"}

// By every transport the trainer's last weights are served in the end, and only the transports through files write any.
//
//docs:weights.md Tests
func TestEachTransportChangesWhatIsServed(t *testing.T) {
	t.Parallel()
	for _, transport := range every {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			server := startInference(t, plugintest.FakeConfig{})
			train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 3, Ahead: true})
			b := plugintest.Harness(t, sync.Definition())
			c := config(train, server)
			c.Trainer, c.Inference[0] = offering(c.Trainer, "", every...), offering(c.Inference[0], "", every...)
			c.Transport = transport
			b.Start(c)
			train.WaitPhase(sdk.Completed)
			if got, want := serves(t, server, 3), plugintest.FakeLogprobs(3, []int{1, 2, 3}); got[0] != want[0] {
				t.Errorf("it gives %v, want %v", got, want)
			}
			for _, e := range b.Events() {
				if w := e.GetWeights(); w != nil && (w.GetTransport() != transport || w.GetFormat() != "fake") {
					t.Errorf("weights event is %v", w)
				}
			}
			_, err := os.Stat(filepath.Join(b.Dir, "weights"))
			elsewhere := slices.Contains([]string{"live", "ipc", "nccl", "delta"}, transport)
			if files := err == nil; files == elsewhere {
				t.Errorf("weights were written to files: %v", files)
			}
			record, err := os.ReadFile(filepath.Join(b.Dir, "last.json"))
			if strings.Contains(string(record), `same`) {
				t.Errorf("the handles of the record lack what a later attempt needs: %s", record)
			}
			if err != nil || strings.Contains(string(record), `"handles"`) != (elsewhere && transport != "nccl") {
				t.Errorf("the record is %s, %v; want the handles of memory in it, and never those of nccl: they hold a token",
					record, err)
			}
		})
	}
}

// With a period of two steps the trainer's weights differ from the served ones half of the time; it keeps a copy of
// what it published, from which an inference block that comes back is updated.
func TestRestartedInferenceCopiesFromMemory(t *testing.T) {
	t.Parallel()
	bringsAgain(t, "ipc")
}

// One that comes back on another machine has no files of the weights; the trainer has.
//
//docs:weights.md Tests
func TestARestartedInferenceBlockIsSentTheWeightsAgain(t *testing.T) {
	t.Parallel()
	bringsAgain(t, "delta")
}

// bringsAgain restarts inference, without its files, while a trainer publishes every second step.
func bringsAgain(t *testing.T, transport string) {
	t.Helper()
	server := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1e6, Delay: 300 * time.Millisecond})
	b := plugintest.Harness(t, sync.Definition())
	c := config(train, server)
	c.Every, c.Transport = 2, transport
	c.Trainer, c.Inference[0] = offering(c.Trainer, "", every...), offering(c.Inference[0], "", every...)
	b.Start(c)
	b.Wait("first version", func(e *pluginpb.Event) bool { return e.GetWeights() != nil })
	listen := server.Status().GetListen()
	if err := server.Stop(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	again := startInference(t, plugintest.FakeConfig{}, func(r *pluginpb.StartRequest) {
		r.Listen, r.Policy = listen, &pluginpb.Policy{Version: 1}
	})
	g := client(again)
	defer g.Close()
	ctx, cancel := context.WithTimeout(t.Context(), plugintest.Deadline)
	defer cancel()
	for {
		before, err := g.Status(ctx)
		list, _ := g.Logprobs(ctx, []int{1, 2, 3})
		after, _ := g.Status(ctx)
		if err == nil && len(list) == 1 && before.Version == after.Version && len(before.Replicas) == 1 &&
			before.Replicas[0].Ready && after.Replicas[0].Ready {
			want := plugintest.FakeLogprobs(float64(2*before.Version), []int{1, 2, 3})
			if math.Abs(list[0].Logprobs[1]-want[0]) > 1e-9 {
				t.Errorf("version %d gives %v, want %v: those of step %d", before.Version, list[0].Logprobs[1:], want,
					2*before.Version)
			}
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("it never served again: %+v %v", before, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// between stands in front of a control endpoint; handle says whether it has answered a request itself.
func between(t *testing.T, target func() string, handle func(http.ResponseWriter, *http.Request) bool) string {
	t.Helper()
	transport := &http.Transport{}
	pass := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		u, err := url.Parse(target())
		if err == nil {
			r.SetURL(u)
		}
	}, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { panic(http.ErrAbortHandler) }}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !handle(w, r) {
			pass.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close(); transport.CloseIdleConnections() })
	return s.URL
}

// A copy that fails half-way is repeated.
func TestACopyThatFailsIsMadeAgain(t *testing.T) {
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 2})
	var failed atomic.Bool
	control := between(t, func() string { return server.Output("control_url") },
		func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/weights") || failed.Swap(true) {
				return false
			}
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = fmt.Fprint(w, `{"error":{"message":"replica 0: the copy broke off","type":"failed","code":422}}`)
			return true
		})
	b := plugintest.Harness(t, sync.Definition())
	c := config(train, server)
	c.Trainer, c.Inference[0] = offering(c.Trainer, "", every...), offering(c.Inference[0], control, every...)
	b.Start(c)
	train.WaitPhase(sdk.Completed)
	serves(t, server, 2)
	for _, e := range b.Events() {
		if strings.Contains(e.GetLog().GetMessage(), "is loaded once more") && strings.Contains(e.GetLog().GetMessage(),
			"the copy broke off") {
			return
		}
	}
	t.Error("nothing was said about the copy that failed")
}

// The trainer dies between publishing and the copy: the sync block reports it and continues, and the trainer's next
// attempt publishes its weights.
func TestATrainerThatDiesWhileItsWeightsAreCopied(t *testing.T) {
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{})
	first := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 3})
	listen := first.Status().GetListen()
	var died atomic.Bool
	control := between(t, func() string { return server.Output("control_url") },
		func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/weights") && !died.Swap(true) {
				_ = first.Stop(5 * time.Second)
			}
			return false
		})
	b := plugintest.Harness(t, sync.Definition())
	c := config(first, server)
	c.Transport = "ipc"
	c.Trainer, c.Inference[0] = offering(c.Trainer, "", every...), offering(c.Inference[0], control, every...)
	b.Start(c)
	b.Wait("a word about the trainer's death", func(e *pluginpb.Event) bool {
		return strings.Contains(e.GetLog().GetMessage(), "is given up, trainer.fake.test died")
	})
	second := plugintest.Harness(t, plugintest.FakeTrainer())
	if err := os.WriteFile(filepath.Join(second.RunDir, "checkpoints", "step"), []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	second.Start(plugintest.FakeTrainerConfig{Steps: 2}, syncedBy, func(r *pluginpb.StartRequest) {
		r.Resume,
			r.Listen = true, listen
	})
	second.WaitPhase(sdk.Completed)
	if got, want := serves(t, server, 2), plugintest.FakeLogprobs(2, []int{1, 2, 3}); got[0] != want[0] {
		t.Errorf("it gives %v, want %v", got, want)
	}
}

// A trainer that ends and is restarted between two polls of the sync block looks like the one before, and waits for a
// sync block to attach.
func TestATrainerThatComesBackUnseenIsAttachedTo(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{})
	first := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1e6, Delay: 20 * time.Millisecond})
	var target atomic.Pointer[string]
	address := first.Output("control_url")
	target.Store(&address)
	control := between(t, func() string { return *target.Load() }, func(w http.ResponseWriter, _ *http.Request) bool {
		if *target.Load() != "" {
			return false
		}
		w.WriteHeader(http.StatusGone) // the answer of a trainer that has ended and is still listening
		return true
	})
	b := plugintest.Harness(t, sync.Definition())
	c := config(first, server)
	c.Trainer = offering(c.Trainer, control, "reload")
	b.Start(c)
	b.Wait("first version", func(e *pluginpb.Event) bool { return e.GetWeights() != nil })
	gone := ""
	target.Store(&gone)
	_ = first.Stop(5 * time.Second)
	version := b.Events()
	highest := int64(0)
	for _, e := range version {
		highest = max(highest, e.GetWeights().GetVersion())
	}
	second := plugintest.Harness(t, plugintest.FakeTrainer())
	second.Start(plugintest.FakeTrainerConfig{Steps: 2}, syncedBy,
		func(r *pluginpb.StartRequest) { r.Policy = &pluginpb.Policy{Version: highest} })
	second.Ready()
	address = second.Output("control_url")
	target.Store(&address)
	second.WaitPhase(sdk.Completed)
}
