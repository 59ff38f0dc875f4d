package plugintest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// served is an inference block with a client of its gateway, for checks of its weights.
type served struct {
	t       *testing.T
	ctx     context.Context
	block   *Block
	gateway *gateway.Client
	suite   Suite
}

// text is what the checks compare log-probabilities of.
var text = [...]int{1, 2, 3, 4}

func (s Suite) serve(t *testing.T, def *sdk.Definition, opts ...Option) *served {
	t.Helper()
	b := s.started(t, def, opts...)
	b.Ready()
	ctx, cancel := context.WithTimeout(t.Context(), 3*Deadline)
	t.Cleanup(cancel)
	g := gateway.NewClient(b.Output("control_url"), b.Output("control_token"))
	t.Cleanup(g.Close)
	return &served{t, ctx, b, g, s}
}

// load brings weights that Suite.Weights has written.
func (s *served) load(version int64, change func(*gateway.WeightUpdate)) error {
	s.t.Helper()
	u := s.suite.request(s.t, s.block, version)
	if change != nil {
		change(&u)
	}
	_, err := s.gateway.UpdateWeights(s.ctx, u)
	return err
}

// mustLoad is load for weights that have to be taken; it returns what the first replica makes of the text then.
func (s *served) mustLoad(version int64) []float64 {
	s.t.Helper()
	if err := s.load(version, nil); err != nil {
		s.t.Fatalf("update to version %d: %v", version, err)
	}
	return s.logprobs()
}

func (s *served) logprobs() []float64 {
	s.t.Helper()
	list, err := s.gateway.Logprobs(s.ctx, text[:])
	if err != nil || len(list) == 0 {
		s.t.Fatalf("log-probabilities: %v", err)
	}
	for _, r := range list[1:] {
		if !equalJSON(r.Logprobs, list[0].Logprobs) {
			s.t.Errorf("replica %s gives %v, replica %s %v", r.ID, r.Logprobs, list[0].ID, list[0].Logprobs)
		}
	}
	return list[0].Logprobs
}

// answers checks that requests are answered by a version, and that it has the weights that belong to it.
func (s *served) answers(when string, version int64, want []float64) {
	s.t.Helper()
	code, body := ask(s.t, s.block, s.block.Output("api_key"), 1)
	var a struct {
		Version int64 `json:"policy_version"`
	}
	if err := json.Unmarshal(body, &a); err != nil || code != http.StatusOK || a.Version != version {
		s.t.Errorf("%s: HTTP %d, policy version %d (%v), want an answer of version %d", when, code, a.Version, err, version)
	}
	if got := s.logprobs(); !equalJSON(got, want) {
		s.t.Errorf("%s: log-probabilities %v, want %v", when, got, want)
	}
}

// weightCheck checks that what the gateway verifies is what the engine serves.
func weightCheck(t *testing.T, def *sdk.Definition, suite Suite) {
	s := suite.serve(t, def)
	right := s.mustLoad(1)
	check := gateway.Check{Tokens: text[:], Logprobs: right, Tolerance: 1e-3}
	if err := s.load(1, func(u *gateway.WeightUpdate) { u.Check = &check }); err != nil {
		t.Errorf("the log-probabilities that it returns itself fail as a check: %v", err)
	}
	wrong := append([]float64(nil), right...)
	wrong[2] += 5
	check.Logprobs = wrong
	if err := s.load(2, func(u *gateway.WeightUpdate) { u.Check = &check }); !errors.Is(err, gateway.ErrMismatch) {
		t.Errorf("an update with another trainer's log-probabilities: %v, want %v", err, gateway.ErrMismatch)
	}
	s.answers("after an update that was not verified and one that was", 2, s.mustLoad(2))
}

// sleepAndWake checks an engine that says that it can sleep.
func sleepAndWake(t *testing.T, def *sdk.Definition, suite Suite) {
	s := suite.serve(t, def)
	sleeps := s.block.Outputs().AsValueMap()["sleeps"]
	if sleeps == cty.NilVal || sleeps.IsNull() || sleeps.False() {
		t.Skip("it does not sleep, as its outputs say")
	}
	first := s.mustLoad(1)
	asleep := func(level int, meanwhile func(hold string)) {
		t.Helper()
		h, err := s.gateway.Hold(s.ctx, gateway.HoldRequest{Lease: time.Minute, Reason: "compliance"})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.gateway.Sleep(s.ctx, h.ID, level); err != nil {
			t.Fatalf("sleep at level %d: %v", level, err)
		}
		meanwhile(h.ID)
		if err := s.gateway.Resume(s.ctx, h.ID); err != nil {
			t.Fatal(err)
		}
	}
	for level := 1; level <= 2; level++ {
		asleep(level, func(string) {})
		s.answers("after it slept", 1, first)
	}
	var second []float64
	asleep(2, func(hold string) {
		if err := s.load(2, func(u *gateway.WeightUpdate) { u.Hold = hold }); err != nil {
			t.Fatalf("weights for an engine that sleeps: %v", err)
		}
		second = s.logprobs()
	})
	s.answers("after weights woke it", 2, second)
	if equalJSON(first, second) {
		t.Errorf("the weights that woke it changed nothing: %v", second)
	}
}

// killedReplica ends one program of the block as kill -9 does: it is started again, and serves the version of before.
func killedReplica(t *testing.T, def *sdk.Definition, suite Suite) {
	s := suite.serve(t, def)
	want := s.mustLoad(1)
	handle := s.block.Status().GetHandle()
	programs := proc.Parse(handle)
	if len(programs) == 0 {
		t.Skip("it runs in the plugin's own process: its handle names no program")
	}
	if err := syscall.Kill(programs[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for {
		now := s.block.Status().GetHandle()
		status, err := s.gateway.Status(s.ctx)
		if err != nil {
			t.Fatalf("replica not back: %v", err)
		}
		ready := 0
		for _, r := range status.Replicas {
			if r.Ready && r.Version == 1 {
				ready++
			}
		}
		if !bytes.Equal(now, handle) && len(proc.Parse(now)) == len(programs) && ready == len(programs) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.answers("after a program was killed", 1, want)
}

// adopts tells a block of new weights while none of its programs is up: they come up with them, also where those that
// they served before have been removed meanwhile, as happens to old versions. With late
// it is told only after each of them has come up, has found nothing to load, and has ended.
func adopts(t *testing.T, def *sdk.Definition, suite Suite, late bool) {
	want := suite.serve(t, def).mustLoad(2)
	s := suite.serve(t, def)
	before := suite.Weights(t, t.TempDir(), 1)
	if _, err := s.gateway.UpdateWeights(s.ctx, gateway.WeightUpdate{Weights: before}); err != nil {
		t.Fatal(err)
	}
	programs := proc.Parse(s.block.Status().GetHandle())
	if len(programs) == 0 {
		t.Skip("it runs in the plugin's own process: its handle names no program")
	}
	update := gateway.WeightUpdate{Weights: suite.Weights(t, t.TempDir(), 2)}
	if err := s.gateway.Adopt(s.ctx, update); err == nil {
		t.Fatal("weights were only taken note of while a server was up")
	}
	if err := os.RemoveAll(before.Path); err != nil {
		t.Fatal(err)
	}
	for _, program := range programs {
		_ = syscall.Kill(program.PID, syscall.SIGKILL)
	}
	await := func(what string, done func(gateway.Status) bool) {
		t.Helper()
		for ; ; time.Sleep(time.Millisecond) {
			status, err := s.gateway.Status(s.ctx)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if done(status) {
				return
			}
		}
	}
	await("it does not say that none of its servers is up", func(now gateway.Status) bool { return now.Down })
	if late {
		ended := pids(programs)
		await("its servers are not started a second time", func(gateway.Status) bool {
			for _, program := range proc.Parse(s.block.Status().GetHandle()) {
				if !slices.Contains(ended, program.PID) {
					ended = append(ended, program.PID)
				}
			}
			return len(ended) > 2*len(programs)
		})
	}
	if err := s.gateway.Adopt(s.ctx, update); err != nil {
		t.Fatal(err)
	}
	await("its servers do not come up", func(now gateway.Status) bool {
		return len(now.Replicas) == len(programs) &&
			!slices.ContainsFunc(now.Replicas, func(r gateway.ReplicaStatus) bool { return !r.Ready })
	})
	s.answers("after its servers came up", 2, want)
}

func pids(programs []proc.Handle) []int {
	found := make([]int, len(programs))
	for i, p := range programs {
		found[i] = p.PID
	}
	return found
}

// restarted starts the block again in a run that has reached a version whose weights lie on a disk.
func restarted(t *testing.T, def *sdk.Definition, suite Suite) {
	want := suite.serve(t, def).mustLoad(3)
	w := suite.Weights(t, t.TempDir(), 3)
	s := suite.serve(t, def, func(r *pluginpb.StartRequest) {
		r.Policy = &pluginpb.Policy{Version: 3, Weights: w.Path, Format: w.Format}
	})
	s.answers("a new attempt of a run at version 3", 3, want)
}
