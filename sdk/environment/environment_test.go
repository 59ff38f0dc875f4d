package environment_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type config struct {
	environment.Settings
	Letter string `recipe:"letter" default:"a" doc:"The letter that scores"`
	Tasks  int64  `recipe:"tasks" default:"0" doc:"How many tasks there are; 0: no end"`
	Broken bool   `recipe:"broken" default:"false" doc:"Score returns errors"`
	Chat   bool   `recipe:"chat" default:"false" doc:"Ask as a conversation"`
	Metric string `recipe:"metric" doc:"What is wrong with the metrics of scores"`
	Strike string `recipe:"strike" doc:"Score fails for tasks with this text"`
	Long   int64  `recipe:"long" default:"0" doc:"Number of the task that is longer than the context; 0: none, -1: all"`
}

// Validate finds what the schema of the block cannot express.
func (c config) Validate() []spec.Problem {
	if len(c.Letter) <= 1 {
		return nil
	}
	return []spec.Problem{{Path: cty.GetAttrPath("letter"), Summary: "More than one letter",
		Detail: fmt.Sprintf("letter: want one letter, got %q.", c.Letter)}}
}

var _ environment.Validator = config{}

// letters scores the share of a letter in a completion.
type letters struct {
	config config
	mu     sync.Mutex
	given  int64
}

func (l *letters) Next(context.Context) (environment.Task, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.config.Tasks > 0 && l.given >= l.config.Tasks {
		return environment.Task{}, environment.EOF
	}
	l.given++
	if l.given == l.config.Long || l.config.Long < 0 {
		return l.task(strings.Repeat("long ", 1000)), nil
	}
	return l.task(fmt.Sprintf("task %d:", l.given)), nil
}

func (l *letters) task(text string) environment.Task {
	if l.config.Chat {
		return environment.Task{Messages: []environment.Message{{Role: "system", Content: "be brief"},
			{Role: "user", Content: text}}}
	}
	return environment.Task{Prompt: text, Expected: "many letters"}
}

func (l *letters) Score(_ context.Context, t environment.Task, c environment.Completion) (float64, error) {
	switch {
	case l.config.Strike != "" && strings.Contains(t.Prompt, l.config.Strike):
		return 0, errors.New("the judge is on strike")
	case l.config.Broken && l.config.Letter == "p":
		panic("the judge is on strike")
	case l.config.Broken && l.config.Letter == "n":
		return math.NaN(), nil
	case l.config.Broken:
		return 0, errors.New("the judge is on strike")
	}
	letters := float64(strings.Count(c.Text, l.config.Letter))
	c.Metric("letters", letters)
	if letters > 0 {
		c.Metric("share", letters/float64(len(c.Text))) // of the completions that have any
	}
	switch l.config.Metric {
	case "nan":
		c.Metric("letters", math.NaN())
	case "nameless":
		c.Metric("", 1)
	case "unprintable":
		c.Metric("caf\xe9", 1)
	case "many":
		for i := range 100 {
			c.Metric(fmt.Sprint("task ", i), 1)
		}
	}
	return letters, nil
}

func (l *letters) EvaluationTasks(context.Context) ([]environment.Task, error) {
	return []environment.Task{l.task("one"), l.task("two"), l.task("three")}, nil
}

func definition() *sdk.Definition {
	return environment.Define("letters", "Counts letters.",
		func(_ context.Context, s environment.Setup[config]) (*letters, error) {
			return &letters{config: s.Config}, nil
		})
}

// api is a trajectory API that stores posts.
type api struct {
	*httptest.Server
	mu       sync.Mutex
	groups   []trajectory.Group
	waiting  bool // no trainer is registered yet
	asked    int
	looked   int // requests for the length of the queue
	queue    int // groups; negative: as many as were posted
	refuse   int // posts to answer with 500
	envs     int
	left     []int // environments that said goodbye
	unknown  bool  // forget the environment once
	register trajectory.EnvRegistration
}

func newAPI(t *testing.T) *api {
	a := &api{}
	a.Server = httptest.NewServer(http.HandlerFunc(a.serve))
	t.Cleanup(a.Close)
	return a
}

func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	reply := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	switch r.URL.Path {
	case "/register-env":
		a.asked++
		if a.waiting {
			reply(map[string]string{"status": "wait for trainer to start"})
			return
		}
		_ = json.NewDecoder(r.Body).Decode(&a.register)
		reply(map[string]any{"status": "success", "env_id": a.envs, "wandb_name": "letters_0", "num_steps": 10})
		a.envs++
	case "/info":
		reply(map[string]int{"batch_size": 16, "max_token_len": 100})
	case "/status-env":
		a.looked++
		if a.unknown {
			a.unknown = false
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		queue := a.queue
		if queue < 0 {
			queue = len(a.groups)
		}
		reply(map[string]any{"current_step": 3, "queue_size": queue})
	case "/scored_data":
		if a.refuse > 0 {
			a.refuse--
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		var g trajectory.Group
		if err := json.NewDecoder(r.Body).Decode(&g); err != nil {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		a.groups = append(a.groups, g)
		reply(map[string]string{"status": "received"})
	case "/disconnect-env":
		var gone struct {
			ID int `json:"env_id"`
		}
		_ = json.NewDecoder(r.Body).Decode(&gone)
		a.left = append(a.left, gone.ID)
		reply(map[string]string{"status": "success"})
	default:
		reply(map[string]string{"status": "success"})
	}
}

func (a *api) set(f func(*api)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(a)
}

// until waits for a condition on the API.
func (a *api) until(t *testing.T, what string, fits func(*api) bool) {
	t.Helper()
	deadline := time.Now().Add(plugintest.Deadline)
	for {
		a.mu.Lock()
		ok := fits(a)
		a.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %s within %s", what, plugintest.Deadline)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func setUp(t *testing.T, change func(*config), start ...plugintest.Option) (*api, *plugintest.Block) {
	t.Helper()
	a := newAPI(t)
	c := posting(t, a)
	if change != nil {
		change(&c)
	}
	b := plugintest.Harness(t, definition())
	b.Start(c, start...)
	return a, b
}

// posting is a configuration of the letters environment, with inference, that posts to a.
func posting(t *testing.T, a *api) config {
	t.Helper()
	server := plugintest.Harness(t, plugintest.FakeInference())
	server.Start(plugintest.FakeConfig{})
	server.Ready()
	book := plugintest.Ref("trajectories.x.y", kind.Trajectories, outputs.Trajectories{URL: a.URL})
	return config{Letter: "a", Settings: environment.Settings{
		Inference: server.Reference(), Trajectories: &book, GroupSize: 4, MaxTokens: 8, Temperature: 1, TopP: 1,
		Concurrency:         4,
		MaxBatchesOffpolicy: 1, Weight: 1, DropUninformative: true, RequestTimeout: time.Minute,
	}}
}

// Problems of the author's configuration are reported when the recipe is checked, and end a start for good.
func TestTheConfigurationIsAskedForItsMistakes(t *testing.T) {
	t.Parallel()
	server := plugintest.Harness(t, plugintest.FakeInference())
	server.Start(plugintest.FakeConfig{})
	server.Ready()
	book := plugintest.Ref("trajectories.x.y", kind.Trajectories, outputs.Trajectories{URL: "http://127.0.0.1:1"})
	b := plugintest.Harness(t, definition())
	bad := config{Letter: "ab", Settings: environment.Settings{Inference: server.Reference(), Trajectories: &book,
		GroupSize: 4, MaxTokens: 8, Temperature: 1, TopP: 1, Concurrency: 2, MaxBatchesOffpolicy: 1,
		RequestTimeout: time.Minute}}
	r, err := b.Client.Validate(t.Context(), &pluginpb.ValidateRequest{Config: b.Request(bad).GetConfig()})
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, d := range r.GetDiagnostics() {
		found = found || d.GetSummary() == "More than one letter" &&
			d.GetDetail() == `letter: want one letter, got "ab".`
	}
	if !found {
		t.Errorf("validate found %v, want the problem with the letter", r.GetDiagnostics())
	}
	problems, err := definition().Validate(cty.ObjectVal(map[string]cty.Value{"letter": cty.StringVal("ab")}))
	if err != nil || len(problems) != 1 || !problems[0].Path.Equals(cty.GetAttrPath("letter")) {
		t.Errorf("the definition, which plan asks, found %+v, %v", problems, err)
	}
	if err := b.TryStart(bad); status.Code(err) != codes.InvalidArgument ||
		!strings.Contains(err.Error(), "More than one letter") {
		t.Errorf("the start answered %v, want InvalidArgument", err)
	}
}

func TestGroupsArriveInTheFormOfAtropos(t *testing.T) {
	t.Parallel()
	for _, chat := range []bool{false, true} {
		t.Run(fmt.Sprintf("chat %v", chat), func(t *testing.T) {
			t.Parallel()
			a, b := setUp(t, func(c *config) { c.Chat = chat })
			b.Ready()
			a.until(t, "5 groups", func(a *api) bool { return len(a.groups) >= 5 })
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.register.DesiredName != "test" || a.register.GroupSize != 4 || a.register.MaxTokenLength != 4096 {
				t.Errorf("registered as %+v", a.register)
			}
			for _, g := range a.groups {
				checkGroup(t, g, chat)
			}
		})
	}
}

func checkGroup(t *testing.T, g trajectory.Group, chat bool) {
	t.Helper()
	if len(g.Tokens) != 4 || len(g.Masks) != 4 || len(g.Scores) != 4 || len(g.InferenceLogprobs) != 4 {
		t.Fatalf("lists of %d, %d, %d and %d for a group of 4", len(g.Tokens), len(g.Masks), len(g.Scores),
			len(g.InferenceLogprobs))
	}
	if g.EnvID == nil || *g.EnvID != 0 || g.PolicyVersion == nil || g.PolicyVersion.Max != 0 ||
		g.GenerationParams["temperature"] != 1.0 {
		t.Errorf("env id %v, policy version %v, generation params %v", g.EnvID, g.PolicyVersion, g.GenerationParams)
	}
	var messages [][]environment.Message
	if err := json.Unmarshal(g.Messages, &messages); err != nil || len(messages) != 4 {
		t.Fatalf("messages: %s, %v", g.Messages, err)
	}
	for i, tokens := range g.Tokens {
		said := messages[i]
		want := []environment.Message{{Role: "user"}, {Role: "assistant"}}
		if chat {
			want = []environment.Message{{Role: "system"}, {Role: "user"}, {Role: "assistant"}}
		}
		if len(said) != len(want) || said[len(said)-1].Role != "assistant" {
			t.Fatalf("conversation %v", said)
		}
		completion := plugintest.FakeTokens(said[len(said)-1].Content)
		prompt := len(tokens) - len(completion)
		if prompt < 1 || len(completion) != 8 {
			t.Fatalf("%d tokens, of which %d are the completion", len(tokens), len(completion))
		}
		if got := float64(strings.Count(said[len(said)-1].Content, "a")); got != g.Scores[i] {
			t.Errorf("score %v for %q", g.Scores[i], said[len(said)-1].Content)
		}
		logprobs := plugintest.FakeLogprobs(0, tokens)
		for j := range tokens {
			switch {
			case j < prompt && (g.Masks[i][j] != -100 || g.InferenceLogprobs[i][j] != 1):
				t.Errorf("prompt position %d has mask %d and log-probability %v, want -100 and 1", j, g.Masks[i][j],
					g.InferenceLogprobs[i][j])
			case j >= prompt && (g.Masks[i][j] != tokens[j] || tokens[j] != completion[j-prompt]):
				t.Errorf("position %d: token %d, mask %d, want both %d", j, tokens[j], g.Masks[i][j],
					completion[j-prompt])
			case j >= prompt && g.InferenceLogprobs[i][j] != logprobs[j-1]:
				t.Errorf("position %d: log-probability %v, want %v: they are shifted or mixed up", j,
					g.InferenceLogprobs[i][j], logprobs[j-1])
			}
		}
	}
}

//docs:survival.md "server is not up yet"; misspelled settings are ignored
func TestReadyBeforeRegistration(t *testing.T) {
	t.Parallel()
	a, b := setUp(t, nil)
	a.set(func(a *api) { a.waiting = true })
	b.Ready()
	a.until(t, "question whether the trainer is there", func(a *api) bool { return a.asked > 0 })
	a.set(func(a *api) { a.waiting = false })
	a.until(t, "group", func(a *api) bool { return len(a.groups) > 0 })
}

func waitsForTheTrainer(b *plugintest.Block) bool {
	return slices.ContainsFunc(b.Status().GetActivities(), func(a *pluginpb.Activity) bool {
		return a.GetWhat() == "the trainer to take what is posted"
	})
}

func TestItPausesWhenThereIsEnoughToTrainOn(t *testing.T) {
	t.Parallel()
	a, b := setUp(t, nil)
	a.set(func(a *api) { a.queue = -1 })
	b.Ready()
	// A batch of 16 sequences is 4 groups of 4: no more may be made before the trainer fetches some. The block reports
	// that it waits for the trainer when it has decided to make no group.
	for deadline := time.Now().Add(plugintest.Deadline); !waitsForTheTrainer(b); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not wait for the trainer after %s", plugintest.Deadline)
		}
	}
	a.until(t, "the last group of the batch", func(a *api) bool { return len(a.groups) >= 4 })
	var before int
	a.set(func(a *api) { before = a.looked })
	a.until(t, "two more looks at the queue", func(a *api) bool { return a.looked >= before+2 })
	a.set(func(a *api) {
		if len(a.groups) != 4 {
			t.Errorf("%d groups were posted although the queue was full at 4", len(a.groups))
		}
		a.groups = nil
	})
	a.until(t, "next batch", func(a *api) bool { return len(a.groups) == 4 })
}

func TestPostsAreRetriedAfterReregistering(t *testing.T) {
	t.Parallel()
	a, b := setUp(t, nil)
	a.set(func(a *api) { a.refuse, a.unknown = 2, true })
	b.Ready()
	a.until(t, "groups of the second registration", func(a *api) bool {
		return a.envs == 2 && len(a.groups) > 0 && *a.groups[len(a.groups)-1].EnvID == 1
	})
}

//docs:survival.md dead groups, batch rules that confuse
//docs:troubleshooting.md Dropped groups of equal scores bias the reward curve
func TestGroupsThatTeachNothingAreCountedAndNotSent(t *testing.T) {
	t.Parallel()
	// No completion has a "z", so all scores are 0.
	a, b := setUp(t, func(c *config) { c.Letter = "z" })
	b.Ready()
	e := b.Wait("metrics", func(e *pluginpb.Event) bool { return e.GetMetrics() != nil }).GetMetrics()
	if e.GetValues()["dropped_fraction"] != 1 || e.GetValues()["groups_uninformative"] < 1 || e.GetStep() != 3 {
		t.Errorf("metrics are %v", e)
	}
	if reward, ok := e.GetValues()["reward"]; !ok || reward != 0 {
		t.Errorf("the reward of all groups is %v, want 0 and to be there", reward)
	}
	a.set(func(a *api) {
		if len(a.groups) != 0 {
			t.Errorf("%d groups with equal scores were sent", len(a.groups))
		}
	})
}

func TestTheEndOfTheTasksEndsTheBlock(t *testing.T) {
	t.Parallel()
	a, b := setUp(t, func(c *config) { c.Tasks, c.DropUninformative = 3, false })
	b.WaitPhase(sdk.Completed)
	a.set(func(a *api) {
		if len(a.groups) != 3 {
			t.Errorf("%d groups for 3 tasks", len(a.groups))
		}
	})
}

// The cause is reported once, with the number of affected completions, and the advice fits it.
//
//docs:survival.md a failure of the engine becomes a low reward
func TestInvalidScoresFailTheBlock(t *testing.T) {
	t.Parallel()
	for letter, c := range map[string]struct{ cause, remedy string }{
		"a": {"the judge is on strike (4 of 4 completions)", "A wrong answer is a low score and no error"},
		"p": {"Score panicked: the judge is on strike (4 of 4 completions)", "its stack is in recipe logs"},
		"n": {"Score returned NaN, which is no finite number (4 of 4 completions)", "it must return a finite number"},
	} {
		t.Run(letter, func(t *testing.T) {
			t.Parallel()
			a, b := setUp(t, func(c *config) { c.Broken, c.Letter = true, letter })
			reported := 0
			e := b.Wait("failure", func(e *pluginpb.Event) bool {
				if strings.Contains(e.GetLog().GetMessage(), "a group is left out") {
					reported++
				}
				return e.GetPhase().GetPhase() == string(sdk.Failed)
			}).GetPhase()
			if m := e.GetMessage(); strings.Count(m, "on strike")+strings.Count(m, "NaN") != 1 ||
				!strings.Contains(m, c.cause) || !strings.Contains(m, "10 groups in a row could not be scored") {
				t.Errorf("the failure says %q, want %q once", m, c.cause)
			}
			if !strings.Contains(e.GetRemedy(), c.remedy) {
				t.Errorf("the remedy is %q, want %q in it", e.GetRemedy(), c.remedy)
			}
			if reported != 4 { // the first, second, fourth and eighth
				t.Errorf("the groups that are left out were reported %d times, want 4", reported)
			}
			a.set(func(a *api) {
				if len(a.groups) != 0 {
					t.Errorf("%d groups without scores were sent", len(a.groups))
				}
			})
		})
	}
}

func TestTheTrajectoryAPIGoesAwayAndComesBack(t *testing.T) {
	t.Parallel()
	a, b := setUp(t, nil)
	b.Ready()
	a.until(t, "group", func(a *api) bool { return len(a.groups) > 0 })
	a.CloseClientConnections()
	address := a.Listener.Addr().String()
	a.Close()
	b.Wait("degraded", func(e *pluginpb.Event) bool { return e.GetPhase().GetPhase() == string(sdk.Degraded) })
	again := httptest.NewUnstartedServer(http.HandlerFunc(a.serve))
	listener, err := listenAgain(address)
	if err != nil {
		t.Skipf("the port is taken: %v", err)
	}
	_ = again.Listener.Close()
	again.Listener = listener
	a.set(func(a *api) { a.groups = nil })
	again.Start()
	t.Cleanup(again.Close)
	a.until(t, "group after the return", func(a *api) bool { return len(a.groups) > 0 })
}

// A server that is away costs time and nothing else: no group is lost, and none gets a low score.
//
//docs:survival.md a failure of the engine becomes a low reward
func TestInferenceGoesAwayAndComesBack(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	server := plugintest.Harness(t, plugintest.FakeInference())
	server.Start(plugintest.FakeConfig{})
	server.Ready()
	book := plugintest.Ref("trajectories.x.y", kind.Trajectories, outputs.Trajectories{URL: a.URL})
	b := plugintest.Harness(t, definition())
	b.Start(config{Letter: "a", Settings: environment.Settings{
		Inference: server.Reference(), Trajectories: &book, GroupSize: 4, MaxTokens: 8, Temperature: 1, TopP: 1,
		Concurrency:         2,
		MaxBatchesOffpolicy: 1, RequestTimeout: time.Minute,
	}})
	a.until(t, "group", func(a *api) bool { return len(a.groups) > 0 })
	listen := server.Status().GetListen()
	if err := server.Stop(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	b.Wait("retry", func(e *pluginpb.Event) bool { return e.GetMetrics().GetValues()["sampling_retries"] > 0 })
	again := plugintest.Harness(t, plugintest.FakeInference())
	again.Start(plugintest.FakeConfig{}, func(r *pluginpb.StartRequest) { r.Listen = listen })
	again.Ready()
	if again.Status().GetListen() != listen {
		t.Skip("the port was taken meanwhile")
	}
	a.set(func(a *api) { a.groups = nil })
	a.until(t, "group after the return", func(a *api) bool { return len(a.groups) > 0 })
	a.set(func(a *api) {
		for _, g := range a.groups {
			checkGroup(t, g, false)
		}
	})
}

func TestAPromptLongerThanTheContextLosesItsGroupAlone(t *testing.T) {
	t.Parallel()
	for name, chat := range map[string]bool{"text": false, "messages": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := setUp(t, func(c *config) { c.Long, c.Chat, c.DropUninformative = 1, chat, false })
			a.until(t, "group", func(a *api) bool { return len(a.groups) >= 1 })
			b.Wait("the group that does not fit", func(e *pluginpb.Event) bool {
				return e.GetMetrics().GetValues()["groups_too_long"] == 1
			})
		})
	}
}

func TestARefusedRequestFailsTheBlock(t *testing.T) {
	t.Parallel()
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte("max_tokens is too large for this model"))
	}))
	t.Cleanup(refuses.Close)
	server := plugintest.Ref("inference.x.y", kind.Inference, outputs.Inference{BaseURL: refuses.URL + "/v1",
		Model: "m"})
	_, b := setUp(t, func(c *config) { c.Inference = server })
	e := b.Wait("failure", func(e *pluginpb.Event) bool { return e.GetPhase().GetPhase() == string(sdk.Failed) })
	if m := e.GetPhase().GetMessage(); !strings.Contains(m, "max_tokens is too large") || !strings.Contains(m, "400") {
		t.Errorf("the failure says %q", m)
	}
}
