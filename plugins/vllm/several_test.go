package vllm

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/engine/enginetest"
)

// two runs a block of two servers.
func two(t *testing.T, change func(*sdk.Request[Config])) (*block, *recorder) {
	t.Helper()
	req := request(t, Config{Model: enginetest.Model(t, 0), Replicas: 2, LimitSettings: restarts(3)})
	if change != nil {
		change(&req)
	}
	s, host, _ := start(t, req)
	host.await(t, "two replicas", ready(2))
	return s, host
}

// all checks what every replica serves, once there are two: -1 - weight, and another weight for the prefix cache where
// it is kept.
func all(t *testing.T, s *block, host *recorder, weight float64) {
	t.Helper()
	for _, r := range host.served() {
		got, err := s.ReplicaLogprobs(t.Context(), r, []int{1, 2})
		if err != nil || (got[0] != -1-weight && got[0] != -1-2*weight) {
			t.Errorf("replica %s: %v, %v; want those of weight %v", r.ID, got, err, weight)
		}
	}
}

// If one of two servers fails to load new weights, it is started again with them, and delays neither the other one nor
// the update.
func TestAReplicaThatFailsKeepsNobodyBack(t *testing.T) {
	t.Parallel()
	s, host := two(t, nil)
	before := host.served()
	weights := enginetest.Model(t, 5)
	enginetest.Put(t, weights, "bad-"+before[1].URL[strings.LastIndexByte(before[1].URL, ':')+1:], "")
	var failed gateway.ReplicaErrors
	if err := s.Load(t.Context(), hf(1, weights)); !errors.As(err, &failed) || len(failed) != 1 || failed["1"] == nil ||
		!strings.Contains(err.Error(), "it is being started again with the new weights") {
		t.Fatalf("Load: %v; want an error of replica 1 alone, since the other one took the weights", err)
	}
	for _, r := range host.served() {
		if r.URL == before[1].URL {
			t.Error("the host did not learn that the server which failed is gone")
		}
	}
	host.await(t, "both at version 1", func(r *recorder) bool {
		return len(r.replicas) == 2 && r.replicas[0].URL == before[0].URL && r.replicas[1].URL != before[1].URL
	})
	all(t, s, host, 5)
}

// An update notices that a server was killed before its end has been noticed otherwise: the update continues with the
// other one.
func TestAReplicaThatDiesKeepsNobodyBack(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pids")
	s, host := two(t, func(r *sdk.Request[Config]) { r.Environment[fakePids] = pids })
	before := host.served()
	server, _ := readPids(t, pids, 1)
	if err := syscall.Kill(server, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var failed gateway.ReplicaErrors // nil when the end was noticed before the update
	err := s.Load(t.Context(), hf(1, enginetest.Model(t, 5)))
	if err != nil && (!errors.As(err, &failed) || len(failed) > 1) {
		t.Fatalf("Load: %v; one of two took the weights", err)
	}
	host.await(t, "both at version 1", func(r *recorder) bool {
		return len(r.replicas) == 2 && (r.replicas[0].URL != before[0].URL || r.replicas[1].URL != before[1].URL)
	})
	all(t, s, host, 5)
}

// waitsForALock says whether a goroutine started by a function waits for a mutex; it can be observed only in its stack.
func waitsForALock(function string) bool {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return slices.ContainsFunc(strings.Split(string(stacks), "\n\n"), func(stack string) bool {
		return strings.Contains(stack, "sync.(*Mutex).Lock(") && strings.Contains(stack, "created by ") &&
			strings.Contains(stack, "."+function+" in goroutine")
	})
}

// A server that is loading the current weights when new ones arrive does not stay at the old ones.
func TestAReplicaThatComesUpDuringAnUpdateIsUpdated(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pids")
	s, host := two(t, func(r *sdk.Request[Config]) { r.Environment[fakePids] = pids })
	old := enginetest.Model(t, 3)
	if err := s.Load(t.Context(), hf(1, old)); err != nil {
		t.Fatal(err)
	}
	enginetest.Put(t, old, "slow", "")
	server, _ := readPids(t, pids, 1)
	if err := syscall.Kill(server, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	host.await(t, "one replica", func(r *recorder) bool { return len(r.replicas) == 1 })
	eventually(t, "the new server to load version 1", func() bool { return enginetest.Exists(old, "loading") })
	updated := make(chan error, 1)
	go func(w sdk.Weights) { updated <- s.Load(t.Context(), w) }(hf(2, enginetest.Model(t, 5)))
	eventually(t, "the update to wait for the load of version 1", func() bool {
		return waitsForALock("TestAReplicaThatComesUpDuringAnUpdateIsUpdated")
	})
	if err := os.Remove(filepath.Join(old, "slow")); err != nil {
		t.Fatal(err)
	}
	if err := <-updated; err != nil {
		t.Fatal(err)
	}
	host.await(t, "two replicas", ready(2))
	all(t, s, host, 5)
}
