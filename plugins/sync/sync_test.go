package sync_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"
	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/spec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const syncAddress = "sync.weights.test"

// syncedBy declares the sync block, as the engine does.
func syncedBy(r *pluginpb.StartRequest) { r.SyncedBy = []string{syncAddress} }

func address(name string) plugintest.Option {
	return func(r *pluginpb.StartRequest) { r.Address = name }
}

func startInference(t *testing.T, c plugintest.FakeConfig, opts ...plugintest.Option) *plugintest.Block {
	t.Helper()
	b := plugintest.Harness(t, plugintest.FakeInference())
	b.Start(c, opts...)
	b.Ready()
	return b
}

func startTrainer(t *testing.T, c plugintest.FakeTrainerConfig, opts ...plugintest.Option) *plugintest.Block {
	t.Helper()
	b := plugintest.Harness(t, plugintest.FakeTrainer())
	b.Start(c, append(opts, syncedBy)...)
	b.Ready()
	return b
}

func config(trainer *plugintest.Block, servers ...*plugintest.Block) sync.Config {
	c := sync.Config{Trainer: trainer.Reference(), Every: 1, Transport: "auto", InFlight: "drain", Colocated: "auto",
		Timeout: 30 * time.Second}
	for _, s := range servers {
		c.Inference = append(c.Inference, s.Reference())
	}
	return c
}

func client(b *plugintest.Block) *gateway.Client {
	return gateway.NewClient(b.Output("control_url"), b.Output("control_token"))
}

// serves waits until a gateway serves a version and forwards requests, and returns the log-probabilities of a text.
func serves(t *testing.T, b *plugintest.Block, version int) []float64 {
	t.Helper()
	c := client(b)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), plugintest.Deadline)
	defer cancel()
	for {
		s, err := c.Status(ctx)
		if err == nil && s.Version == version && !s.Held && len(s.Replicas) > 0 && s.Replicas[0].Ready {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s does not serve version %d: %+v %v", b.Address, version, s, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	list, err := c.Logprobs(ctx, []int{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	return list[0].Logprobs[1:]
}

func TestWeightsReachEveryInferenceBlock(t *testing.T) {
	t.Parallel()
	first, second := startInference(t, plugintest.FakeConfig{}), startInference(t, plugintest.FakeConfig{},
		address("inference.fake.second"))
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 3})
	b := plugintest.Harness(t, sync.Definition())
	c := config(train, first, second)
	b.Start(c)
	b.Ready()
	train.WaitPhase(sdk.Completed)
	want := plugintest.FakeLogprobs(3, []int{1, 2, 3})
	for _, server := range []*plugintest.Block{first, second} {
		if got := serves(t, server, 3); got[0] != want[0] || got[1] != want[1] {
			t.Errorf("log-probabilities are %v, want %v: the weights are not those of step 3", got, want)
		}
	}
	reported := map[string]int64{}
	for _, e := range b.Events() {
		if w := e.GetWeights(); w != nil {
			reported[w.GetInference()]++
			if w.GetTransport() != "reload" || w.GetPhases()["update"] <= 0 || w.GetSeconds() <= 0 || w.GetFormat() != "fake" {
				t.Errorf("weights event is %v", w)
			}
		}
	}
	if reported["inference.fake.test"] != 3 || reported["inference.fake.second"] != 3 {
		t.Errorf("weights events by inference block: %v, want 3 each", reported)
	}
	dirs, err := os.ReadDir(filepath.Join(b.Dir, "weights"))
	if err != nil || len(dirs) != 2 {
		t.Errorf("published files of %d versions are kept (%v), want 2", len(dirs), err)
	}
	if v := b.Outputs().GetAttr("version"); v.Equals(cty.NumberIntVal(3)).False() {
		t.Errorf("output version is %#v, want 3", v)
	}
}

func TestEveryNthStep(t *testing.T) {
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 5})
	b := plugintest.Harness(t, sync.Definition())
	c := config(train, server)
	c.Every = 2
	b.Start(c)
	train.WaitPhase(sdk.Completed)
	want := plugintest.FakeLogprobs(4, []int{1, 2, 3})
	if got := serves(t, server, 2); got[0] != want[0] {
		t.Errorf("version 2 has log-probabilities %v, want those of step 4, %v", got, want)
	}
}

// The check detects a server that accepts updates and does not change.
//
//docs:survival.md training and inference disagree
//docs:troubleshooting.md A reload leaves the output head of a tied model at the old weights
func TestAnUpdateThatChangesNothingIsNoticed(t *testing.T) {
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{Stuck: true})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 2})
	b := plugintest.Harness(t, sync.Definition())
	b.Start(config(train, server))
	failed := b.Wait("failure", func(e *pluginpb.Event) bool { return e.GetPhase().GetPhase() == string(sdk.Failed) })
	if m := failed.GetPhase().GetMessage(); !strings.Contains(m, "differences of log-probabilities") ||
		!strings.Contains(m, "inference.fake.test") {
		t.Errorf("the failure says %q", m)
	}
	lost := train.Wait("failure", func(e *pluginpb.Event) bool { return e.GetPhase().GetPhase() == string(sdk.Failed) })
	if m := lost.GetPhase().GetMessage(); !strings.Contains(m, syncAddress) {
		t.Errorf("the trainer's failure does not name the sync block: %q", m)
	}
	c := client(server)
	defer c.Close()
	s, err := c.Status(t.Context())
	if err != nil || s.Held || s.Replicas[0].Ready {
		t.Errorf("a server with unverified weights lets requests through, or is still held: %+v %v", s, err)
	}
}

//docs:troubleshooting.md One of several servers has other weights
func TestOneOfTwoIsTakenOutAndTheRunGoesOn(t *testing.T) {
	t.Parallel()
	good, bad := startInference(t, plugintest.FakeConfig{}), startInference(t, plugintest.FakeConfig{Stuck: true},
		address("inference.fake.bad"))
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1})
	b := plugintest.Harness(t, sync.Definition())
	c := config(train, good, bad)
	b.Start(c)
	train.WaitPhase(sdk.Completed)
	serves(t, good, 1)
	b.Wait("degraded", func(e *pluginpb.Event) bool { return e.GetPhase().GetPhase() == string(sdk.Degraded) })

	// The server recovers, and gets the version that it missed.
	ctx, cancel := context.WithTimeout(t.Context(), plugintest.Deadline)
	defer cancel()
	if _, err := bad.Client.Update(ctx, &pluginpb.UpdateRequest{Config: bad.Request(
		plugintest.FakeConfig{}).GetConfig()}); err != nil {
		t.Fatal(err)
	}
	if got, want := serves(t, bad, 1), plugintest.FakeLogprobs(1, []int{1, 2, 3}); got[0] != want[0] {
		t.Errorf("after its repair it gives %v, want %v", got, want)
	}
}

//docs:troubleshooting.md A restarted server serves the base model
func TestARestartedInferenceBlockGetsTheWeightsAgain(t *testing.T) {
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 2})
	b := plugintest.Harness(t, sync.Definition())
	b.Start(config(train, server))
	train.WaitPhase(sdk.Completed)
	serves(t, server, 2)
	listen := server.Status().GetListen()
	if err := server.Stop(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	// The engine has recorded that the run reached version 2, and has no file: the gateway must stay closed until the sync
	// block has loaded the weights.
	again := startInference(t, plugintest.FakeConfig{}, func(r *pluginpb.StartRequest) {
		r.Listen, r.Policy = listen, &pluginpb.Policy{Version: 2}
	})
	if got, want := serves(t, again, 2), plugintest.FakeLogprobs(2, []int{1, 2, 3}); got[0] != want[0] {
		t.Errorf("it gives %v, want %v", got, want)
	}
}

//docs:survival.md inference is stuck after the trainer crashed
func TestAResumedTrainerNeverGoesBackInVersions(t *testing.T) {
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{})
	first := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 2})
	b := plugintest.Harness(t, sync.Definition())
	b.Start(config(first, server))
	first.WaitPhase(sdk.Completed)
	serves(t, server, 2)
	if err := b.Stop(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	// Its checkpoint is of step 1, and the engine has recorded version 1 only; version 2 is served.
	second := plugintest.Harness(t, plugintest.FakeTrainer())
	if err := os.WriteFile(filepath.Join(second.RunDir, "checkpoints", "step"), []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	second.Start(plugintest.FakeTrainerConfig{Steps: 2}, syncedBy, func(r *pluginpb.StartRequest) {
		r.Resume, r.Policy = true, &pluginpb.Policy{Version: 1}
	})
	second.Ready()
	next := plugintest.Harness(t, sync.Definition())
	next.Start(config(second, server))
	second.WaitPhase(sdk.Completed)
	// Version 3: the weights of the checkpoint. Version 4: those of step 2.
	if got, want := serves(t, server, 4), plugintest.FakeLogprobs(2, []int{1, 2, 3}); got[0] != want[0] {
		t.Errorf("it gives %v, want %v", got, want)
	}
	var versions []int64
	for _, e := range next.Events() {
		if w := e.GetWeights(); w != nil {
			versions = append(versions, w.GetVersion())
		}
	}
	if len(versions) != 2 || versions[0] != 3 || versions[1] != 4 {
		t.Errorf("versions published after the resume: %v, want [3 4]", versions)
	}
}

func TestConfigurationsThatCannotWork(t *testing.T) {
	t.Parallel()
	good := plugintest.Ref("inference.vllm.a", kind.Inference, outputs.Inference{ControlURL: "http://127.0.0.1:1"})
	from := plugintest.Ref("trainer.grpo.a", kind.Trainer, outputs.Trainer{ControlURL: "http://127.0.0.1:1"})
	for name, c := range map[string]struct {
		config sync.Config
		want   string
	}{
		"unknown transport": {sync.Config{Trainer: from, Inference: []spec.Ref{good}, Every: 1, Transport: "pigeon"},
			"unknown transport"},
		"transport not offered": {sync.Config{Trainer: from, Inference: []spec.Ref{good}, Every: 1, Transport: "nccl"},
			"possible here: reload"},
		"twice": {sync.Config{Trainer: from, Inference: []spec.Ref{good, good}, Every: 1, Transport: "auto"},
			"the same block twice"},
		"negative token": {sync.Config{Trainer: from, Inference: []spec.Ref{good}, Every: 1, Transport: "auto",
			ProbeTokens: []int64{1, -2}}, "not a token id"},
		"no control": {sync.Config{Trainer: from, Inference: []spec.Ref{plugintest.Ref("inference.x.y",
			kind.Inference, outputs.Inference{})}, Every: 1, Transport: "auto"}, "no control endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := plugintest.Harness(t, sync.Definition())
			c.config.Timeout, c.config.InFlight, c.config.Colocated = time.Minute, "drain", "auto"
			err := b.TryStart(c.config)
			if err == nil {
				e := b.Wait("failure", func(e *pluginpb.Event) bool { return e.GetPhase().GetPhase() == string(sdk.Failed) })
				err = errors.New(e.GetPhase().GetMessage() + e.GetPhase().GetRemedy())
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want %q in it", err, c.want)
			}
		})
	}
}

//docs:survival.md inference is stuck after the trainer crashed
//docs:troubleshooting.md A trainer killed between pause and resume
func TestAHoldOfAnEarlierLifeIsEnded(t *testing.T) {
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{})
	g := client(server)
	defer g.Close()
	if _, err := g.Hold(t.Context(), gateway.HoldRequest{Lease: 10 * time.Minute, Reason: syncAddress +
		" brings policy version 1"}); err != nil {
		t.Fatal(err)
	}
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1})
	b := plugintest.Harness(t, sync.Definition())
	b.Start(config(train, server))
	train.WaitPhase(sdk.Completed)
	serves(t, server, 1)
}

// Requests in flight when new weights arrive.
func TestInFlight(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"drain", "keep"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			until := filepath.Join(t.TempDir(), "until")
			server := startInference(t, plugintest.FakeConfig{Until: until})
			answered := make(chan error, 1)
			base, key := server.Output("base_url"), server.Output("api_key")
			go func() { answered <- complete(t.Context(), base, key) }()
			g := client(server)
			defer g.Close()
			for s, err := g.Status(t.Context()); err == nil && s.InFlight == 0; s, err = g.Status(t.Context()) {
				time.Sleep(time.Millisecond)
			}
			train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1})
			b := plugintest.Harness(t, sync.Definition())
			c := config(train, server)
			c.InFlight = mode
			b.Start(c)
			if mode == "keep" {
				train.WaitPhase(sdk.Completed)
			} else { // the weights are loaded only when the completion has ended
				for s, err := g.Status(t.Context()); err == nil && !s.Held; s, err = g.Status(t.Context()) {
					time.Sleep(time.Millisecond)
				}
				if s, err := g.Status(t.Context()); err != nil || s.Version != 0 || s.InFlight != 1 {
					t.Errorf("while the gateway drains: %+v, %v", s, err)
				}
			}
			if err := os.WriteFile(until, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := <-answered; err != nil {
				t.Error(err)
			}
			train.WaitPhase(sdk.Completed)
		})
	}
}

// A gateway must know before the first update whether answers may span one.
func TestGatewaysKnowInFlightBeforeTheFirstUpdate(t *testing.T) {
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1, Delay: time.Minute})
	c := config(train, server)
	c.InFlight = "keep"
	plugintest.Harness(t, sync.Definition()).Start(c)
	g := client(server)
	defer g.Close()
	for end := time.Now().Add(plugintest.Deadline); ; time.Sleep(10 * time.Millisecond) {
		s, err := g.Status(t.Context())
		if err == nil && (s.Updates == gateway.ModeKeep || s.Updates == gateway.ModeNone) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the gateway got %q (%v), want keep, or none as transport live has it", s.Updates, err)
		}
	}
}

func complete(ctx context.Context, base, key string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/completions",
		strings.NewReader(`{"model":"fake","prompt":"a","max_tokens":1}`))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}
