package environment_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

func TestEvaluate(t *testing.T) {
	t.Parallel()
	_, b := setUp(t, nil)
	b.Ready()
	ctx, cancel := context.WithTimeout(t.Context(), plugintest.Deadline)
	defer cancel()
	for _, c := range []struct{ limit, tasks int64 }{{0, 3}, {2, 2}} {
		r, err := b.Client.Evaluate(ctx, &pluginpb.EvaluateRequest{Limit: c.limit})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.GetResults(); len(got) != int(c.tasks) || len(got[1].GetCompletions()) != 1 || got[1].GetTask() != 1 ||
			got[1].GetCompletions()[0].GetTokens() != 8 || len(got[1].GetGroup()) == 0 {
			t.Errorf("limit %d: the completions are %v", c.limit, got)
		}
		if r.GetMetrics()["tasks"] != float64(c.tasks) || r.GetMetrics()["truncated"] != 1 ||
			r.GetMetrics()["completion_tokens"] != 8 {
			t.Errorf("limit %d: %v", c.limit, r)
		}
	}
}

func TestEvaluateTasks(t *testing.T) {
	t.Parallel()
	_, b := setUp(t, nil)
	b.Ready()
	ctx, cancel := context.WithTimeout(t.Context(), plugintest.Deadline)
	defer cancel()
	for _, c := range []struct {
		first, limit int64
		want         []int64
	}{{0, 0, []int64{0, 1, 2}}, {1, 1, []int64{1}}, {2, 5, []int64{2}}, {3, 1, nil}} {
		r, err := b.Client.Evaluate(ctx, &pluginpb.EvaluateRequest{First: c.first, Limit: c.limit, Samples: 4,
			Temperature: 1})
		if err != nil {
			t.Fatal(err)
		}
		var tasks []int64
		for _, result := range r.GetResults() {
			tasks = append(tasks, result.GetTask())
			if len(result.GetScores()) != 4 || len(result.GetDigest()) != 16 || result.GetPrompt() == "" {
				t.Errorf("task %d: %v, want 4 scores, a digest and the prompt", result.GetTask(), result)
			}
			checkCompletions(t, result)
		}
		if !slices.Equal(tasks, c.want) || r.GetTasks() != 3 {
			t.Errorf("from %d, %d at most: tasks %v of %d, want %v of 3", c.first, c.limit, tasks, r.GetTasks(), c.want)
		}
	}
}

// checkCompletions checks that all of a task's completions are kept, with tokens.
func checkCompletions(t *testing.T, r *pluginpb.TaskScores) {
	t.Helper()
	var g trajectory.Group
	if err := json.Unmarshal(r.GetGroup(), &g); err != nil || len(g.Tokens) != len(r.GetCompletions()) ||
		len(g.Messages) == 0 || g.GroupOverrides[trajectory.OverrideExpected] != "many letters" {
		t.Errorf("the group of task %d is %s (%v)", r.GetTask(), r.GetGroup(), err)
	}
	if r.GetExpected() != "many letters" || r.GetMessages() != "" { // the environment sends texts
		t.Errorf("task %d: expected %q, messages %q", r.GetTask(), r.GetExpected(), r.GetMessages())
	}
	for i, c := range r.GetCompletions() {
		if c.GetText() == "" || c.GetFinishReason() != "length" || c.GetTokens() != 8 {
			t.Errorf("completion %d of task %d is %v", i, r.GetTask(), c)
		}
		if c.GetFailed() == "" && (c.Score == nil || c.GetMetrics()["letters"] != c.GetScore()) {
			t.Errorf("completion %d of task %d is %v, want a score and its metric", i, r.GetTask(), c)
		}
	}
}

// A rollout that fails is recorded with its reason and its text, and the other tasks are evaluated.
func TestAnEvaluationGoesOnPastFailures(t *testing.T) {
	t.Parallel()
	_, b := setUp(t, func(c *config) { c.Strike = "two" })
	b.Ready()
	ctx, cancel := context.WithTimeout(t.Context(), plugintest.Deadline)
	defer cancel()
	r, err := b.Client.Evaluate(ctx, &pluginpb.EvaluateRequest{Samples: 2, Temperature: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{0, 2, 0} {
		got := r.GetResults()[i]
		if len(got.GetFailed()) != want || len(got.GetScores()) != 2-want {
			t.Errorf("task %d has %v, want %d failures", i, got, want)
		}
		checkCompletions(t, got)
		for _, c := range got.GetCompletions() {
			if want > 0 && (c.Score != nil || !strings.Contains(c.GetFailed(), "on strike")) {
				t.Errorf("a completion that failed is %v", c)
			}
		}
	}
	whole, err := b.Client.Evaluate(ctx, &pluginpb.EvaluateRequest{})
	if err != nil || whole.GetMetrics()["failed"] != 1 || whole.GetMetrics()["tasks"] != 3 {
		t.Errorf("the greedy evaluation answers %v, %v", whole, err)
	}
}

// An episode that fails does not end the evaluation, and what it has sampled is kept.
func TestAnEvaluationGoesOnPastEpisodes(t *testing.T) {
	t.Parallel()
	for fault, want := range map[string]struct {
		reason string
		tokens int64
	}{"broken": {"the data set is empty", 0}, "metric": {"a metric with the value 1 has no name", 3}} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			b, _ := evaluatedTurns(t, newChatML(t), fault)
			r := b.evaluate(t, &pluginpb.EvaluateRequest{Samples: 2, Temperature: 1}, nil)
			if len(r.GetResults()) != 3 {
				t.Fatalf("%d tasks are answered, want 3", len(r.GetResults()))
			}
			for _, task := range r.GetResults() {
				if len(task.GetFailed()) != 2 || !strings.Contains(task.GetFailed()[0], want.reason) ||
					task.GetCompletions()[0].GetTokens() != want.tokens {
					t.Errorf("a task whose episodes failed is %v", task)
				}
			}
		})
	}
}

// idle is an environment that no trainer waits for.
type idle struct{ *plugintest.Block }

// evaluatedTurns starts an environment of turns that only an evaluation asks.
func evaluatedTurns(t *testing.T, c *chatML, fault string) (idle, *turns) {
	t.Helper()
	a, env := newAPI(t), &turns{}
	a.set(func(a *api) { a.waiting = true })
	book := plugintest.Ref("trajectories.x.y", kind.Trajectories, outputs.Trajectories{URL: a.URL})
	config := turnsConfig{
		Settings: environment.Settings{Inference: plugintest.Ref("inference.x.y", kind.Inference, c.reference()),
			Trajectories: &book, GroupSize: 2, MaxTokens: 8, Temperature: 1, TopP: 1, RequestTimeout: time.Minute},
		EpisodeSettings: environment.EpisodeSettings{MaxTurns: 5, Reward: "sum", EpisodeTimeout: time.Minute,
			EpisodeAttempts: 1}, Turns: 2, Fault: fault,
	}
	if fault == "update" {
		env.step = func() { c.version.Add(1) }
	}
	b := plugintest.Harness(t, environment.DefineEpisodes("turns", "Some turns.",
		func(_ context.Context, s environment.Setup[turnsConfig]) (*turns, error) {
			env.config = s.Config
			return env, nil
		}))
	b.Start(config)
	return idle{b}, env
}

// evaluate asks as soon as the environment runs. failed receives the error, nil: there must be none.
func (b idle) evaluate(t *testing.T, q *pluginpb.EvaluateRequest, failed *error) *pluginpb.EvaluateResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), plugintest.Deadline)
	defer cancel()
	for {
		r, err := b.Client.Evaluate(ctx, q)
		if err != nil && (strings.Contains(err.Error(), "does not run") || status.Code(err) == codes.FailedPrecondition) &&
			ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if failed != nil {
			*failed = err
		} else if err != nil {
			t.Fatal(err)
		}
		return r
	}
}

// Tasks that an older policy version answered are answered again.
func TestAnEvaluationIsOfOnePolicyVersion(t *testing.T) {
	t.Parallel()
	c := newChatML(t)
	var mu sync.Mutex
	var versions []int64
	c.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		versions = append(versions, min(int64(len(versions)/2), 1)) // two answers of version 0
		c.version.Store(versions[len(versions)-1])
		c.serve(w, r)
	})
	b, _ := evaluatedTurns(t, c, "one turn")
	r := b.evaluate(t, &pluginpb.EvaluateRequest{}, nil)
	if r.GetPolicyVersion() != 1 || r.GetMetrics()["tasks"] != 3 || len(versions) < 7 {
		t.Errorf("%v after %d answers; want version 1 alone", r, len(versions))
	}
	tasks := b.evaluate(t, &pluginpb.EvaluateRequest{Samples: 1}, nil)
	for _, task := range tasks.GetResults() {
		if !slices.Equal(task.GetPolicyVersions(), []int64{1, 1}) {
			t.Errorf("task %d is of versions %v", task.GetTask(), task.GetPolicyVersions())
		}
	}
}

// A policy that changes again and again is refused.
func TestAnEvaluationRefusesSeveralVersions(t *testing.T) {
	t.Parallel()
	b, _ := evaluatedTurns(t, newChatML(t), "update")
	var err error
	b.evaluate(t, &pluginpb.EvaluateRequest{}, &err)
	if err == nil || !strings.Contains(err.Error(), "the policy changed during the evaluation") {
		t.Errorf("the evaluation ended with %v", err)
	}
}

// A policy that changes faster than it is evaluated is kept at one version for the last rounds.
func TestAnEvaluationKeepsTheVersion(t *testing.T) {
	t.Parallel()
	c := newChatML(t)
	c.control = c.URL
	var kept atomic.Bool
	c.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/recipe/v1/keep" {
			c.serve(w, r)
			return
		}
		var q struct {
			ID    string  `json:"id"`
			Lease float64 `json:"lease_seconds"`
		}
		if r.Header.Get("Authorization") != "Bearer admin" || json.NewDecoder(r.Body).Decode(&q) != nil || q.ID == "" {
			t.Errorf("%v %+v", r.Header, q)
		}
		kept.Store(q.Lease > 0)
	})
	b, env := evaluatedTurns(t, c, "one turn")
	env.step = func() {
		if !kept.Load() { // as a sync block
			c.version.Add(1)
		}
	}
	r := b.evaluate(t, &pluginpb.EvaluateRequest{}, nil)
	if r.GetMetrics()["tasks"] != 3 || r.GetPolicyVersion() < 2 || kept.Load() {
		t.Errorf("%v; want one version after rounds in which it changed, and the version released: %v", r, kept.Load())
	}
}
