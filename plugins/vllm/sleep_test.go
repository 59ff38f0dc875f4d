package vllm

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
	"github.com/recipe-rl/recipe/sdk/kit/engine/enginetest"
)

func sleeper(t *testing.T, change func(*sdk.Request[Config])) sdk.Request[Config] {
	t.Helper()
	req := request(t, Config{Model: enginetest.Model(t, 0), EnableSleepMode: true, LimitSettings: restarts(2)})
	if change != nil {
		change(&req)
	}
	return req
}

func sleep(t *testing.T, s *block, level inference.SleepLevel) {
	t.Helper()
	if err := s.Sleep(t.Context(), level); err != nil {
		t.Fatalf("Sleep: %v", err)
	}
}

// A server that sleeps wakes for new weights: first its weights, the rest when they are loaded. The fake exits when
// released memory is used.
func TestWeightsWakeAServerThatSleeps(t *testing.T) {
	t.Parallel()
	for _, level := range []inference.SleepLevel{inference.SleepKeep, inference.SleepDrop} {
		for _, replicas := range []int64{1, 2} {
			s, host, _ := start(t, sleeper(t, func(r *sdk.Request[Config]) { r.Config.Replicas = replicas }))
			host.await(t, "replicas", ready(int(replicas)))
			if o := host.outputs[0].(engine.Outputs); !o.Sleeps {
				t.Fatal("the output sleeps is false")
			}
			for version := range int64(2) {
				sleep(t, s, level)
				if err := s.Load(t.Context(), hf(version+1, enginetest.Model(t, float64(version+3)))); err != nil {
					t.Fatalf("level %d: Load: %v", level, err)
				}
				serves(t, s, float64(version+3))
			}
		}
	}
}

func TestWakeBringsBackWhatWasServed(t *testing.T) {
	t.Parallel()
	s, host, _ := start(t, sleeper(t, nil))
	host.await(t, "a replica", ready(1))
	url := host.served()[0].URL
	wake := func() {
		t.Helper()
		if err := s.Wake(t.Context()); err != nil {
			t.Fatalf("Wake: %v", err)
		}
	}
	wake() // nothing sleeps
	sleep(t, s, inference.SleepKeep)
	wake()
	serves(t, s, 0)
	if err := s.Load(t.Context(), hf(1, enginetest.Model(t, 3))); err != nil {
		t.Fatal(err)
	}
	sleep(t, s, inference.SleepDrop)
	sleep(t, s, inference.SleepDrop) // a repeated call: the first answer was lost
	wake()
	serves(t, s, 3)
	if host.served()[0].URL != url {
		t.Error("the server was started again, although waking suffices")
	}
	// Dropped weights that are in no file: only a fresh start can serve the version again.
	if err := s.Load(t.Context(), published(2, "ipc", "a", 4)); err != nil {
		t.Fatal(err)
	}
	sleep(t, s, inference.SleepDrop)
	wake()
	host.await(t, "another server", func(r *recorder) bool {
		return len(r.replicas) == 1 && r.replicas[0].URL != url && strings.Count(strings.Join(r.logs, "\n"), "answers,") == 2
	})
	serves(t, s, 0)
}

// Memory that cannot be acquired again: the server is started again at its version, and a second attempt finds that
// one.
//
//docs:survival.md a server does not wake (out of memory)
func TestAServerThatDoesNotWakeIsStartedAgain(t *testing.T) {
	t.Parallel()
	once := filepath.Join(t.TempDir(), "failed")
	s, host, _ := start(t, sleeper(t, func(r *sdk.Request[Config]) { r.Environment[fakeWake] = once }))
	host.await(t, "a replica", ready(1))
	if err := s.Load(t.Context(), hf(1, enginetest.Model(t, 3))); err != nil {
		t.Fatal(err)
	}
	first := host.served()[0].URL
	sleep(t, s, inference.SleepKeep)
	err := s.Load(t.Context(), hf(2, enginetest.Model(t, 5)))
	if err == nil || !strings.Contains(err.Error(), "did not wake") || !strings.Contains(err.Error(), "out of memory") {
		t.Fatalf("got %v, want an error that says that it did not wake and why", err)
	}
	if len(host.served()) != 1 || host.served()[0].URL == first {
		t.Fatalf("the host still thinks that the server at %s takes weights: %+v", first, host.served())
	}
	if err := s.Load(t.Context(), hf(2, enginetest.Model(t, 5))); err != nil {
		t.Fatalf("second attempt: %v", err)
	}
	serves(t, s, 5)
	if text := host.text(); !strings.Contains(text, "answers, policy version 1,") {
		t.Errorf("it did not come back at the version that it served:\n%s", text)
	}
}

// A server that dies asleep is restarted when the others wake: the trainer uses its memory.
//
//docs:survival.md an inference block dies while it sleeps
func TestAServerThatDiesAsleepStartsAtWakeUp(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pids")
	s, host, _ := start(t, sleeper(t, func(r *sdk.Request[Config]) { r.Environment[fakePids] = pids }))
	host.await(t, "a replica", ready(1))
	sleep(t, s, inference.SleepKeep)
	server, _ := readPids(t, pids, 0)
	if err := syscall.Kill(server, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	host.await(t, "it waits", func(r *recorder) bool {
		return slices.ContainsFunc(r.phases, func(p string) bool {
			return strings.Contains(p,
				"after the trainer's step")
		})
	})
	sleep(t, s, inference.SleepKeep) // nothing to do for a replica that is not there
	if err := s.Load(t.Context(), hf(1, enginetest.Model(t, 4))); err != nil {
		t.Fatalf("Load: %v", err)
	}
	serves(t, s, 4)
}

// The plugin dies while its server sleeps: the next attempt adopts the server awake, at the version of the run.
//
//docs:survival.md an inference block dies while it sleeps
func TestAServerThatIsFoundAsleepIsWoken(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]int64{"base model": 0, "trained": 7} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := sleeper(t, nil)
			weights := enginetest.Model(t, 6)
			first, host, stop := start(t, req)
			host.await(t, "a replica", ready(1))
			want := 0.0
			if version > 0 {
				want = 6
				if err := first.Load(t.Context(), hf(version, weights)); err != nil {
					t.Fatal(err)
				}
				req.Policy = sdk.Policy{Version: version, Weights: weights, Format: "hf"}
			}
			sleep(t, first, inference.SleepDrop)
			req.Handle = host.programs()
			second, host2, _ := start(t, req)
			host2.await(t, "a replica", ready(1))
			serves(t, second, want)
			if err := stop(); err != nil && !errors.Is(err, context.Canceled) {
				t.Log(err)
			}
		})
	}
}

func TestWhatCannotSleepSaysSo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*sdk.Request[Config])
		want   string
	}{
		"not enabled": {func(r *sdk.Request[Config]) { r.Config.EnableSleepMode = false }, "enable_sleep_mode"},
		"on a CPU":    {func(r *sdk.Request[Config]) { r.Environment[fakeDevice] = "cpu" }, "cannot sleep"},
		"no route":    {func(r *sdk.Request[Config]) { r.Environment[fakeLess] = "/sleep" }, "cannot sleep"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, host, _ := start(t, sleeper(t, c.change))
			host.await(t, "a replica", ready(1))
			if host.outputs[0].(engine.Outputs).Sleeps {
				t.Error("the output sleeps is true")
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := s.Sleep(ctx, inference.SleepKeep); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Sleep: %v, want %q in it", err, c.want)
			}
			if err := s.Wake(ctx); err != nil {
				t.Errorf("Wake: %v", err)
			}
			serves(t, s, 0)
		})
	}
}
