package vllm

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
	"github.com/recipe-rl/recipe/sdk/kit/engine/enginetest"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// block is a running block, with the calls of a gateway.
type block struct{ *engine.Supervisor }

// Logprobs asks the first replica, when there is one.
func (b *block) Logprobs(ctx context.Context, tokens []int) ([]float64, error) {
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		err := errors.New("no replica answers")
		if list := b.Replicas(); len(list) > 0 {
			var values []float64
			if values, err = b.Supervisor.Logprobs(ctx, list[0], tokens); err == nil {
				return values, nil
			}
		}
		if time.Now().After(deadline) {
			return nil, err
		}
	}
}

func (b *block) ReplicaLogprobs(ctx context.Context, r inference.Replica, tokens []int) ([]float64, error) {
	return b.Supervisor.Logprobs(ctx, r, tokens)
}

// start runs a server until the test ends.
func start(t *testing.T, req sdk.Request[Config]) (*block, *recorder, func() error) {
	t.Helper()
	host := newRecorder()
	b, stop := serve(t, req, host, host)
	return b, host, stop
}

// serve is start for a host that does more than record.
func serve(t *testing.T, req sdk.Request[Config], host inference.Host, r *recorder) (*block, func() error) {
	t.Helper()
	s, err := newServer().Start(t.Context(), req, host)
	if err != nil {
		t.Fatal(err)
	}
	r.serve(s.(*engine.Supervisor))
	stop := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return errors.Join(s.Stop(ctx), s.Wait())
	}
	t.Cleanup(func() { _ = stop() })
	return &block{s.(*engine.Supervisor)}, stop
}

// serveUntilItEnds returns why a block ended by itself.
func serveUntilItEnds(t *testing.T, req sdk.Request[Config], host *recorder) error {
	t.Helper()
	s, err := newServer().Start(t.Context(), req, host)
	if err != nil {
		return err
	}
	host.serve(s.(*engine.Supervisor))
	return s.Wait()
}

func ready(n int) func(*recorder) bool {
	return func(r *recorder) bool { return len(r.outputs) > 0 && len(r.replicas) == n }
}

// serves checks the log-probability of every token, which is -1 - 2 × weight (half of it from the prefix cache).
func serves(t *testing.T, s *block, weight float64) {
	t.Helper()
	got, err := s.Logprobs(t.Context(), []int{1, 2, 3})
	if err != nil {
		t.Fatalf("Logprobs: %v", err)
	}
	if len(got) != 2 || math.Abs(got[0]-(-1-2*weight)) > 1e-9 {
		t.Fatalf("log-probabilities %v; want two of %v, those of weight %v with an empty prefix cache", got, -1-2*weight,
			weight)
	}
}

func hf(version int64, path string) sdk.Weights {
	return sdk.Weights{Version: version, Path: path, Format: "hf", Transport: "reload"}
}

func TestServeAndReload(t *testing.T) {
	t.Parallel()
	base := enginetest.Model(t, 0)
	req := request(t, Config{Model: base, ServedModelName: "policy"})
	// It listens when its log has been read: stages of a start are not reported of a server that answers.
	listen := filepath.Join(t.TempDir(), "listen")
	req.Environment[fakeWait] = listen
	s, host, stop := start(t, req)
	host.await(t, "the stages of the start", func(r *recorder) bool {
		reported := strings.Join(append(slices.Clone(r.phases), r.logs...), "\n")
		return strings.Contains(reported, "starting: starting the engine") &&
			strings.Contains(reported, "loading: loading weights") &&
			strings.Contains(reported, "warn: something to know") && slices.Equal(r.taken, []bool{true})
	})
	enginetest.Put(t, filepath.Dir(listen), "listen", "")
	host.await(t, "a replica", ready(1))
	out := host.outputs[0].(engine.Outputs)
	if out.Model != "policy" || out.Tokenizer != base || out.MaxModelLen != 256 {
		t.Fatalf("outputs %+v; want the served name, the model's tokenizer and 256 tokens", out)
	}
	if len(host.versions()) == 0 || host.versions()[0] != 0 {
		t.Fatalf("Loaded was called with %v; want version 0 first", host.versions())
	}
	if text := host.text(); !strings.Contains(text, "vLLM 0.32.0 answers") {
		t.Errorf("the first answer was not reported:\n%s", text)
	}
	serves(t, s, 0)
	if err := s.Load(t.Context(), hf(1, enginetest.Model(t, 3))); err != nil {
		t.Fatalf("Load: %v", err)
	}
	serves(t, s, 3)
	// What the phase says is shown until the next phase: a policy version in it would be wrong since this update.
	if text := host.text(); !strings.Contains(text, "ready: vLLM 0.32.0\n") {
		t.Errorf("the phase ready does not say vLLM 0.32.0 and no more:\n%s", text)
	}
	if err := stop(); err != nil {
		t.Fatalf("Run: %v", err)
	}
}

//docs:troubleshooting.md A bad folder poisons the server: 500, then death at the next request
func TestIncompleteWeightsTouchNothing(t *testing.T) {
	t.Parallel()
	s, host, _ := start(t, request(t, Config{Model: enginetest.Model(t, 0)}))
	host.await(t, "a replica", ready(1))
	cut := enginetest.Model(t, 5)
	if err := os.Truncate(filepath.Join(cut, "model.safetensors"), 40); err != nil {
		t.Fatal(err)
	}
	var e *sdk.Error
	if err := s.Load(t.Context(), hf(1, cut)); !errors.As(err, &e) || !strings.Contains(e.Error(), "not complete") {
		t.Fatalf("got %v, want an error that says the weights are not complete", err)
	}
	serves(t, s, 0)
}

//docs:troubleshooting.md A bad folder poisons the server: 500, then death at the next request
func TestPoisonedServerIsStartedAgainWithWhatItServed(t *testing.T) {
	t.Parallel()
	s, host, _ := start(t, request(t, Config{Model: enginetest.Model(t, 0), LimitSettings: restarts(2)}))
	host.await(t, "a replica", ready(1))
	if err := s.Load(t.Context(), hf(1, enginetest.Model(t, 3))); err != nil {
		t.Fatal(err)
	}
	first := host.served()[0].URL
	bad := enginetest.Model(t, 9)
	enginetest.Put(t, bad, "bad", "")
	if err := s.Load(t.Context(), hf(2, bad)); err == nil || !strings.Contains(err.Error(),
		"started again with the previous weights") {
		t.Fatalf("got %v, want an error that says the replica is started again", err)
	}
	host.await(t, "another server with version 1", func(r *recorder) bool {
		return len(r.replicas) == 1 && r.replicas[0].URL != first && strings.Count(strings.Join(r.logs, "\n"),
			"answers, policy version 1,") == 1
	})
	serves(t, s, 3) // version 1 again, not the base model
}

//docs:survival.md orphans hold GPU memory
//docs:troubleshooting.md A restarted server serves the base model
func TestKilledServerComesBackAtTheCurrentVersion(t *testing.T) {
	t.Parallel()
	req := request(t, Config{Model: enginetest.Model(t, 0), LimitSettings: restarts(2)})
	pids := filepath.Join(t.TempDir(), "pids")
	req.Environment[fakePids] = pids
	s, host, stop := start(t, req)
	host.await(t, "a replica", ready(1))
	if err := s.Load(t.Context(), hf(4, enginetest.Model(t, 2))); err != nil {
		t.Fatal(err)
	}
	first := host.served()[0].URL
	server, engine := readPids(t, pids, 0)
	if err := syscall.Kill(server, syscall.SIGKILL); err != nil { // the front end alone, as a user would
		t.Fatal(err)
	}
	host.await(t, "another server", func(r *recorder) bool { return len(r.replicas) == 1 && r.replicas[0].URL != first })
	serves(t, s, 2)
	host.await(t, "what it says of the GPU's memory", func(r *recorder) bool { // a new server decides anew
		return slices.Equal(r.taken, []bool{true, false, true})
	})
	if alive(engine) {
		t.Fatalf("engine process %d of the killed server is still there", engine)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	server, engine = readPids(t, pids, 1)
	if alive(server) || alive(engine) {
		t.Fatalf("processes %d and %d outlived the block", server, engine)
	}
}

// TestAServerThatHasAnsweredIsStartedAgain, whatever its start has written: on many machines the log of a start looks
// like a failure.
func TestAServerThatHasAnsweredIsStartedAgain(t *testing.T) {
	t.Parallel()
	req := request(t, Config{Model: enginetest.Model(t, 0), LimitSettings: restarts(1)})
	pids := filepath.Join(t.TempDir(), "pids")
	req.Environment[fakePids] = pids
	req.Environment[fakeSay] = "WARNING 11-21 05:38:12 [loader.py:7] generation_config.json: 404 Client Error; " +
		"ImportError: cannot import name 'flash_attn'"
	_, host, _ := start(t, req)
	host.await(t, "a replica", ready(1))
	server, _ := readPids(t, pids, 0)
	if err := syscall.Kill(server, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	host.await(t, "another server that answers", func(r *recorder) bool {
		return strings.Count(strings.Join(r.logs, "\n"), "answers, policy version 0,") == 2
	})
	if text := host.text(); !strings.Contains(text, "vLLM was killed") {
		t.Errorf("the reason is not reported:\n%s", text)
	}
}

// slowHost takes its time to read the replicas, and records which it knew when it was told of a restart.
type slowHost struct {
	*recorder
	known chan []inference.Replica
}

func (h *slowHost) Changed() {
	time.Sleep(100 * time.Millisecond)
	h.recorder.Changed()
}

func (h *slowHost) Phase(p sdk.Phase, text string) {
	if strings.Contains(text, "starting it again") {
		h.known <- h.served()
	}
	h.recorder.Phase(p, text)
}

// TestTheHostKnowsTheNextAddress: an update that somebody sends on this news waits for the next
// server, instead of being checked at the old one.
func TestTheHostKnowsTheNextAddress(t *testing.T) {
	t.Parallel()
	req := request(t, Config{Model: enginetest.Model(t, 0), LimitSettings: restarts(1)})
	pids := filepath.Join(t.TempDir(), "pids")
	req.Environment[fakePids] = pids
	host := &slowHost{newRecorder(), make(chan []inference.Replica, 1)}
	serve(t, req, host, host.recorder)
	host.await(t, "a replica", ready(1))
	first := host.served()[0].URL
	server, _ := readPids(t, pids, 0)
	if err := syscall.Kill(server, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case known := <-host.known:
		if len(known) != 1 || known[0].URL == first {
			t.Fatalf("the host knows %v when it is told of the restart; want the next address, not %s", known, first)
		}
	case <-time.After(time.Minute):
		t.Fatalf("no restart within a minute:\n%s", host.text())
	}
}

func readPids(t *testing.T, path string, line int) (server, engine int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(strings.Split(string(data), "\n")[line])
	server, _ = strconv.Atoi(f[0])
	engine, _ = strconv.Atoi(f[1])
	return server, engine
}

func alive(pid int) bool {
	start, err := proc.StartOf(pid)
	return err == nil && proc.Same(pid, start)
}

//docs:troubleshooting.md A restarted server serves the base model
func TestRestartAtTheRecordedPolicy(t *testing.T) {
	t.Parallel()
	req := request(t, Config{Model: enginetest.Model(t, 0)})
	req.Policy = sdk.Policy{Version: 7, Weights: enginetest.Model(t, 4), Format: "hf"}
	s, host, _ := start(t, req)
	host.await(t, "a replica", ready(1))
	serves(t, s, 4)
	if host.versions()[0] != 7 {
		t.Fatalf("Loaded(%d), want 7", host.versions()[0])
	}
}

//docs:troubleshooting.md A restarted server serves the base model
func TestWeightsThatWereNeverOnDiskKeepTheGatewayClosed(t *testing.T) {
	t.Parallel()
	req := request(t, Config{Model: enginetest.Model(t, 0)})
	req.Policy = sdk.Policy{Version: 7}
	_, host, _ := start(t, req)
	host.await(t, "a replica", ready(1))
	if loaded := host.versions(); len(loaded) != 0 {
		t.Fatalf("Loaded was called with %v; the base model must not be served as version 7", loaded)
	}
}

func TestTransportRestart(t *testing.T) {
	t.Parallel()
	s, host, _ := start(t, request(t, Config{Model: enginetest.Model(t, 0), Replicas: 2}))
	host.await(t, "two replicas", ready(2))
	before, old := host.served(), proc.Parse(host.programs())
	w := hf(1, enginetest.Model(t, 6))
	w.Transport = "restart"
	if err := s.Load(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	host.await(t, "two other programs", func(r *recorder) bool {
		now := proc.Parse(r.handle)
		return len(now) == 2 && now[0].PID != old[0].PID && now[1].PID != old[1].PID
	})
	same := func(a, b inference.Replica) bool { return a.URL == b.URL && a.APIKey == b.APIKey }
	if after := host.served(); !slices.EqualFunc(after, before, same) {
		t.Errorf("the servers are at %v, were at %v: the gateway verifies them where they were", after, before)
	}
	for _, r := range host.served() {
		got, err := s.ReplicaLogprobs(t.Context(), r, []int{1, 2})
		if err != nil || got[0] != -1-6 { // its prefix cache is fresh
			t.Fatalf("replica %s: %v, %v; want -7", r.ID, got, err)
		}
	}
}

func TestAdapter(t *testing.T) {
	t.Parallel()
	s, host, _ := start(t, request(t, Config{Model: enginetest.Model(t, 0), ServedModelName: "policy", EnableLora: true,
		MaxLoraRank: 8}))
	host.await(t, "a replica", ready(1))
	serves(t, s, 0) // the policy's name is served before the first adapter
	adapter := enginetest.Model(t, 5)
	if err := s.Load(t.Context(), sdk.Weights{Version: 1, Path: adapter, Format: "lora", Transport: "lora"}); err != nil {
		t.Fatal(err)
	}
	got, err := s.Logprobs(t.Context(), []int{1, 2})
	if err != nil || got[0] != -6 {
		t.Fatalf("%v, %v; want -6, the adapter's", got, err)
	}
}

//docs:survival.md the adapter is not used in rollouts
func TestAdapterWithoutLora(t *testing.T) {
	t.Parallel()
	s, host, _ := start(t, request(t, Config{Model: enginetest.Model(t, 0)}))
	host.await(t, "a replica", ready(1))
	var e *sdk.Error
	err := s.Load(t.Context(), sdk.Weights{Version: 1, Path: "/x", Format: "lora", Transport: "lora"})
	if !errors.As(err, &e) || !strings.Contains(e.Remedy, "enable_lora") {
		t.Fatalf("got %v, want a remedy that names enable_lora", err)
	}
	err = s.Load(t.Context(), sdk.Weights{Version: 1, Path: "/x", Format: "tensor", Transport: "pigeon"})
	if !errors.As(err, &e) || !strings.Contains(e.Detail, "reload") {
		t.Fatalf("got %v, want an error that lists what is offered", err)
	}
}

func TestServerWithoutRoute(t *testing.T) {
	t.Parallel()
	req := request(t, Config{Model: enginetest.Model(t, 0)})
	req.Environment[fakeLess] = "/collective_rpc"
	s, host, _ := start(t, req)
	host.await(t, "a replica", ready(1))
	var e *sdk.Error
	err := s.Load(t.Context(), hf(1, enginetest.Model(t, 3)))
	if !errors.As(err, &e) || !strings.Contains(e.Remedy, "restart") {
		t.Fatalf("got %v, want a remedy that names the restart transport", err)
	}
	if out := host.outputs[0].(engine.Outputs); strings.Join(out.Transports, " ") != "restart" ||
		!strings.Contains(host.text(), "weights by restart") {
		t.Errorf("transports %q, reported:\n%s\nwant restart alone", out.Transports, host.text())
	}
}

func TestPluginThatDiedFindsItsServerAgain(t *testing.T) {
	t.Parallel()
	req := request(t, Config{Model: enginetest.Model(t, 0)})
	// The server of an earlier attempt whose plugin died while the server was paused.
	_, earlier, _ := start(t, req)
	earlier.await(t, "a replica", ready(1))
	port, server := portOf(t, earlier.programs(), "vllm-0"), earlier.programs()
	address := engine.Address{Port: port, Key: earlier.served()[0].APIKey}
	c := newClient(address, req.Config)
	defer c.Close()
	if err := c.Post(t.Context(), "/pause", nil, nil); err != nil {
		t.Fatal(err)
	}
	stranger, err := proc.Start(t.Context(), proc.Spec{Name: "other", Argv: []string{"sleep", "600"}, LogDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stranger.Stop(context.Background(), time.Second) })

	req.Handle = proc.Encode(append(proc.Parse(server), stranger.Handle())...)
	req.Policy = sdk.Policy{Version: 3, Weights: enginetest.Model(t, 8), Format: "hf"}
	s, host, _ := start(t, req)
	host.await(t, "a replica", ready(1))
	if got, want := host.served()[0].URL, "http://127.0.0.1:"+strconv.Itoa(port); got != want {
		t.Fatalf("replica at %s, want the running one at %s", got, want)
	}
	serves(t, s, 8)
	if alive(stranger.PID()) {
		t.Error("a program of the earlier attempt that nobody can use was left running")
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	t.Run("hopeless", func(t *testing.T) {
		t.Parallel()
		req := request(t, Config{Model: enginetest.Model(t, 0), LimitSettings: restarts(5)})
		req.Environment[fakeLog] = absolute(t, "testdata/log/context.real.log")
		err := serveUntilItEnds(t, req, newRecorder())
		var e *sdk.Error
		if !errors.As(err, &e) || !strings.Contains(e.Summary, "max_model_len is longer") {
			t.Fatalf("got %v, want the diagnosis at once, without five restarts", err)
		}
	})
	t.Run("passing", func(t *testing.T) {
		t.Parallel()
		req := request(t, Config{Model: enginetest.Model(t, 0), LimitSettings: restarts(1)})
		req.Environment[fakeLog] = absolute(t, "testdata/log/port.real.log")
		req.Environment[fakeOnce] = filepath.Join(t.TempDir(), "once")
		_, host, _ := start(t, req)
		host.await(t, "a replica at the second try", ready(1))
	})
	t.Run("no interpreter", func(t *testing.T) {
		t.Parallel()
		req := request(t, Config{Model: enginetest.Model(t, 0)})
		req.Runtime.Python = filepath.Join(t.TempDir(), "python")
		var e *sdk.Error
		if err := serveUntilItEnds(t, req, newRecorder()); !errors.As(err, &e) || e.Remedy == "" {
			t.Fatalf("got %v, want an error with a remedy", err)
		}
	})
	t.Run("no model", func(t *testing.T) {
		t.Parallel()
		var e *sdk.Error
		if err := serveUntilItEnds(t, request(t, Config{Model: "./none"}), newRecorder()); !errors.As(err, &e) ||
			!strings.Contains(e.Summary, "config.json") || !e.Path.Equals(cty.GetAttrPath("model")) {
			t.Fatalf("got %+v, want an error about the model's folder that points to model", err)
		}
	})
	for log, c := range map[string]struct {
		config  Config
		setting string
	}{
		"context": {Config{MaxModelLen: 99999}, "max_model_len"},
		"value":   {Config{Quantization: "nosuch"}, "quantization"},
		"choice":  {Config{KVCacheDtype: "nosuch"}, "kv_cache_dtype"},
		"parser":  {Config{ToolCallParser: "nosuch", ReasoningParser: "qwen3"}, "tool_call_parser"},
	} {
		t.Run("points to "+c.setting, func(t *testing.T) {
			t.Parallel()
			c.config.Model, c.config.LimitSettings = enginetest.Model(t, 0), restarts(5)
			req := request(t, c.config)
			req.Environment[fakeLog] = absolute(t, "testdata/log/"+log+".real.log")
			var e *sdk.Error
			if err := serveUntilItEnds(t, req, newRecorder()); !errors.As(err, &e) ||
				!e.Path.Equals(cty.GetAttrPath(c.setting)) {
				t.Fatalf("got %+v, want an error that points to %s", err, c.setting)
			}
		})
	}
}

// Programs of an earlier attempt hold the GPU: they are ended also when this attempt cannot begin.
func TestAFailedBeginEndsEarlierPrograms(t *testing.T) {
	t.Parallel()
	old, err := proc.Start(t.Context(), proc.Spec{Name: "old", Argv: []string{"sleep", "600"}, LogDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = old.Stop(context.Background(), 0) })
	req := request(t, Config{Model: "./none"})
	req.Handle = proc.Encode(old.Handle())
	if err := serveUntilItEnds(t, req, newRecorder()); err == nil {
		t.Error("a model that is not there was served")
	}
	if alive(old.PID()) {
		t.Error("the program is still there")
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}
