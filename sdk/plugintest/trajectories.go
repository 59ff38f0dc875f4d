package plugintest

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// Trajectories is a trajectory API that keeps what environments post, for tests of environments.
type Trajectories struct {
	t      testing.TB
	server *httptest.Server

	mu     sync.Mutex
	batch  int
	groups []trajectory.Group
	envs   []trajectory.EnvRegistration
	parts  bool // the trainer takes rollouts of several sequences

	feed    func() trajectory.Group // nil: a trainer gets no batch
	trainer trajectory.Registration
	acked   int
}

// FakeTrajectories starts a trajectory API whose trainer has asked for batches of the given number of rollouts and
// takes everything at once.
func FakeTrajectories(t testing.TB, batchSize int) *Trajectories {
	t.Helper()
	f := &Trajectories{t: t, batch: batchSize}
	f.server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.server.Close)
	return f
}

// Reference makes a reference to it for an environment's configuration.
func (f *Trajectories) Reference() spec.Ref {
	return Ref("trajectories.fake.test", kind.Trajectories, outputs.Trajectories{URL: f.server.URL})
}

// Feed makes it deliver batches to a trainer, as many as it asks for, of groups that make returns; nil: FakeGroup.
func (f *Trajectories) Feed(make func() trajectory.Group) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.feed = make; make == nil {
		f.feed = FakeGroup
	}
}

// TakeParts makes its trainer one that trains on rollouts of several sequences.
func (f *Trajectories) TakeParts() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parts = true
}

// FakeGroup is four completions of one prompt, of which one has the score 0. Token ids are between 2 and 29.
func FakeGroup() trajectory.Group {
	env := 0
	g := trajectory.Group{EnvID: &env, PolicyVersion: trajectory.At(0)}
	for i := range 4 {
		answer := 20 + rand.IntN(10)
		g.Tokens = append(g.Tokens, []int{20, 21, 22, answer, 2})
		g.Masks = append(g.Masks, []int{-100, -100, -100, answer, 2})
		g.InferenceLogprobs = append(g.InferenceLogprobs, []float64{1, 1, 1, -2, -0.1})
		g.Scores = append(g.Scores, float64(min(1, i)))
	}
	return g
}

// Acknowledged is how many batches a trainer has acknowledged. The tests of a generated trainer ask for it.
func (f *Trajectories) Acknowledged() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.acked
}

// batchLocked is the next batch of the registered size; nil when there is no feed.
func (f *Trajectories) batchLocked() []trajectory.Group {
	var batch []trajectory.Group
	for n := 0; f.feed != nil && n < max(1, f.trainer.BatchSize); {
		g := f.feed()
		n += len(g.Tokens)
		batch = append(batch, g)
	}
	return batch
}

func (f *Trajectories) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	reply := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	switch r.URL.Path {
	case "/register-env":
		var e trajectory.EnvRegistration
		if json.NewDecoder(r.Body).Decode(&e) != nil || e.DesiredName == "" || e.GroupSize < 1 || e.MaxTokenLength < 1 {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		f.envs = append(f.envs, e)
		reply(map[string]any{
			"status": "success", "env_id": len(f.envs) - 1, "wandb_name": e.DesiredName + "_0", "checkpoint_dir": "",
			"starting_step":       0,
			"checkpoint_interval": 0, "num_steps": 1_000_000,
		})
	case "/register":
		if json.NewDecoder(r.Body).Decode(&f.trainer) != nil {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		reply(map[string]any{"uuid": 1, "status": "success"})
	case "/batch":
		reply(map[string]any{"batch": f.batchLocked(), "id": "lease", "lease_seconds": 60})
	case "/batch/lease/ack":
		f.acked++
		reply(map[string]string{"status": "success"})
	case "/info":
		reply(trajectory.Info{BatchSize: f.batch, MaxTokenLen: 1 << 20, RolloutParts: f.parts})
	case "/wandb_info":
		reply(map[string]any{"group": "test", "project": "test"})
	case "/status", "/status-env":
		reply(map[string]any{"current_step": len(f.groups), "queue_size": 0, "self_queue_size": 0,
			"unallocated_fraction": 1, "max_group_size": 1, "env_weight": 1})
	case "/policy_version":
		reply(map[string]any{"version": 0, "trainer_waits": true})
	case "/scored_data", "/scored_data_list":
		f.take(w, r)
	default:
		reply(map[string]string{"status": "success"})
	}
}

func (f *Trajectories) take(w http.ResponseWriter, r *http.Request) {
	groups := make([]trajectory.Group, 1)
	body, err := plain(r)
	switch {
	case err != nil:
	case r.URL.Path == "/scored_data":
		err = json.NewDecoder(body).Decode(&groups[0])
	default:
		err = json.NewDecoder(body).Decode(&groups)
	}
	if err != nil {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	f.groups = append(f.groups, groups...)
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "received", "groups_processed": len(groups)})
}

// plain is the body as it was before the client packed it.
func plain(r *http.Request) (io.Reader, error) {
	if r.Header.Get("Content-Encoding") != "gzip" {
		return r.Body, nil
	}
	return gzip.NewReader(r.Body)
}

// quiet is how long Wait waits without a word.
const quiet = 5 * time.Second

// Wait waits until so many groups have been posted, and returns all.
func (f *Trajectories) Wait(n int) []trajectory.Group {
	f.t.Helper()
	began, told := time.Now(), false
	deadline := began.Add(Deadline)
	for {
		if !told && time.Since(began) > quiet {
			told = true
			f.t.Logf("waiting up to %s for %d groups that the environment posts", Deadline, n)
		}
		f.mu.Lock()
		groups := append([]trajectory.Group(nil), f.groups...)
		f.mu.Unlock()
		if len(groups) >= n {
			return groups
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("%d groups were posted within %s, want %d. An environment posts no group that got no score (its log, "+
				"above, says why), that is too long (groups_too_long in its metrics), or whose scores are all equal while "+
				"drop_uninformative is set", len(groups), Deadline, n)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
