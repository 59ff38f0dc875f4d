package plugintest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/internal/weightclient"
	"github.com/recipe-rl/recipe/internal/weightserver"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/protocol"
	"github.com/recipe-rl/recipe/sdk/trainer"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// inferenceChecks are those of inference plugins.
func inferenceChecks(t *testing.T, def *sdk.Definition, s Suite) {
	t.Run("gateway demands its token", func(t *testing.T) {
		b := s.started(t, def)
		b.Ready()
		for name, token := range map[string]string{"none": "", "wrong": "not-the-token"} {
			if code, _ := ask(t, b, token, 1); code != http.StatusUnauthorized {
				t.Errorf("a request with token %s: HTTP %d, want 401", name, code)
			}
		}
	})
	t.Run("one token", func(t *testing.T) {
		b := s.started(t, def)
		b.Ready()
		code, body := ask(t, b, b.Output("api_key"), 1)
		var a struct {
			Version *int64 `json:"policy_version"`
			Choices []struct {
				TokenIDs       []int `json:"token_ids"`
				PromptTokenIDs []int `json:"prompt_token_ids"`
				Logprobs       struct {
					TokenLogprobs []float64 `json:"token_logprobs"`
				} `json:"logprobs"`
			} `json:"choices"`
		}
		if err := json.Unmarshal(body, &a); err != nil || code != http.StatusOK || len(a.Choices) != 1 {
			t.Fatalf("HTTP %d: %s (%v)", code, body, err)
		}
		c := a.Choices[0]
		if len(c.TokenIDs) != 1 || len(c.Logprobs.TokenLogprobs) != 1 || len(c.PromptTokenIDs) == 0 ||
			a.Version == nil {
			t.Errorf("token ids %v, log-probabilities %v, prompt ids %v, policy version %v: training needs all of them",
				c.TokenIDs, c.Logprobs.TokenLogprobs, c.PromptTokenIDs, a.Version)
		}
	})
	t.Run("requests wait while it is held", func(t *testing.T) { heldRequests(t, def, s) })
	if s.Weights != nil {
		t.Run("weights", func(t *testing.T) { weightUpdate(t, def, s) })
		t.Run("weights are verified", func(t *testing.T) { weightCheck(t, def, s) })
		t.Run("sleep and wake", func(t *testing.T) { sleepAndWake(t, def, s) })
		t.Run("a program is killed", func(t *testing.T) { killedReplica(t, def, s) })
		t.Run("weights while none is up", func(t *testing.T) { adopts(t, def, s, false) })
		t.Run("weights after a start without them", func(t *testing.T) { adopts(t, def, s, true) })
		t.Run("a new attempt serves the policy", func(t *testing.T) { restarted(t, def, s) })
		t.Run("a new attempt waits for the policy's weights", func(t *testing.T) { closedUntilSynced(t, def, s) })
	}
}

// ask sends one small request and returns the answer.
func ask(t *testing.T, b *Block, token string, maxTokens int) (int, []byte) {
	t.Helper()
	code, body, err := tryAsk(t.Context(), b.Output("base_url"), b.Output("model"), token, maxTokens)
	if err != nil {
		t.Fatalf("ask %s: %v", b.Address, err)
	}
	return code, body
}

func tryAsk(ctx context.Context, base, model, token string, maxTokens int) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	data, err := json.Marshal(map[string]any{
		"model": model, "prompt": "1", "max_tokens": maxTokens, "temperature": 1, "logprobs": 0,
		"return_token_ids": true,
	})
	if err != nil {
		return 0, nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/completions", bytes.NewReader(data))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(r)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

func heldRequests(t *testing.T, def *sdk.Definition, s Suite) {
	b := s.started(t, def)
	b.Ready()
	if code, body := ask(t, b, b.Output("api_key"), 1); code != http.StatusOK {
		t.Fatalf("HTTP %d before the hold: %s", code, body)
	}
	g := gateway.NewClient(b.Output("control_url"), b.Output("control_token"))
	defer g.Close()
	ctx, cancel := context.WithTimeout(t.Context(), Deadline)
	defer cancel()
	h, err := g.Hold(ctx, gateway.HoldRequest{Lease: time.Minute, Reason: "compliance"})
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan int, 1)
	base, model, key := b.Output("base_url"), b.Output("model"), b.Output("api_key")
	go func() {
		code, _, _ := tryAsk(ctx, base, model, key, 1)
		answered <- code
	}()
	select {
	case code := <-answered:
		t.Errorf("a request was answered with HTTP %d while the gateway was held", code)
	case <-time.After(200 * time.Millisecond):
	}
	if err := g.Resume(ctx, h.ID); err != nil {
		t.Fatal(err)
	}
	if code := <-answered; code != http.StatusOK {
		t.Errorf("the request that waited got HTTP %d, want 200", code)
	}
}

// request is a weight update as a sync block sends it.
func (s Suite) request(t *testing.T, b *Block, version int64) gateway.WeightUpdate {
	t.Helper()
	w := s.Weights(t, t.TempDir(), version)
	return gateway.WeightUpdate{Weights: w}
}

// everyReplica returns when all replicas are up: a block is ready when one is, and a replica that comes up between two
// questions changes the answer.
func everyReplica(ctx context.Context, t *testing.T, g *gateway.Client) {
	t.Helper()
	for {
		status, err := g.Status(ctx)
		if err != nil {
			t.Fatalf("wait for every replica: %v", err)
		}
		down := slices.IndexFunc(status.Replicas, func(r gateway.ReplicaStatus) bool { return !r.Healthy })
		if down < 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("replica %s did not come up in %s", status.Replicas[down].ID, Deadline)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func weightUpdate(t *testing.T, def *sdk.Definition, s Suite) {
	b := s.started(t, def)
	b.Ready()
	g := gateway.NewClient(b.Output("control_url"), b.Output("control_token"))
	defer g.Close()
	ctx, cancel := context.WithTimeout(t.Context(), Deadline)
	defer cancel()
	everyReplica(ctx, t, g)
	tokens := []int{1, 2, 3, 4}
	var seen [][]float64
	for version := int64(1); version <= 2; version++ {
		if _, err := g.UpdateWeights(ctx, s.request(t, b, version)); err != nil {
			t.Fatalf("update to version %d: %v", version, err)
		}
		list, err := g.Logprobs(ctx, tokens)
		if err != nil || len(list) == 0 {
			t.Fatalf("log-probabilities of version %d: %v", version, err)
		}
		again, err := g.Logprobs(ctx, tokens)
		if err != nil {
			t.Errorf("log-probabilities of version %d for the second time: %v", version, err)
		}
		for _, first := range list { // a replica that is down for a moment, as on a busy machine, is in one of the two
			i := slices.IndexFunc(again, func(r gateway.ReplicaLogprobs) bool { return r.ID == first.ID })
			if i >= 0 && !equalJSON(first, again[i]) {
				t.Errorf("log-probabilities of one text differ between two calls: %v and %v", first, again[i])
			}
		}
		seen = append(seen, list[0].Logprobs)
		code, body := ask(t, b, b.Output("api_key"), 1)
		var a struct {
			Version int64 `json:"policy_version"`
		}
		if err := json.Unmarshal(body, &a); err != nil || code != http.StatusOK || a.Version != version {
			t.Errorf("an answer after the update to version %d: HTTP %d, policy version %d (%v)", version, code,
				a.Version, err)
		}
	}
	if equalJSON(seen[0], seen[1]) {
		t.Errorf("two versions with different weights have the same log-probabilities %v: the update changed nothing",
			seen[0])
	}
	if v := b.Status().GetPolicyVersion(); v != 2 {
		t.Errorf("status gives policy version %d, want 2", v)
	}
	missing := gateway.WeightUpdate{Weights: sdk.Weights{Version: 3, Path: "/no/such/weights", Transport: "reload"}}
	if _, err := g.UpdateWeights(ctx, missing); err == nil {
		t.Error("weights that do not exist were taken")
	}
	if _, err := g.UpdateWeights(ctx, s.request(t, b, 3)); err != nil {
		// The replica is out after a failure, until it is said to be healthy again.
		status, statusErr := g.Status(ctx)
		if statusErr != nil {
			t.Fatal(statusErr)
		}
		for _, r := range status.Replicas {
			if err := g.SetReplicaHealthy(ctx, r.ID, true, ""); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := g.UpdateWeights(ctx, s.request(t, b, 3)); err != nil {
			t.Errorf("an update after one that failed: %v", err)
		}
	}
}

// closedUntilSynced starts a new attempt of a run that has reached a version whose weights are in no file.
func closedUntilSynced(t *testing.T, def *sdk.Definition, s Suite) {
	b := s.started(t, def, func(r *pluginpb.StartRequest) { r.Policy = &pluginpb.Policy{Version: 5} })
	b.Ready()
	ctx, cancel := context.WithTimeout(t.Context(), Deadline)
	defer cancel()
	answered := make(chan []byte, 1)
	base, model, key := b.Output("base_url"), b.Output("model"), b.Output("api_key")
	go func() {
		_, body, _ := tryAsk(ctx, base, model, key, 1)
		answered <- body
	}()
	select {
	case body := <-answered:
		t.Fatalf("it answered with weights of which nobody knows the version: %s", body)
	case <-time.After(200 * time.Millisecond):
	}
	g := gateway.NewClient(b.Output("control_url"), b.Output("control_token"))
	defer g.Close()
	if _, err := g.UpdateWeights(ctx, s.request(t, b, 5)); err != nil {
		t.Fatal(err)
	}
	var a struct {
		Version int64 `json:"policy_version"`
	}
	if body := <-answered; json.Unmarshal(body, &a) != nil || a.Version != 5 {
		t.Errorf("the request that waited got %s, want an answer of version 5", body)
	}
}

// trainerChecks are those of trainers: one publishes its weights and waits until they are served.
func trainerChecks(t *testing.T, def *sdk.Definition, s Suite) {
	t.Run("hands over its weights", func(t *testing.T) {
		b := s.started(t, def, func(r *pluginpb.StartRequest) { r.SyncedBy = []string{"sync.weights.test"} })
		b.Ready()
		c := weightclient.New(b.Output("control_url"), b.Output("control_token"))
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 2*Deadline)
		defer cancel()
		if _, err := weightclient.New(b.Output("control_url"), "wrong").State(ctx); err == nil {
			t.Error("the control endpoint answered to a wrong token")
		}
		if _, err := c.Attach(ctx, weightserver.Attach{Address: "sync.weights.test", Every: 1,
			Transport: "reload"}); err != nil {
			t.Fatal(err)
		}
		first := published(ctx, t, c, 1)
		// It must not go on before the version is served.
		time.Sleep(100 * time.Millisecond)
		state, err := c.State(ctx)
		if err != nil || state.Pending == nil || state.Pending.Version != 1 {
			t.Fatalf("the trainer went on before its weights were served: %+v %v", state, err)
		}
		if err := c.Synced(ctx, weightserver.Done{Version: 1}); err != nil {
			t.Fatal(err)
		}
		second := published(ctx, t, c, 2)
		if equalJSON(first, second) {
			t.Errorf("two versions have the same log-probabilities %v: nothing was trained, or nothing was published",
				first)
		}
		if err := c.Synced(ctx, weightserver.Done{Version: 2, Error: "compliance says no"}); err != nil {
			t.Fatal(err)
		}
		e := b.Wait("failure",
			func(e *pluginpb.Event) bool { return sdk.Phase(e.GetPhase().GetPhase()).Over() }).GetPhase()
		if e.GetPhase() != string(sdk.Failed) {
			t.Errorf("phase %s after weights that could not be served, want failed", e.GetPhase())
		}
	})
}

// published takes one publication and returns the trainer's log-probabilities of a text.
func published(ctx context.Context, t *testing.T, c *weightclient.Client, version int64) []float64 {
	t.Helper()
	var p *weightserver.Publication
	var err error
	for p == nil && err == nil {
		p, err = c.Pending(ctx, version-1, 10*time.Second)
	}
	if err != nil || p.Version != version {
		t.Fatalf("publication %+v, want version %d: %v", p, version, err)
	}
	w, err := c.Publish(ctx, trainer.PublishRequest{Version: version, Transport: "reload", Dir: t.TempDir()})
	if err != nil || w.Path == "" || w.Format == "" || w.Precision == "" {
		t.Fatalf("published %+v: %v; path, format and precision must be set", w, err)
	}
	logprobs, err := c.Logprobs(ctx, []int{1, 2, 3, 4})
	if err != nil {
		t.Fatal(err)
	}
	again, err := c.Logprobs(ctx, []int{1, 2, 3, 4})
	if err != nil || !equalJSON(logprobs, again) {
		t.Errorf("log-probabilities of one snapshot differ: %v and %v (%v)", logprobs, again, err)
	}
	return logprobs
}

// environmentChecks are those of environments: groups in the form that trainers expect.
func environmentChecks(t *testing.T, def *sdk.Definition, s Suite) {
	if s.Groups == nil {
		return
	}
	t.Run("groups", func(t *testing.T) {
		config, api := s.Groups(t)
		b := s.harness(t, def)
		b.Start(config, s.Options...)
		b.Ready()
		for _, g := range api.Wait(3) {
			CheckGroup(t, g)
		}
		checkReported(t, b)
	})
	if slices.Contains(def.Capabilities, protocol.CanRescore) {
		t.Run("recorded groups are scored again", func(t *testing.T) {
			config, api := s.Groups(t)
			b := s.harness(t, def)
			b.Start(config, s.Options...)
			b.Ready()
			g := api.Wait(1)[0]
			made := b.Rescore(g)
			if made.GetUnable() != "" && !bytes.Contains(g.Task, []byte(made.GetUnable())) {
				t.Errorf("the group cannot be scored again, and its task does not have the reason: %s (task: %s)", made.GetUnable(),
					g.Task)
			}
			if made.GetUnable() == "" && len(made.GetCompletions()) != len(g.Tokens) {
				t.Errorf("%d scores of %d completions", len(made.GetCompletions()), len(g.Tokens))
			}
		})
	}
}

// reportedMetrics are those that every environment reports of its groups, whatever it is made of: by their name, and by
// that of environments that name them otherwise, as Atropos's do.
var reportedMetrics = [][2]string{
	{"reward", "env/reward_all_groups"},
	{"completion_tokens", "env/completion_length"},
	{"groups", "env/groups"},
	{"groups_sent", "env/groups_sent"},
	{"groups_uninformative", "env/groups_same_scores"},
	{"groups_too_long", "env/groups_too_long"},
	{"groups_lost", "env/groups_failed"},
}

// checkReported fails the test unless a block reports all metrics of its groups. It may do so in several events.
func checkReported(t testing.TB, b *Block) {
	t.Helper()
	seen := map[string]bool{}
	b.Wait(fmt.Sprintf("metrics of groups, all of %q", reportedMetrics), func(e *pluginpb.Event) bool {
		for name := range e.GetMetrics().GetValues() {
			seen[name] = true
		}
		return !slices.ContainsFunc(reportedMetrics, func(names [2]string) bool {
			return !seen[names[0]] && !seen[names[1]]
		})
	})
}

// CheckGroup fails the test unless a group is in the form that trainers expect: as many masks, scores and
// log-probabilities as sequences, each as long as its sequence; masks of -100 and log-probabilities of 1 on the prompt,
// and the token itself and a log-probability of at most 0 on the completion.
func CheckGroup(t testing.TB, g trajectory.Group) {
	t.Helper()
	n := len(g.Tokens)
	if n == 0 || len(g.Masks) != n || len(g.Scores) != n || len(g.InferenceLogprobs) != n {
		t.Fatalf("%d sequences, %d masks, %d scores, %d lists of log-probabilities", n, len(g.Masks), len(g.Scores),
			len(g.InferenceLogprobs))
	}
	for i, tokens := range g.Tokens {
		if len(g.Masks[i]) != len(tokens) || len(g.InferenceLogprobs[i]) != len(tokens) {
			t.Fatalf("sequence %d: %d tokens, %d masks, %d log-probabilities", i, len(tokens), len(g.Masks[i]),
				len(g.InferenceLogprobs[i]))
		}
		trained := 0
		for j, mask := range g.Masks[i] {
			p := g.InferenceLogprobs[i][j]
			switch {
			case mask == -100 && p != 1:
				t.Errorf("sequence %d, position %d: masked with log-probability %v, want 1", i, j, p)
			case mask != -100 && (mask != tokens[j] || p > 0):
				t.Errorf("sequence %d, position %d: token %d, mask %d, log-probability %v", i, j, tokens[j], mask, p)
			case mask != -100:
				trained++
			}
		}
		if trained == 0 {
			t.Errorf("sequence %d has no token to train on", i)
		}
		if len(g.Overrides) > i {
			checkMetrics(t, i, g.Overrides[i][trajectory.OverrideMetrics])
		}
	}
	if g.EnvID == nil {
		t.Error("the group does not name its environment (env_id)")
	}
	if g.PolicyVersion == nil {
		t.Error("the group has no policy version (policy_version)")
	}
}

// checkMetrics holds what a group says beside the score of a sequence to the form: numbers by name.
func checkMetrics(t testing.TB, sequence int, metrics any) {
	t.Helper()
	if metrics == nil {
		return
	}
	object, ok := metrics.(map[string]any)
	if !ok {
		t.Errorf("sequence %d: the metrics are %v, want an object", sequence, metrics)
	}
	for name, v := range object {
		if _, ok := v.(float64); !ok || name == "" {
			t.Errorf("sequence %d: the metric %q is %v, want a name and a number", sequence, name, v)
		}
	}
}
