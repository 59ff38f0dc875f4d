package environment_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

const contextOfChatML = 200 // tokens

// Token ids of chatML besides the bytes.
const (
	turnBegins = 256
	turnEnds   = 257
	merged     = 300 // "ab", which the tokenizer never produces: tokenizing the answer again would give other ids
)

// chatML is an inference server with the chat template of ChatML and a byte tokenizer. Its answers hold a token that
// the tokenizer would not produce for their text.
type chatML struct {
	*httptest.Server
	mu      sync.Mutex
	asked   [][]int // prompts of token ids
	version atomic.Int64
	cut     bool // answers end at max_tokens only
	context int  // tokens of prompt and answer together; 0: no limit
	control string
}

func newChatML(t *testing.T) *chatML {
	c := &chatML{}
	c.Server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(c.Close)
	return c
}

func (c *chatML) reference() outputs.Inference {
	return outputs.Inference{BaseURL: c.URL + "/v1", Model: "m", MaxModelLen: contextOfChatML, ControlURL: c.control,
		ControlToken: "admin"}
}

func renderChatML(messages []environment.Message) []int {
	var ids []int
	for _, m := range messages {
		ids = append(append(ids, turnBegins), bytesOf(m.Role+"\n"+m.Content)...)
		ids = append(ids, turnEnds, '\n')
	}
	return append(append(ids, turnBegins), bytesOf("assistant\n")...)
}

func bytesOf(text string) []int {
	ids := make([]int, len(text))
	for i := range len(text) {
		ids[i] = int(text[i])
	}
	return ids
}

func (c *chatML) serve(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Prompt    []int                 `json:"prompt"`
		Messages  []environment.Message `json:"messages"`
		MaxTokens int                   `json:"max_tokens"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	prompt := q.Prompt
	if q.Messages != nil {
		prompt = renderChatML(q.Messages)
	} else {
		c.mu.Lock()
		c.asked = append(c.asked, prompt)
		c.mu.Unlock()
	}
	if c.context > 0 && len(prompt)+q.MaxTokens > c.context {
		http.Error(w, "the prompt does not fit", http.StatusBadRequest)
		return
	}
	ids, text, finish := []int{'x', merged, turnEnds}, "xab", "stop"
	if c.cut {
		ids, text, finish = ids[:2], "xab", "length"
	}
	if len(ids) > q.MaxTokens {
		ids, text, finish = ids[:q.MaxTokens], text[:q.MaxTokens], "length"
	}
	content, logprobs := []map[string]any{}, []float64{}
	for i, id := range ids {
		content = append(content, map[string]any{"token": fmt.Sprintf("token_id:%d", id), "logprob": -0.5 * float64(i+1)})
		logprobs = append(logprobs, -0.5*float64(i+1))
	}
	choice := map[string]any{"token_ids": ids, "finish_reason": finish, "prompt_token_ids": prompt}
	if q.Messages != nil {
		choice["message"], choice["logprobs"] = map[string]string{"content": text}, map[string]any{"content": content}
	} else {
		choice["text"], choice["logprobs"] = text, map[string]any{"token_logprobs": logprobs}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{choice}, "prompt_token_ids": prompt,
		"policy_version": c.version.Load()})
}

type turnsConfig struct {
	environment.Settings
	environment.EpisodeSettings
	Turns int64  `recipe:"turns" default:"3" doc:"Until an episode is over"`
	Fault string `recipe:"fault" default:"" doc:"What goes wrong"`
}

// longText is longer than the context of a chatML that has one.
var longText = strings.Repeat("long ", 100)

// turns is an environment whose episodes have several turns; the reward of turn i is i.
type turns struct {
	config turnsConfig
	begun  atomic.Int64
	open   atomic.Int64
	step   func() // called at each step
}

func (e *turns) Next(context.Context) (environment.Task, error) { return environment.Task{}, nil }

func (e *turns) EvaluationTasks(context.Context) ([]environment.Task, error) {
	return make([]environment.Task, 3), nil
}

func (e *turns) Begin(context.Context, environment.Task) (environment.Episode, []environment.Message, error) {
	n := e.begun.Add(1)
	switch {
	case e.config.Fault == "begin" && n%2 == 1, e.config.Fault == "always":
		return nil, nil, &environment.InfraFailed{Err: errors.New("the server is away")}
	case e.config.Fault == "broken":
		return nil, nil, errors.New("the data set is empty")
	}
	e.open.Add(1)
	start := "go"
	if e.config.Fault == "long task" && n == 1 {
		start = longText
	}
	return &turnsEpisode{env: e}, []environment.Message{{Role: "system", Content: "s"}, {Role: "user", Content: start}},
		nil
}

type turnsEpisode struct {
	env  *turns
	turn int
}

func (e *turnsEpisode) Step(ctx context.Context, said environment.Completion) (environment.Step, error) {
	e.turn++
	if e.env.step != nil {
		e.env.step()
	}
	if said.Text != "xab" || len(said.Tokens) == 0 || len(said.Tokens) != len(said.Logprobs) {
		return environment.Step{}, fmt.Errorf("the model said %+v", said)
	}
	if e.env.config.Fault == "hang" {
		<-ctx.Done()
		return environment.Step{}, ctx.Err()
	}
	said.Metric("turn", float64(e.turn))
	if e.env.config.Fault == "metric" {
		said.Metric("", 1)
	}
	next := fmt.Sprintf("turn %d", e.turn)
	if e.env.config.Fault == "long message" && e.turn == 2 {
		next = longText
	}
	return environment.Step{Messages: []environment.Message{{Role: "user", Content: next}},
		Reward: float64(e.turn), Done: e.turn == int(e.env.config.Turns), Invalid: e.turn == 2}, nil
}

func (e *turnsEpisode) Close(context.Context) { e.env.open.Add(-1) }

// setUpTurns starts an environment of turns over an inference server with a chat template.
func setUpTurns(t *testing.T, c *chatML, change func(*turnsConfig)) (*turns, *api, *plugintest.Block) {
	t.Helper()
	a, env := newAPI(t), &turns{}
	book := plugintest.Ref("trajectories.x.y", kind.Trajectories, outputs.Trajectories{URL: a.URL})
	config := turnsConfig{
		Settings: environment.Settings{Inference: plugintest.Ref("inference.x.y", kind.Inference, c.reference()),
			Trajectories: &book, GroupSize: 2, MaxTokens: 8, Temperature: 1, TopP: 1, Concurrency: 2,
			MaxBatchesOffpolicy: 1, RequestTimeout: time.Minute},
		EpisodeSettings: environment.EpisodeSettings{MaxTurns: 5, Reward: "sum", EpisodeTimeout: time.Minute,
			EpisodeAttempts: 3},
		Turns: 3,
	}
	if change != nil {
		change(&config)
	}
	if config.Fault == "update" { // new weights come at each step
		env.step = func() { c.version.Add(1) }
	}
	def := environment.DefineEpisodes("turns", "Some turns.",
		func(_ context.Context, s environment.Setup[turnsConfig]) (*turns, error) {
			env.config = s.Config
			return env, nil
		})
	b := plugintest.Harness(t, def)
	b.Start(config)
	return env, a, b
}

// The sequence is the prompt, followed by the sampled tokens of each answer and, masked, the text between two answers
// as the template writes it.
func TestEpisodesKeepTheTokensThatWereSampled(t *testing.T) {
	t.Parallel()
	between := func(turn string) []int { // after an answer that ended its turn itself
		return slices.Concat([]int{'\n', turnBegins}, bytesOf("user\n"+turn), []int{turnEnds, '\n', turnBegins},
			bytesOf("assistant\n"))
	}
	start := renderChatML([]environment.Message{{Role: "system", Content: "s"}, {Role: "user", Content: "go"}})
	for name, cut := range map[string]bool{"ended by itself": false, "cut off": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChatML(t)
			c.cut = cut
			_, a, _ := setUpTurns(t, c, nil)
			a.until(t, "2 groups", func(a *api) bool { return len(a.groups) >= 2 })
			said, gap := []int{'x', merged, turnEnds}, between
			if cut {
				said = said[:2]
				gap = func(turn string) []int { return append([]int{turnEnds}, between(turn)...) }
			}
			want := slices.Concat(start, said, gap("turn 1"), said, gap("turn 2"), said)
			mask := slices.Concat(masked(start), said, masked(gap("turn 1")), said, masked(gap("turn 2")), said)
			a.mu.Lock()
			defer a.mu.Unlock()
			for _, g := range a.groups {
				plugintest.CheckGroup(t, g)
				for i := range g.Tokens {
					if !slices.Equal(g.Tokens[i], want) || !slices.Equal(g.Masks[i], mask) || g.Scores[i] != 6 {
						t.Fatalf("score %v, tokens\n%v, want\n%v; masks\n%v, want\n%v", g.Scores[i], g.Tokens[i], want,
							g.Masks[i], mask)
					}
					own, _ := g.Overrides[i][trajectory.OverrideMetrics].(map[string]any)
					if own["turn"] != 3.0 || own["invalid_actions"] != 1.0 {
						t.Errorf("metrics %v, want the number that the last turn recorded, and one invalid action", own)
					}
				}
				var conversations [][]environment.Message
				if err := json.Unmarshal(g.Messages, &conversations); err != nil || len(conversations[0]) != 7 ||
					conversations[0][5].Content != "turn 2" || conversations[0][6].Content != "xab" {
					t.Errorf("conversations %v, %v", conversations, err)
				}
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, prompt := range c.asked {
				if len(prompt) > len(want) || !slices.Equal(prompt, want[:len(prompt)]) {
					t.Fatalf("the server was asked for %v, which is no beginning of what is trained", prompt)
				}
			}
		})
	}
}

func masked(tokens []int) []int {
	out := make([]int, len(tokens))
	for i := range out {
		out[i] = -100
	}
	return out
}

// Each answer has the version that sampled it.
func TestEpisodesAcrossUpdatesCarryVersions(t *testing.T) {
	t.Parallel()
	c := newChatML(t)
	_, a, _ := setUpTurns(t, c, func(c *turnsConfig) { c.GroupSize, c.Concurrency, c.Fault = 1, 1, "update" })
	a.until(t, "group", func(a *api) bool { return len(a.groups) >= 1 })
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.groups[0]
	if g.PolicyVersion.Max-g.PolicyVersion.Min != 2 {
		t.Fatalf("policy versions %+v, want three", g.PolicyVersion)
	}
	data, err := json.Marshal(g.Overrides[0][trajectory.OverrideVersions])
	var spans []trajectory.VersionSpan
	if err != nil || json.Unmarshal(data, &spans) != nil || len(spans) != 3 {
		t.Fatalf("spans %s, %v", data, err)
	}
	for i, s := range spans {
		if s.Version != g.PolicyVersion.Min+int64(i) || s.End-s.Start != 3 || g.Masks[0][s.Start] != 'x' {
			t.Errorf("span %d is %+v", i, s)
		}
	}
}

// Errors of the environment's server cost attempts and never lead to a reward.
func TestInfrastructureFailuresAreNoRewards(t *testing.T) {
	t.Parallel()
	t.Run("begins again", func(t *testing.T) {
		t.Parallel()
		env, a, b := setUpTurns(t, newChatML(t), func(c *turnsConfig) { c.Fault = "begin" })
		a.until(t, "2 groups", func(a *api) bool { return len(a.groups) >= 2 })
		a.set(func(a *api) {
			for _, g := range a.groups {
				if slices.Contains(g.Scores, 0) {
					t.Errorf("scores %v: a failure of the server became a reward", g.Scores)
				}
			}
		})
		m := b.Wait("metrics", func(e *pluginpb.Event) bool {
			return e.GetMetrics().GetValues()["infra_failed"] > 0
		}).GetMetrics().GetValues()
		if f := m["infra_failed_fraction"]; f <= 0 || f >= 1 {
			t.Errorf("infra_failed_fraction is %v: %v", f, m)
		}
		if err := b.Stop(5 * time.Second); err != nil || env.open.Load() != 0 {
			t.Errorf("%d episodes were not closed; %v", env.open.Load(), err)
		}
	})
	for fault, want := range map[string]struct{ message, remedy string }{
		"always": {"the environment failed in 10 groups in a row", "its own log"},
		"hang":   {"the episode took longer than episode_timeout = 1s", "its own log"},
		"broken": {"the data set is empty", ""},
		"metric": {"a metric with the value 1 has no name", ""},
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			_, a, b := setUpTurns(t, newChatML(t), func(c *turnsConfig) {
				c.Fault, c.EpisodeAttempts, c.EpisodeTimeout = fault, 1, time.Minute
				if fault == "hang" {
					c.EpisodeTimeout = time.Second
				}
			})
			e := b.Wait("failure", func(e *pluginpb.Event) bool { return e.GetPhase().GetPhase() == string(sdk.Failed) })
			if p := e.GetPhase(); !strings.Contains(p.GetMessage(), want.message) || !strings.Contains(p.GetRemedy(),
				want.remedy) {
				t.Errorf("the failure says %q, remedy %q", p.GetMessage(), p.GetRemedy())
			}
			a.set(func(a *api) {
				if len(a.groups) > 0 {
					t.Errorf("%d groups were posted", len(a.groups))
				}
			})
		})
	}
}

// An episode that reaches a limit keeps the rewards so far.
func TestEpisodesEndAtTheirLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*turnsConfig)
		score  float64
		turns  int
	}{
		"max_turns":                   {func(c *turnsConfig) { c.MaxTurns = 2 }, 3, 2},
		"last reward":                 {func(c *turnsConfig) { c.Reward = "last" }, 3, 3},
		"max_model_len, by a message": {func(c *turnsConfig) { c.Fault = "long message" }, 3, 2},
		"max_token_len of the trainer, which is 100": {func(c *turnsConfig) { c.Turns, c.MaxTurns = 100, 100 }, 6, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newChatML(t)
			server.context = contextOfChatML
			_, a, b := setUpTurns(t, server, c.change)
			a.until(t, "group", func(a *api) bool { return len(a.groups) >= 1 })
			a.set(func(a *api) {
				g := a.groups[0]
				answers := 0
				for _, m := range g.Masks[0] {
					if m == merged {
						answers++
					}
				}
				if g.Scores[0] != c.score || answers != c.turns || len(g.Tokens[0]) > 100 {
					t.Errorf("score %v after %d turns, %d tokens; want %v after %d", g.Scores[0], answers, len(g.Tokens[0]),
						c.score, c.turns)
				}
			})
			if strings.HasPrefix(name, "max") {
				b.Wait("cut episodes", func(e *pluginpb.Event) bool { return e.GetMetrics().GetValues()["truncated"] == 1 })
			}
		})
	}
}

// A task that does not fit loses its group, and the others are sent.
func TestATaskLongerThanTheContext(t *testing.T) {
	t.Parallel()
	server := newChatML(t)
	server.context = contextOfChatML
	_, a, b := setUpTurns(t, server, func(c *turnsConfig) { c.Fault = "long task" })
	a.until(t, "group", func(a *api) bool { return len(a.groups) >= 1 })
	b.Wait("the group that does not fit", func(e *pluginpb.Event) bool {
		return e.GetMetrics().GetValues()["groups_too_long"] == 1
	})
}

func TestEvaluateEpisodes(t *testing.T) {
	t.Parallel()
	_, _, b := setUpTurns(t, newChatML(t), nil)
	b.Ready()
	ctx, cancel := context.WithTimeout(t.Context(), plugintest.Deadline)
	defer cancel()
	r, err := b.Client.Evaluate(ctx, &pluginpb.EvaluateRequest{})
	m := r.GetMetrics()
	if err != nil || m["score"] != 6 || m["tasks"] != 3 || m["metrics/turn"] != 3 {
		t.Errorf("%v, %v; want the score 6 of 3 tasks, and the metric of the last turn", r, err)
	}
}
