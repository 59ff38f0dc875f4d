package sync_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/spec"
)

func sleeper(t *testing.T, change func(*plugintest.FakeConfig), opts ...plugintest.Option) *plugintest.Block {
	t.Helper()
	c := plugintest.FakeConfig{EnableSleepMode: true}
	if change != nil {
		change(&c)
	}
	return startInference(t, c, opts...)
}

// said returns the log lines of a block that contain one of the words, in order.
func said(b *plugintest.Block, words ...string) []string {
	var lines []string
	for _, e := range b.Events() {
		line := e.GetLog().GetMessage()
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(line, w) }) {
			lines = append(lines, line)
		}
	}
	return lines
}

// says checks all lines with any of some words. It waits for them: events come by a way of their own.
func says(t *testing.T, b *plugintest.Block, want []string, words ...string) {
	t.Helper()
	b.Wait(fmt.Sprintf("%d lines with %q", len(want), words), func(*pluginpb.Event) bool {
		return len(said(b, words...)) >= len(want)
	})
	if got := said(b, words...); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func waitSaid(t *testing.T, b *plugintest.Block, word string) {
	t.Helper()
	b.Wait(word, func(e *pluginpb.Event) bool { return strings.Contains(e.GetLog().GetMessage(), word) })
}

// A whole run: inference sleeps during each step and wakes for its weights, and no request reaches a server that
// sleeps.
func TestInferenceSleepsWhileTheTrainerWorks(t *testing.T) {
	t.Parallel()
	first, second := sleeper(t, nil), sleeper(t, nil, address("inference.fake.second"))
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 3, Delay: 50 * time.Millisecond})
	b := plugintest.Harness(t, sync.Definition())
	b.Start(config(train, first, second))
	asked := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	base, key := first.Output("base_url"), first.Output("api_key")
	go func() { // an environment that never pauses: each request is answered, however long it waits
		for ctx.Err() == nil {
			if err := complete(ctx, base, key); err != nil && ctx.Err() == nil {
				asked <- err
				return
			}
		}
		asked <- nil
	}()
	train.WaitPhase(sdk.Completed)
	stop()
	if err := <-asked; err != nil {
		t.Errorf("a request failed: %v", err)
	}
	want := plugintest.FakeLogprobs(3, []int{1, 2, 3})
	for _, server := range []*plugintest.Block{first, second} {
		if got := serves(t, server, 3); got[0] != want[0] {
			t.Errorf("%s gives %v, want those of step 3, %v", server.Address, got, want)
		}
		// In the first turn dropped weights could not be loaded again; afterwards the last version is in files.
		order := []string{"asleep at level 1", "awake for version 1", "asleep at level 2", "awake for version 2",
			"asleep at level 2", "awake for version 3"}
		says(t, server, order, "asleep", "awake")
	}
	for _, e := range b.Events() {
		if w := e.GetWeights(); w != nil && w.GetPhases()["turn"] <= 0.04 {
			t.Errorf("the weights event says nothing of the turn: %v", w.GetPhases())
		}
	}
}

func TestATurnWithoutNewWeightsWakesWhatWasServed(t *testing.T) {
	t.Parallel()
	server := sleeper(t, nil)
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 3})
	b := plugintest.Harness(t, sync.Definition())
	c := config(train, server)
	c.Every = 2
	b.Start(c)
	train.WaitPhase(sdk.Completed)
	serves(t, server, 1)
	order := []string{"asleep at level 1", "awake as before", "asleep at level 1", "awake for version 1",
		"asleep at level 1", "awake as before"}
	says(t, server, order, "asleep", "awake")
}

// placed is a block that reports its GPU.
func placed(r spec.Ref, gpu string) spec.Ref {
	if gpu != "" {
		values := r.Values.AsValueMap()
		values["devices"] = cty.ListVal([]cty.Value{cty.StringVal(gpu)})
		r.Values = cty.ObjectVal(values)
	}
	return r
}

func TestWhoSleeps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode   string
		sleeps bool
		gpus   [2]string // of trainer and server
		want   bool
		err    string
	}{
		"auto, can":                  {"auto", true, [2]string{}, true, ""},
		"auto, on one GPU":           {"auto", true, [2]string{"0", "0"}, true, ""},
		"auto, on GPUs of their own": {"auto", true, [2]string{"1", "0"}, false, ""},
		"auto, cannot":               {"auto", false, [2]string{}, false, ""},
		"share":                      {"share", true, [2]string{}, false, ""},
		"sleep, can":                 {"sleep", true, [2]string{"1", "0"}, true, ""},
		"sleep, cannot":              {"sleep", false, [2]string{}, false, "inference.fake.test cannot sleep"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := sleeper(t, func(f *plugintest.FakeConfig) { f.EnableSleepMode = c.sleeps })
			train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1})
			b := plugintest.Harness(t, sync.Definition())
			conf := config(train, server)
			conf.Colocated = c.mode
			conf.Trainer, conf.Inference[0] = placed(conf.Trainer, c.gpus[0]), placed(conf.Inference[0], c.gpus[1])
			b.Start(conf)
			if c.err != "" {
				e := b.Wait("failure", func(e *pluginpb.Event) bool { return e.GetPhase().GetPhase() == string(sdk.Failed) })
				if !strings.Contains(e.GetPhase().GetMessage(), c.err) {
					t.Errorf("the failure says %q", e.GetPhase().GetMessage())
				}
				return
			}
			train.WaitPhase(sdk.Completed)
			serves(t, server, 1)
			if c.want {
				waitSaid(t, server, "asleep") // what it says comes by a way of its own
			} else if got := said(server, "asleep"); len(got) > 0 {
				t.Errorf("it slept: %q", got)
			}
		})
	}
}

// The trainer dies during its turn: inference serves its previous weights.
//
//docs:survival.md the trainer dies while inference sleeps
//docs:troubleshooting.md A trainer killed between pause and resume
func TestInferenceWakesWhenTheTrainerDies(t *testing.T) {
	t.Parallel()
	server := sleeper(t, nil)
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 3, Delay: time.Hour})
	b := plugintest.Harness(t, sync.Definition())
	b.Start(config(train, server))
	waitSaid(t, server, "asleep")
	waitSaid(t, train, "trains step 1")
	if err := train.Stop(time.Second); err != nil {
		t.Fatal(err)
	}
	serves(t, server, 0)
	says(t, server, []string{"awake as before"}, "awake")
}

// The sync block dies during the trainer's turn: its next attempt finds the server asleep and leaves it asleep.
//
//docs:survival.md the sync block dies while inference sleeps
func TestANextLifeOfSyncLeavesInferenceAsleep(t *testing.T) {
	t.Parallel()
	server := sleeper(t, nil)
	until := filepath.Join(t.TempDir(), "until")
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1, Until: until})
	b := plugintest.Harness(t, sync.Definition())
	b.Start(config(train, server))
	waitSaid(t, train, "trains step 1")
	if err := b.Stop(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	g := client(server)
	defer g.Close()
	if s, err := g.Status(t.Context()); err != nil || !s.Held || s.Asleep == 0 {
		t.Fatalf("a sync block that stops wakes inference beside the trainer: %+v %v", s, err)
	}
	next := plugintest.Harness(t, sync.Definition())
	next.Start(config(train, server))
	next.Ready()
	if err := os.WriteFile(until, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	train.WaitPhase(sdk.Completed)
	serves(t, server, 1)
	says(t, server, []string{"asleep at level 1", "awake for version 1"}, "asleep", "awake")
}

// An earlier attempt died in a turn that has ended: the trainer is idle, so the server is woken.
//
//docs:survival.md the sync block dies while inference sleeps
func TestANextLifeOfSyncWakesWhatNobodyNeedsAsleep(t *testing.T) {
	t.Parallel()
	server := sleeper(t, nil)
	g := client(server)
	defer g.Close()
	h, err := g.Hold(t.Context(), gateway.HoldRequest{Lease: 10 * time.Minute,
		Reason: syncAddress + " leases the GPU to trainer.fake.test for step 7"})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Sleep(t.Context(), h.ID, 1); err != nil {
		t.Fatal(err)
	}
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 0})
	b := plugintest.Harness(t, sync.Definition())
	b.Start(config(train, server))
	serves(t, server, 0)
}

// An inference block that is restarted during a turn does not serve beside the trainer.
//
//docs:survival.md an inference block dies while it sleeps
func TestARestartedInferenceBlockSleepsOn(t *testing.T) {
	t.Parallel()
	server := sleeper(t, nil)
	until := filepath.Join(t.TempDir(), "until")
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1, Until: until})
	b := plugintest.Harness(t, sync.Definition())
	b.Start(config(train, server))
	waitSaid(t, train, "trains step 1")
	listen := server.Status().GetListen()
	if err := server.Stop(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	again := sleeper(t, nil, func(r *pluginpb.StartRequest) { r.Listen = listen })
	waitSaid(t, again, "asleep")
	if err := os.WriteFile(until, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	train.WaitPhase(sdk.Completed)
	serves(t, again, 1)
}

// Waking fails, for example for lack of memory. No request is answered, waking is retried, and a permanent failure ends
// the run with the reason.
//
//docs:survival.md a server does not wake (out of memory)
func TestFailureAtWakeUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		failures int64
		goesOn   bool
	}{"once": {1, true}, "for ever": {1000, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := sleeper(t, func(f *plugintest.FakeConfig) { f.WakeFailures = c.failures })
			train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1})
			b := plugintest.Harness(t, sync.Definition())
			b.Start(config(train, server))
			if c.goesOn {
				train.WaitPhase(sdk.Completed)
				serves(t, server, 1)
				return
			}
			failed := b.Wait("failure", func(e *pluginpb.Event) bool { return e.GetPhase().GetPhase() == string(sdk.Failed) })
			if m := failed.GetPhase().GetMessage(); !strings.Contains(m, "out of memory at wake-up") || !strings.Contains(m,
				"inference.fake.test") {
				t.Errorf("the failure says %q", m)
			}
			g := client(server)
			defer g.Close()
			if s, err := g.Status(t.Context()); err != nil || s.Replicas[0].Ready {
				t.Errorf("a server that did not wake gets requests: %+v %v", s, err)
			}
		})
	}
}

// A server fails to fall asleep: the trainer is informed and does not work beside it.
//
//docs:survival.md a server does not fall asleep
func TestAServerThatDoesNotSleepIsNamed(t *testing.T) {
	t.Parallel()
	server := sleeper(t, nil)
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1})
	ctx, cancel := context.WithTimeout(t.Context(), plugintest.Deadline)
	defer cancel()
	// From now on it refuses, although it reported that it can sleep.
	if _, err := server.Client.Update(ctx, &pluginpb.UpdateRequest{Config: server.Request(
		plugintest.FakeConfig{}).GetConfig()}); err != nil {
		t.Fatal(err)
	}
	b := plugintest.Harness(t, sync.Definition())
	b.Start(config(train, server))
	lost := train.Wait("failure", func(e *pluginpb.Event) bool { return e.GetPhase().GetPhase() == string(sdk.Failed) })
	if m := lost.GetPhase().GetMessage(); !strings.Contains(m, "could not give") || !strings.Contains(m, syncAddress) {
		t.Errorf("the trainer's failure says %q", m)
	}
	if got := said(train, "trains"); len(got) > 0 {
		t.Errorf("the trainer worked beside a server that is awake: %q", got)
	}
	serves(t, server, 0)
}

// An engine whose weights are lost while it sleeps wakes without an error. It answers no request: the check after
// wake-up takes it out of service, and it gets the current weights again.
//
//docs:troubleshooting.md An engine wakes with other weights than before it slept
//docs:weights.md Tests
func TestAServerThatLostItsWeightsAsleepIsNoticed(t *testing.T) {
	t.Parallel()
	server := sleeper(t, func(c *plugintest.FakeConfig) { c.WakeLost = 2 })
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 3})
	b := plugintest.Harness(t, sync.Definition())
	c := config(train, server)
	c.Every = 2 // the first and the third step publish no weights
	b.Start(c)
	train.WaitPhase(sdk.Completed)
	waitSaid(t, server, "after it woke: served weights differ from the trainer's")
	waitSaid(t, b, "serves policy version 1 again")
	want := plugintest.FakeLogprobs(2, []int{1, 2, 3})
	if got := serves(t, server, 1); !slices.Equal(got, want) {
		t.Errorf("log-probabilities %v, want those of step 2, %v", got, want)
	}
}
