package openenv

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kit/envserver"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// python is the interpreter of scripts/python/openenv.txt.
func python(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../.cache/venv-openenv/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("scripts/venv.sh openenv makes the Python environment that this test needs")
	}
	return path
}

// serve starts an app of OpenEnv's own server in a folder, and says where it is.
func serve(t *testing.T, dir, app string, environment map[string]string) *envserver.Server {
	t.Helper()
	s, err := envserver.Open(t.Context(), envserver.Setup{
		Location: envserver.Location{Command: []string{python(t), "-m", "uvicorn", app, "--host", "127.0.0.1", "--port",
			"{port}", "--log-level", "warning"}, StartTimeout: 4 * time.Minute},
		Health: "/health", Block: sdk.Block{Dir: t.TempDir(), RecipeDir: dir, Environment: environment},
		Log: func(level, message string) { t.Log(level, message) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// config is that of a block over a fake inference block and a fake trajectory API.
func config(t *testing.T, url string) (Config, *plugintest.Trajectories) {
	t.Helper()
	api := plugintest.FakeTrajectories(t, 16)
	server := plugintest.Harness(t, plugintest.FakeInference())
	server.Start(plugintest.FakeConfig{})
	server.Ready()
	book := api.Reference()
	return Config{
		Settings: environment.Settings{Inference: server.Reference(), Trajectories: &book, GroupSize: 2, MaxTokens: 4,
			Temperature: 1, TopP: 1, Concurrency: 2, MaxBatchesOffpolicy: 1, RequestTimeout: time.Minute},
		EpisodeSettings: environment.EpisodeSettings{MaxTurns: 3, Reward: "sum", EpisodeTimeout: time.Minute,
			EpisodeAttempts: 3},
		Location:  envserver.Location{BaseURL: url, StartTimeout: time.Minute},
		Transport: "websocket", ConnectTimeoutS: 10, MessageTimeoutS: 20, MaxMessageSizeMB: 1,
		CapacityTimeout: time.Minute, EvalTasks: 4, ActionFormat: "auto", MaxObservationChars: 200,
		ExecutionError: "infra_failed",
	}, api
}

func start(t *testing.T, c Config) *plugintest.Block {
	t.Helper()
	b := plugintest.Harness(t, Plugin())
	b.Start(c)
	return b
}

// conversations are those of a group.
func conversations(t *testing.T, g trajectory.Group) [][]environment.Message {
	t.Helper()
	var all [][]environment.Message
	if err := json.Unmarshal(g.Messages, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// The environment that OpenEnv itself generates, unchanged, under its own server, passes the suite. It allows one
// session at a time.
func TestTheScaffoldOfOpenEnvComplies(t *testing.T) {
	dir := t.TempDir()
	made, err := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(python(t)), "openenv"), "init", "echo_env",
		"--output-dir", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("openenv init: %v\n%s", err, made)
	}
	s := serve(t, filepath.Join(dir, "echo_env"), "server.app:app", nil)
	plugintest.Compliance(t, Plugin(), plugintest.Suite{
		Config: func(t *testing.T) any { c, _ := config(t, s.URL()); return c },
		Groups: func(t *testing.T) (any, *plugintest.Trajectories) { c, api := config(t, s.URL()); return c, api },
		Bad: map[string]func(t *testing.T) any{
			"a pattern without a group": func(t *testing.T) any {
				c, _ := config(t, s.URL())
				c.ActionPattern = "a+"
				return c
			},
			"no server": func(t *testing.T) any {
				c, _ := config(t, "http://127.0.0.1:1")
				c.StartTimeout = time.Second
				return c
			},
			"a field that actions lack": func(t *testing.T) any {
				c, _ := config(t, s.URL())
				c.ActionField = "mesage"
				return c
			},
		},
	})
	t.Run("what is said", func(t *testing.T) {
		c, api := config(t, s.URL())
		c.ObservationFields = []string{"echoed_message"}
		start(t, c)
		for _, g := range api.Wait(2) {
			for i, said := range conversations(t, g) {
				// "Echo environment ready!", and then three times an answer of four letters and its echo.
				if len(said) != 6 || !strings.Contains(said[0].Content, "ready") || said[2].Content != said[1].Content ||
					g.Scores[i] < 1.19 || g.Scores[i] > 1.21 {
					t.Errorf("score %v: %+v", g.Scores[i], said)
				}
			}
		}
	})
	t.Run("over http", func(t *testing.T) {
		c, api := config(t, s.URL())
		c.Transport = "http"
		start(t, c)
		for _, g := range api.Wait(1) {
			plugintest.CheckGroup(t, g)
		}
	})
}

// play resets and steps by hand.
func play(t *testing.T, url string, change func(*Config)) (*world,
	func(parameters map[string]any, said ...string) ([]environment.Step, error),
) {
	t.Helper()
	c, _ := config(t, url)
	if change != nil {
		change(&c)
	}
	w, err := open(t.Context(), environment.Setup[Config]{Config: c, Log: func(l, m string) { t.Log(l, m) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w, func(parameters map[string]any, said ...string) ([]environment.Step, error) {
		e, first, err := w.Begin(t.Context(), environment.Task{Data: parameters})
		if err != nil {
			return nil, err
		}
		defer e.Close(t.Context())
		steps := []environment.Step{{Messages: first}}
		for _, text := range said {
			s, err := e.Step(t.Context(), environment.Completion{Text: text})
			if err != nil {
				return steps, err
			}
			steps = append(steps, s)
		}
		return steps, nil
	}
}

func TestMovesAsJSON(t *testing.T) {
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, dir, "server:moves", map[string]string{"MAX_ENVS": "2"})
	t.Run("rewards and invalid actions", func(t *testing.T) {
		_, episode := play(t, s.URL(), func(c *Config) {
			c.ActionFormat, c.InvalidActionReward, c.MaxObservationChars = "json", -1, 2000
		})
		steps, err := episode(map[string]any{"seed": 7}, "I go left.", `{"x": "left"}`, `{"x": 3}`,
			"```json\n{\"x\": 4, \"note\": \"{}\"}\n```")
		if err != nil {
			t.Fatal(err)
		}
		if m := steps[0].Messages; len(m) != 2 || !strings.Contains(m[0].Content, `"note"`) ||
			!strings.Contains(m[1].Content, `"seed":7`) {
			t.Errorf("it begins with %+v", m)
		}
		for i, want := range []environment.Step{{Reward: -1, Invalid: true}, {Reward: -1, Invalid: true}, {Reward: 3},
			{Reward: 4, Done: true}} {
			got := steps[i+1]
			if got.Reward != want.Reward || got.Done != want.Done || got.Invalid != want.Invalid {
				t.Errorf("turn %d: %+v, want %+v", i+1, got, want)
			}
		}
		if text := steps[2].Messages[0].Content; !strings.Contains(text, "valid integer") {
			t.Errorf("the model reads %q, which does not say what is wrong", text)
		}
	})
	t.Run("state", func(t *testing.T) {
		w, _ := play(t, s.URL(), nil)
		se, err := w.dialer.open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer se.close(t.Context())
		if _, err := se.reset(t.Context(), map[string]any{"seed": 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := se.step(t.Context(), map[string]any{"x": 1}); err != nil {
			t.Fatal(err)
		}
		var state struct {
			Steps int `json:"step_count"`
		}
		if data, err := se.state(t.Context()); err != nil || json.Unmarshal(data, &state) != nil || state.Steps != 1 {
			t.Errorf("state %s, %v", data, err)
		}
	})
	t.Run("a full server is waited for", func(t *testing.T) {
		c, api := config(t, s.URL())
		c.GroupSize, c.Concurrency = 8, 1
		b := start(t, c)
		api.Wait(1)
		b.Wait("the server's limit", func(e *pluginpb.Event) bool {
			return strings.Contains(e.GetLog().GetMessage(), "the server allows 2 sessions at once")
		})
		for _, e := range b.Events() {
			if e.GetMetrics().GetValues()["infra_failed"] > 0 {
				t.Errorf("waiting counts as a failure: %v", e.GetMetrics())
			}
		}
	})
	for fault, want := range map[string]string{
		"hang":  "step: no answer within message_timeout_s = 1",
		"big":   "step: the answer is larger than max_message_size_mb = 1",
		"raise": "EXECUTION_ERROR: that move is not allowed",
	} {
		t.Run(fault, func(t *testing.T) {
			_, episode := play(t, s.URL(), func(c *Config) {
				c.ActionFormat = "json"
				if fault == "hang" {
					c.MessageTimeoutS = 1
				}
			})
			_, err := episode(map[string]any{"fault": fault}, `{"x": 1}`)
			var infra *environment.InfraFailed
			if !errors.As(err, &infra) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want infra_failed with %q", err, want)
			} else if infra.Answered != (fault == "raise") {
				t.Errorf("%v: the environment's own answer: %t", err, infra.Answered)
			}
		})
	}
	t.Run("an exception that means an invalid action", func(t *testing.T) {
		_, episode := play(t, s.URL(), func(c *Config) {
			c.ActionFormat, c.ExecutionError = "json", "invalid_action"
		})
		steps, err := episode(map[string]any{"fault": "raise"}, `{"x": 1}`)
		if err != nil || !steps[1].Invalid || !strings.Contains(steps[1].Messages[0].Content, "not allowed") {
			t.Errorf("%+v, %v", steps, err)
		}
	})
}

// A server that dies in the middle of an episode is started again, the episode begins anew, and nothing scores low.
func TestAServerThatDiesIsStartedAgain(t *testing.T) {
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	c, api := config(t, "")
	c.Command = []string{python(t), "-m", "uvicorn", "server:moves", "--uds", "{socket}"}
	c.CommandDir, c.StartTimeout = dir, 4*time.Minute
	c.Reset = map[string]any{"fault": "die", "once": filepath.Join(t.TempDir(), "died")}
	c.ActionFormat, c.ActionField, c.ActionPattern = "text", "x", ""
	c.EpisodeAttempts, c.MaxTurns, c.DropUninformative = 20, 2, false
	// The fake model answers with letters, which are no whole number: note takes them, and x is set.
	c.ActionField, c.Action = "note", map[string]any{"x": 5}
	b := start(t, c)
	b.Wait("the news of its death", func(e *pluginpb.Event) bool {
		return strings.Contains(e.GetLog().GetMessage(), "the environment's server has ended")
	})
	for _, g := range api.Wait(2) {
		plugintest.CheckGroup(t, g)
		if slices.Contains(g.Scores, 0) || slices.Contains(g.Scores, 5) {
			t.Errorf("scores %v, want 10 of each episode", g.Scores)
		}
	}
	b.Wait("the rate of failures", func(e *pluginpb.Event) bool { return e.GetMetrics().GetValues()["infra_failed"] > 0 })
}

func TestTools(t *testing.T) {
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, dir, "server:tools", nil)
	_, episode := play(t, s.URL(), func(c *Config) { c.MaxObservationChars = 2000 })
	steps, err := episode(map[string]any{"seed": 1},
		`<tool_call>{"name": "add", "arguments": {"a": 1, "b": 41}}</tool_call>`,
		`<tool_call>{"name": "add", "arguments": {"a": "one"}}</tool_call><tool_call>{"name": "sub"}</tool_call>`,
		`<tool_call>add(1, 2)</tool_call>`, "It is 42.")
	if err != nil {
		t.Fatal(err)
	}
	if m := steps[0].Messages; !strings.Contains(m[0].Content, "Add two numbers.") ||
		!strings.Contains(m[0].Content, `"integer"`) || !strings.Contains(m[1].Content, "add 1 and 2") {
		t.Errorf("it begins with %+v", m)
	}
	if text := steps[1].Messages[0].Content; text != "<tool_response>\n42\n</tool_response>" {
		t.Errorf("the sum is %q", text)
	}
	if text := steps[2].Messages[0].Content; strings.Count(text, "<tool_response>\nerror") != 2 {
		t.Errorf("wrong calls are answered with %q", text)
	}
	if !steps[3].Invalid || steps[4].Done != true {
		t.Errorf("a malformed call and an answer: %+v", steps[3:])
	}
}

// nonsense is a server that answers everything with one text.
func nonsense(t *testing.T, answer string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/health":
		case "/schema":
			_, _ = w.Write([]byte(`{"action": {"properties": {"text": {"type": "string"}}, "required": ["text"]}}`))
		default:
			conn, err := websocket.Accept(w, r, nil)
			if err != nil {
				return
			}
			defer func() { _ = conn.CloseNow() }()
			ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
			defer cancel()
			for {
				if _, _, err := conn.Read(ctx); err != nil || conn.Write(ctx, websocket.MessageText, []byte(answer)) != nil {
					return
				}
			}
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestAServerThatAnswersNonsenseIsInfraFailed(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		"<html>": "no JSON object",
		`{"type": "observation", "data": {"reward": 1}}`:                                     "want an object with observation",
		`{"type": "observation", "data": {"observation": {"a": 1}, "reward": "much"}}`:       "want an object with observation",
		`{"type": "state", "data": {}}`:                                                      "want an answer of type observation",
		`{"type": "error", "data": "no"}`:                                                    "cannot be read",
		`{"type": "error", "data": {"code": "FACTORY_ERROR", "message": "no GPU"}}`:          "FACTORY_ERROR: no GPU",
		`{"type": "observation", "data": {"observation": {"a": "b"}, "done": true}}`:         "over before its first turn",
		`{"type": "error", "data": {"code": "CAPACITY_REACHED", "message": "1 of 1 taken"}}`: "capacity_timeout = 1s",
	} {
		_, episode := play(t, nonsense(t, answer), func(c *Config) { c.CapacityTimeout = time.Second })
		_, err := episode(map[string]any{})
		var infra *environment.InfraFailed
		if !errors.As(err, &infra) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want infra_failed with %q", answer, err, want)
		}
	}
}
