package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/recipe-rl/recipe/sdk"
)

//docs:troubleshooting.md Old cache entries answer under new weights
func TestUpdateSequence(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	ev := &events{}
	var g *Gateway
	var during Status
	g = start(t, Config{Version: 1, Events: ev.add, Update: each(func(_ context.Context, r Replica, u WeightUpdate) error {
		during = g.Status()
		if r.ID != "0" || u.Path != "/w/2" || u.Transport != "reload" {
			return fmt.Errorf("called for %+v with %+v", r, u)
		}
		return nil
	})}, e)
	res, err := g.UpdateWeights(context.Background(),
		WeightUpdate{Weights: sdk.Weights{Version: 2, Path: "/w/2", Transport: "reload"}})
	if err != nil {
		t.Fatal(err)
	}
	if !during.Held || during.Version != 1 {
		t.Errorf("during the update: held %v, version %d; want held at version 1", during.Held, during.Version)
	}
	if res.Version != 2 || g.Version() != 2 || g.Status().Held || len(res.Replicas) != 1 || res.Replicas[0].Error != "" {
		t.Errorf("after it: %+v, version %d", res, g.Version())
	}
	if ev.count(EventHeld) != 1 || ev.count(EventUpdated) != 1 || ev.count(EventResumed) != 1 {
		t.Errorf("events %+v", ev.list)
	}
	if _, err := g.UpdateWeights(context.Background(), WeightUpdate{Weights: sdk.Weights{Version: 1}}); err == nil {
		t.Error("an older version was taken without rollback")
	}
	if _, err := g.UpdateWeights(context.Background(), WeightUpdate{Weights: sdk.Weights{Version: 1, Path: "/w/2",
		Transport: "reload"}, Rollback: true}); err != nil || g.Version() != 1 {
		t.Errorf("rollback: %v, version %d", err, g.Version())
	}
}

// A request in flight across an update is stamped with both versions.
//
//docs:troubleshooting.md Nothing says which weights sampled a group
func TestUpdateKeepStampsRange(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{ModeKeep, ModeNone} {
		e := newEngine(t)
		g := start(t, Config{Version: 3, Update: func(context.Context, []Replica, WeightUpdate) error { return nil }}, e)
		entered, release := blocking(e)
		first := background(t, g, "/v1/completions", prompt)
		<-entered
		if _, err := g.UpdateWeights(context.Background(), WeightUpdate{Weights: sdk.Weights{Version: 4},
			Mode: mode}); err != nil {
			t.Fatal(err)
		}
		close(release)
		r := <-first
		if low, high := gjson.Get(r.body, "policy_version").Int(), gjson.Get(r.body, "policy_version_max").Int(); low != 3 ||
			high != 4 {
			t.Errorf("%s: stamped %d to %d, want 3 to 4", mode, low, high)
		}
		if rec, _, _ := g.Lookup([]int{1, 2, 3, 10, 20, 2}); rec.Version != 3 || rec.VersionMax != 4 {
			t.Errorf("%s: recorded %+v, want 3 to 4", mode, rec)
		}
	}
}

func TestFailedReplicaIsOutUntilRepaired(t *testing.T) {
	t.Parallel()
	good, bad := newEngine(t), newEngine(t)
	ev := &events{}
	var broken atomic.Bool
	broken.Store(true)
	g := start(t, Config{Events: ev.add, Update: each(func(_ context.Context, r Replica, _ WeightUpdate) error {
		if r.ID == "1" && broken.Load() {
			return errors.New("out of memory")
		}
		return nil
	})}, good, bad)
	res, err := g.UpdateWeights(context.Background(), WeightUpdate{Weights: sdk.Weights{Version: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if res.Replicas[0].Error != "" || !strings.Contains(res.Replicas[1].Error, "out of memory") ||
		ev.count(EventUpdateFailed) != 1 {
		t.Errorf("result %+v, events %+v", res, ev.list)
	}
	for i := range 20 {
		if r := post(t, g, "/v1/completions", fmt.Sprintf(`{"prompt":[%d]}`, i)); r.status != 200 {
			t.Fatalf("got %d %s", r.status, r.body)
		}
	}
	if n := len(bad.seen()); n != 0 {
		t.Errorf("a replica with unknown weights got %d requests", n)
	}
	broken.Store(false)
	if err := g.Admit(context.Background(), "1", -1); err != nil {
		t.Fatal(err)
	}
	if s := g.Status().Replicas[1]; !s.Ready || s.Version != 1 {
		t.Errorf("after repair: %+v", s)
	}
}

func TestUpdateThatNoReplicaTakes(t *testing.T) {
	t.Parallel()
	clock := newClock()
	var broken atomic.Bool
	e := newEngine(t)
	g := start(t, Config{Version: 1, Clock: clock, Update: func(context.Context, []Replica, WeightUpdate) error {
		if broken.Load() {
			return errors.New("no such path")
		}
		return nil
	}}, e)
	broken.Store(true)
	if _, err := g.UpdateWeights(context.Background(), WeightUpdate{Weights: sdk.Weights{Version: 2}}); err == nil ||
		g.Version() != 1 {
		t.Fatalf("error %v, version %d; want an error and version 1", err, g.Version())
	}
	waiting := background(t, g, "/v1/completions", prompt)
	eventually(t, "the request to wait", func() bool { return g.Status().Waiting == 1 })
	if len(e.seen()) != 0 {
		t.Error("an engine with unknown weights was asked")
	}
	broken.Store(false)
	if _, err := g.UpdateWeights(context.Background(), WeightUpdate{Weights: sdk.Weights{Version: 2}}); err != nil {
		t.Fatal(err)
	}
	if r := <-waiting; r.status != 200 || gjson.Get(r.body, "policy_version").Int() != 2 {
		t.Errorf("after the repair: %d %s", r.status, r.body)
	}
}

// An engine that was killed and restarted serves its base model; it must not answer for the policy before the current
// weights are loaded.
func TestRestartedReplicaIsBroughtUpFirst(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	var loads []int
	g := start(t, Config{Update: each(func(_ context.Context, _ Replica, u WeightUpdate) error {
		loads = append(loads, int(u.Version))
		return nil
	})}, e)
	if _, err := g.UpdateWeights(context.Background(),
		WeightUpdate{Weights: sdk.Weights{Version: 6, Path: "/w/6"}}); err != nil {
		t.Fatal(err)
	}
	if err := g.ReplicaLost("0", "killed"); err != nil {
		t.Fatal(err)
	}
	if err := g.SetReplicaHealthy("0", true, ""); err != nil { // a version that must be ignored
		t.Fatal(err)
	}
	waiting := background(t, g, "/v1/completions", prompt)
	eventually(t, "the request to wait", func() bool { return g.Status().Waiting == 1 })
	if n := len(e.seen()); n != 0 {
		t.Fatalf("%d requests reached an engine with its base weights", n)
	}
	if err := g.Admit(context.Background(), "0", 0); err != nil {
		t.Fatal(err)
	}
	if r := <-waiting; r.status != 200 || gjson.Get(r.body, "policy_version").Int() != 6 {
		t.Errorf("got %d %s, want version 6", r.status, r.body)
	}
	if fmt.Sprint(loads) != "[6 6]" {
		t.Errorf("loaded %v, want version 6 twice", loads)
	}
	next := start(t, Config{Version: 6, Last: &WeightUpdate{Weights: sdk.Weights{Version: 6}},
		Update: each(func(_ context.Context, _ Replica, u WeightUpdate) error {
			loads = append(loads, -int(u.Version))
			return nil
		})})
	if err := next.SetReplicas([]Replica{{ID: "0", URL: e.URL}}); err != nil {
		t.Fatal(err)
	}
	if err := next.Admit(context.Background(), "0", 0); err != nil || loads[len(loads)-1] != -6 ||
		!next.Status().Replicas[0].Ready {
		t.Errorf("in the next life: %v, loaded %v", err, loads)
	}
	if err := g.SetVersion(9); err != nil {
		t.Fatal(err)
	}
	if err := g.Admit(context.Background(), "0", 6); err == nil || !strings.Contains(err.Error(),
		"push the weights again") {
		t.Errorf("admitting at an old version without a known update: %v", err)
	}
}

//docs:survival.md training and inference disagree
//docs:troubleshooting.md A reload leaves the output head of a tied model at the old weights
func TestCheckVerifiesTheWeights(t *testing.T) {
	t.Parallel()
	right, wrong := newEngine(t), newEngine(t)
	wrong.set(nil, func(w http.ResponseWriter, _ *http.Request) { // an old output head: HTTP 200, other numbers
		_, _ = w.Write([]byte(`{"choices":[{"index":0,"text":"","prompt_logprobs":[null,{"6":{"logprob":-1.5}},{"7":{"logprob":-2.54}}]}]}`))
	})
	ev := &events{}
	g := start(t, Config{Events: ev.add, Update: func(context.Context, []Replica, WeightUpdate) error { return nil }},
		right, wrong)
	u := WeightUpdate{Weights: sdk.Weights{Version: 1}, Check: &Check{Tokens: []int{5, 6, 7}, Logprobs: []float64{0, -1.5,
		-2.5}, Tolerance: 1e-3}}
	res, err := g.UpdateWeights(context.Background(), u)
	if err != nil {
		t.Fatal(err)
	}
	if res.Replicas[0].Error != "" || !strings.Contains(res.Replicas[1].Error, "token 7 (position 2)") ||
		res.Replicas[1].Difference < 0.039 {
		t.Errorf("results %+v; want replica 1 to differ at position 2", res.Replicas)
	}
	if s := g.Status(); !s.Replicas[0].Ready || s.Replicas[1].Ready || ev.count(EventMismatch) != 1 {
		t.Errorf("status %+v, %d mismatches", s.Replicas, ev.count(EventMismatch))
	}
	list, err := g.Logprobs(context.Background(), []int{5, 6, 7})
	if err != nil || len(list) != 2 || list[0].Logprobs[2] != -2.5 || list[1].Logprobs[2] != -2.54 {
		t.Errorf("log-probabilities %+v, %v", list, err)
	}
	u.Version, u.Check.Logprobs[1] = 2, -9
	if _, err := g.UpdateWeights(context.Background(), u); !errors.Is(err, ErrMismatch) {
		t.Errorf("when all differ: %v, want ErrMismatch", err)
	}
}

// testdata/bfloat16.json has log-probabilities of an H200 (docs/benchmarks/gpu.md): of all measurements with the right
// weights the one that differs most, and of those with one matrix scrambled the one that differs least.
func TestTheToleranceOf16BitsTellsRightFromWrong(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("testdata", "bfloat16.json"))
	if err != nil {
		t.Fatal(err)
	}
	var measured map[string]struct{ Trainer, Served []float64 }
	if err := json.Unmarshal(raw, &measured); err != nil {
		t.Fatal(err)
	}
	check := func(trainer, served []float64) error {
		c := Check{Tokens: []int{1}, Logprobs: []float64{0}, Tolerance: 0.3}
		said := []string{"null"}
		for i, lp := range trainer {
			c.Tokens, c.Logprobs = append(c.Tokens, i+2), append(c.Logprobs, lp)
			said = append(said, fmt.Sprintf(`{"%d":{"logprob":%v}}`, i+2, served[i]))
		}
		e := newEngine(t)
		e.set(nil, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"choices":[{"index":0,"text":"","prompt_logprobs":[%s]}]}`, strings.Join(said, ","))
		})
		g := start(t, Config{Update: func(context.Context, []Replica, WeightUpdate) error { return nil }}, e)
		_, err := g.compare(context.Background(), Replica{ID: "0", URL: e.URL}, c)
		return err
	}
	if right := measured["right"]; check(right.Trainer, right.Served) != nil {
		t.Error("the right weights were refused:", check(right.Trainer, right.Served))
	}
	if wrong := measured["wrong"]; !errors.Is(check(wrong.Trainer, wrong.Served), ErrMismatch) {
		t.Error("wrong weights passed:", check(wrong.Trainer, wrong.Served))
	}
	unlike := slices.Clone(measured["right"].Trainer) // one token alone, which no rounding explains
	unlike[3] -= 2
	if err := check(measured["right"].Trainer, unlike); !errors.Is(err, ErrMismatch) ||
		!strings.Contains(err.Error(), "token 5 (position 4)") {
		t.Errorf("one token that is 2 off: %v, want ErrMismatch that names it", err)
	}
}

func TestUpdateUnderOwnHold(t *testing.T) {
	t.Parallel()
	clock := newClock()
	ev := &events{}
	inside, proceed := make(chan struct{}), make(chan struct{})
	g := start(t, Config{Clock: clock, Events: ev.add, Update: func(context.Context, []Replica, WeightUpdate) error {
		inside <- struct{}{}
		<-proceed
		return nil
	}}, newEngine(t))
	ctx := context.Background()
	h, err := g.Hold(ctx, HoldRequest{Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := g.UpdateWeights(ctx, WeightUpdate{Weights: sdk.Weights{Version: 1}, Hold: h.ID})
		done <- err
	}()
	<-inside
	if _, err := g.UpdateWeights(ctx, WeightUpdate{Weights: sdk.Weights{Version: 2}}); !errors.Is(err, ErrHeld) {
		t.Errorf("a second update: %v, want ErrHeld", err)
	}
	clock.advance(time.Hour) // the lease ends meanwhile: no request may be forwarded between old and new weights
	if !g.Status().Held {
		t.Error("let requests through during an update")
	}
	close(proceed)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if s := g.Status(); s.Held || s.Version != 1 || ev.count(EventHoldExpired) != 1 {
		t.Errorf("after the update: %+v; want the overdue hold ended at version 1", s)
	}
	if _, err := g.UpdateWeights(ctx, WeightUpdate{Weights: sdk.Weights{Version: 2}, Hold: h.ID}); !errors.Is(err,
		ErrNotHeld) {
		t.Errorf("update under a hold that ran out: %v, want ErrNotHeld", err)
	}
}

// A replica that comes back meanwhile does not have an update refused: the update follows its admission.
func TestAnUpdateWaitsForAnAdmission(t *testing.T) {
	t.Parallel()
	inside, proceed := make(chan string), make(chan struct{})
	g := start(t, Config{Update: func(_ context.Context, list []Replica, u WeightUpdate) error {
		inside <- fmt.Sprintf("version %d into %d", u.Weights.Version, len(list))
		<-proceed
		return nil
	}}, newEngine(t), newEngine(t))
	ctx, done := t.Context(), make(chan error, 2)
	update := func(version int64) {
		_, err := g.UpdateWeights(ctx, WeightUpdate{Weights: sdk.Weights{Version: version}})
		done <- err
	}
	go update(1)
	<-inside
	close(proceed)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	proceed = make(chan struct{})
	id := g.Status().Replicas[1].ID
	go func() { done <- g.Admit(ctx, id, UnknownVersion) }()
	if got := <-inside; got != "version 1 into 1" {
		t.Fatalf("the admission loads %s", got)
	}
	go update(2)
	select {
	case err := <-done:
		t.Fatalf("the update did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(proceed)
	if got := <-inside; got != "version 2 into 2" {
		t.Errorf("the update loads %s", got)
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if s := g.Status(); s.Version != 2 || s.Replicas[1].Version != 2 {
		t.Errorf("after both: %+v", s)
	}
}

// Under load and random updates, failures and restarts, every answer's stamp covers the weights that made it, and with
// draining it is exact.
//
//docs:survival.md pause and update race
//docs:troubleshooting.md One of several servers has other weights
func TestVersionsNeverMix(t *testing.T) {
	t.Parallel()
	const broken, dead = -1000, -2000 // versions of engines that must get no request
	for _, mode := range []Mode{ModeDrain, ModeAbort, ModeKeep, ModeNone} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			var served [3]atomic.Int64 // the version each engine really has
			var list []*fakeEngine
			for i := range served {
				e := newEngine(t)
				e.set(nil, func(w http.ResponseWriter, r *http.Request) {
					from := served[i].Load()
					time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
					to := served[i].Load()
					if from == dead || to == dead {
						panic(http.ErrAbortHandler) // an engine that is gone answers nothing, also not what was sent before
					}
					_, _ = fmt.Fprintf(w, `{"from":%d,"to":%d}`, from, to)
				})
				list = append(list, e)
			}
			g := start(t, Config{Update: each(func(_ context.Context, r Replica, u WeightUpdate) error {
				i := int(r.ID[0] - '0')
				if rand.IntN(5) == 0 {
					served[i].Store(broken)
					return errors.New("broken")
				}
				time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
				served[i].Store(int64(u.Version))
				return nil
			})}, list...)
			stop := make(chan struct{})
			var wg sync.WaitGroup
			var answers atomic.Int64
			for range 8 {
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						r, err := send(context.Background(), g, "/v1/completions", `{"prompt":"x"}`)
						if err != nil || r.status != 200 {
							t.Errorf("%v %d %s", err, r.status, r.body)
							return
						}
						answers.Add(1)
						low, high := gjson.Get(r.body, "policy_version").Int(), gjson.Get(r.body, "policy_version_max").Int()
						from, to := gjson.Get(r.body, "from").Int(), gjson.Get(r.body, "to").Int()
						unusable := from < 0 || (to < 0 && mode != ModeKeep && mode != ModeNone)
						if unusable || from < low || from > high || to > high {
							t.Errorf("stamped %d to %d, sampled by %d to %d", low, high, from, to)
						}
						if mode == ModeDrain && low != high {
							t.Errorf("drained, and still stamped %d to %d", low, high)
						}
					}
				})
			}
			for v := 1; v <= 25; v++ {
				for { // all three may fail
					if _, err := g.UpdateWeights(context.Background(), WeightUpdate{Weights: sdk.Weights{Version: int64(v)},
						Mode: mode}); err == nil {
						break
					}
				}
				if rand.IntN(3) == 0 {
					_ = g.ReplicaLost("0", "test")
					served[0].Store(dead)
					_ = g.Admit(context.Background(), "0", -1) // may be broken; the next update then repairs it
				}
			}
			for g.Admit(context.Background(), "1", -1) != nil { // otherwise all three may be broken now
			}
			before := answers.Load()
			eventually(t, "more answers", func() bool { return answers.Load() > before+20 || t.Failed() })
			close(stop)
			wg.Wait()
		})
	}
}
