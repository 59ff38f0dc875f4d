package ors

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kit/envserver"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// python is the interpreter of scripts/python/ors.txt.
func python(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../.cache/venv-ors/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("scripts/venv.sh ors makes the Python environment that this test needs")
	}
	return path
}

// serve starts an app of the SDK's own server in a folder, and says where it is.
func serve(t *testing.T, dir string, argv ...string) *envserver.Server {
	t.Helper()
	s, err := envserver.Open(t.Context(), envserver.Setup{
		Location: envserver.Location{Command: append([]string{python(t)}, argv...), StartTimeout: 4 * time.Minute},
		Health:   "/health", Block: sdk.Block{Dir: t.TempDir(), RecipeDir: dir},
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

func uvicorn(app string) []string {
	return []string{"-m", "uvicorn", app, "--host", "127.0.0.1", "--port", "{port}", "--log-level", "warning"}
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
		Location: envserver.Location{BaseURL: url, StartTimeout: time.Minute},
		Split:    "train", EvalSplit: "test", EvalTasks: 4, NoToolCall: "end", MaxObservationChars: 2000, MaxSessions: 3,
		HeartbeatTimeout: 20 * time.Second, ToolTimeout: 20 * time.Second, StartingTimeout: time.Minute,
		MaxResponseSizeMB: 1,
	}, api
}

// The environment that the SDK generates, unchanged, under the SDK's server, passes the suite. Its tasks end with the
// first answer, since the fake model calls no tool.
func TestTheScaffoldOfTheSDKComplies(t *testing.T) {
	dir := t.TempDir()
	make := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(python(t)), "orwd"), "init", "basic")
	make.Dir = dir
	if made, err := make.CombinedOutput(); err != nil {
		t.Fatalf("orwd init: %v\n%s", err, made)
	}
	s := serve(t, filepath.Join(dir, "basic"), "-c", "from openreward.environments import Server; from server import "+
		"BasicEnvironment; Server([BasicEnvironment]).run(host='127.0.0.1', port={port})")
	plugintest.Compliance(t, Plugin(), plugintest.Suite{
		Config: func(t *testing.T) any { c, _ := config(t, s.URL()); return c },
		Groups: func(t *testing.T) (any, *plugintest.Trajectories) { c, api := config(t, s.URL()); return c, api },
		Bad: map[string]func(t *testing.T) any{
			"a split that is not there": func(t *testing.T) any {
				c, _ := config(t, s.URL())
				c.Split = "trian"
				return c
			},
			"an environment that is not there": func(t *testing.T) any {
				c, _ := config(t, s.URL())
				c.EnvName = "advanced"
				return c
			},
			"two servers": func(t *testing.T) any {
				c, _ := config(t, s.URL())
				c.Command = []string{"true"}
				return c
			},
		},
	})
}

// play opens the environment and gives a function that plays an episode by hand.
func play(t *testing.T, url string, change func(*Config)) (*world,
	func(said ...string) ([]environment.Step, error),
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
	return w, func(said ...string) ([]environment.Step, error) {
		e, first, err := w.Begin(t.Context(), environment.Task{Data: place{c.Split, 2}})
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

const addition = `I add. <tool_call>{"name": "add", "arguments": {"a": 3, "b": 6}}</tool_call>`

func TestTools(t *testing.T) {
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, dir, uvicorn("server:app")...)
	t.Run("calls", func(t *testing.T) {
		_, episode := play(t, s.URL(), func(c *Config) {
			c.InvalidActionReward, c.Secrets = -1, map[string]string{"TOKEN": "s3cret"}
		})
		steps, err := episode(addition, `<tool_call>{"name": "sub"}</tool_call><tool_call>{"name": "add", "arguments": `+
			`{"a": "x"}}</tool_call>`, "<tool_call>add</tool_call>", `<tool_call>{"name": "secret"}</tool_call>`,
			`<tool_call>{"name": "submit", "arguments": {"answer": "9"}}</tool_call>`)
		if err != nil {
			t.Fatal(err)
		}
		if m := steps[0].Messages; len(m) != 2 || !strings.Contains(m[0].Content, "Submit the answer") ||
			m[1].Content != "What is 3 + 6?" {
			t.Errorf("it begins with %+v", m)
		}
		for i, want := range []environment.Step{{Reward: 0.25}, {Reward: -1, Invalid: true}, {Reward: -1, Invalid: true},
			{}, {Reward: 1, Done: true}} {
			got := steps[i+1]
			if got.Reward != want.Reward || got.Done != want.Done || got.Invalid != want.Invalid {
				t.Errorf("turn %d: %+v, want %+v", i+1, got, want)
			}
		}
		for i, want := range map[int]string{1: "<tool_response>\n9\n</tool_response>", 2: "'sub' is not a valid tool",
			4: "s3cret", 5: "right"} {
			if got := steps[i].Messages[0].Content; !strings.Contains(got, want) {
				t.Errorf("after turn %d the model reads %q, want %q", i, got, want)
			}
		}
	})
	t.Run("an answer without a call", func(t *testing.T) {
		_, episode := play(t, s.URL(), nil)
		if steps, err := episode("9"); err != nil || !steps[1].Done || steps[1].Reward != 0 {
			t.Errorf("%+v, %v", steps, err)
		}
		_, episode = play(t, s.URL(), func(c *Config) { c.NoToolCall = "continue" })
		if steps, err := episode("9", addition); err != nil || steps[1].Done || !steps[1].Invalid ||
			steps[2].Reward != 0.25 {
			t.Errorf("%+v, %v", steps, err)
		}
	})
	t.Run("sessions end", func(t *testing.T) {
		w, episode := play(t, s.URL(), nil)
		e, _, err := w.Begin(t.Context(), environment.Task{Data: place{"train", 0}})
		if err != nil {
			t.Fatal(err)
		}
		id := e.(*session).id
		e.Close(t.Context())
		var gone *statusError
		if err := w.client.once(t.Context(), http.MethodPost, "/ping", id, nil, nil); !errors.As(err, &gone) ||
			gone.code != http.StatusNotFound {
			t.Errorf("the session is still there: %v", err)
		}
		if _, err := episode(); err != nil {
			t.Error(err)
		}
	})
	t.Run("a slow tool is waited for", func(t *testing.T) {
		_, episode := play(t, s.URL(), func(c *Config) { c.Split = "slow" })
		if steps, err := episode(addition); err != nil || steps[1].Reward != 0.25 {
			t.Errorf("%+v, %v", steps, err)
		}
	})
	for fault, want := range map[string]string{
		"hang":  "the tool add ran longer than tool_timeout = 2s",
		"big":   "larger than max_response_size_mb = 1",
		"raise": "the environment reports: the disk is full",
		"setup": "no sandbox is free",
	} {
		t.Run(fault, func(t *testing.T) {
			_, episode := play(t, s.URL(), func(c *Config) {
				c.Split = fault
				if fault == "hang" {
					c.ToolTimeout = 2 * time.Second
				}
			})
			_, err := episode(addition)
			var infra *environment.InfraFailed
			if !errors.As(err, &infra) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want infra_failed with %q", err, want)
			}
		})
	}
	t.Run("a terminal tool gets the answer", func(t *testing.T) {
		c, api := config(t, s.URL())
		c.EnvName, c.MaxTokens = "plain", 40
		b := plugintest.Harness(t, Plugin())
		b.Start(c)
		for _, g := range api.Wait(4) {
			plugintest.CheckGroup(t, g)
			counted(t, g)
		}
	})
	t.Run("a server that dies", func(t *testing.T) { // the last one
		_, episode := play(t, s.URL(), func(c *Config) { c.Split = "die" })
		_, err := episode(addition)
		var infra *environment.InfraFailed
		if !errors.As(err, &infra) {
			t.Errorf("got %v, want infra_failed", err)
		}
	})
}

// counted compares the scores with the letters that were asked for.
func counted(t *testing.T, g trajectory.Group) {
	t.Helper()
	var all [][]environment.Message
	if err := json.Unmarshal(g.Messages, &all); err != nil {
		t.Fatal(err)
	}
	for i, said := range all {
		letter := strings.TrimSuffix(strings.TrimPrefix(said[0].Content, "Write the letter "), ".")
		if n := strings.Count(said[1].Content, letter); len(letter) != 1 || float64(n) != g.Scores[i] {
			t.Errorf("score %v: %+v", g.Scores[i], said)
		}
	}
}

// fake is a server that answers as the standard says up to the call of a tool, whose stream it writes itself.
func fake(t *testing.T, call func(n int64, body string) string) string {
	t.Helper()
	var calls atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers := map[string]string{
			"/health": `{}`, "/list_environments": `["e"]`, "/e/num_tasks": `{"num_tasks": 3}`,
			"/create_session": "event: task_id\r\ndata: s1\r\n\r\nevent: end\r\ndata:\r\n\r\n", "/create": `{"sid": "s1"}`,
			"/e/prompt": `[{"type": "text", "text": "go"}, {"type": "image", "data": "", "mimeType": "image/png"}]`,
			"/e/tools":  `{"tools": [{"name": "f", "description": "", "input_schema": null}]}`, "/delete": `{}`,
			"/delete_session": `{}`,
		}
		text, known := answers[r.URL.Path]
		if r.URL.Path == "/e/call" {
			body, _ := io.ReadAll(r.Body)
			text, known = call(calls.Add(1), string(body)), true
		}
		if !known {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func stream(events ...string) string {
	var b strings.Builder
	for i := 0; i < len(events); i += 2 {
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", events[i], events[i+1])
	}
	return b.String()
}

const (
	oneHalf = `{"ok": true, "output": {"blocks": [{"type": "text", "text": "a`
	other   = `b"}], "reward": 2, "finished": true, "metadata": null}}`
	callOfF = `<tool_call>{"name": "f"}</tool_call>`
)

// A stream that breaks after it has said its task is taken up by that, so that no tool runs twice.
func TestABrokenStreamIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	url := fake(t, func(n int64, body string) string {
		if n == 1 {
			return stream("task_id", "t1") + "event: chunk\nda"
		}
		if !strings.Contains(body, `"task_id":"t1"`) {
			return stream("error", "the tool would run twice")
		}
		return ": ping\n\n" + stream("task_id", "t1", "chunk", oneHalf, "end", other)
	})
	_, episode := play(t, url, nil)
	steps, err := episode(callOfF)
	if err != nil || steps[1].Reward != 2 || !steps[1].Done {
		t.Fatalf("%+v, %v", steps, err)
	}
	if text := steps[0].Messages[1].Content; text != "go\n[image image/png]" {
		t.Errorf("the model reads %q of the prompt of an old server", text)
	}
}

func TestNonsenseIsInfraFailed(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		"":                               "ended before its end event",
		"<html>":                         "ended before its end event",
		stream("end", "<html>"):          "want the result of a tool",
		stream("end", `{"output": {}}`):  "want the result of a tool",
		stream("end", `{"ok": true}`):    "want the result of a tool",
		stream("error", "out of memory"): "the environment reports: out of memory",
		stream("end", `{"ok": false, "reason": "name_collision", "error": "two tools"}`): "two tools",
	} {
		_, episode := play(t, fake(t, func(int64, string) string { return answer }), nil)
		_, err := episode(callOfF)
		var infra *environment.InfraFailed
		if !errors.As(err, &infra) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want infra_failed with %q", answer, err, want)
		}
	}
}

// FuzzEvents: a stream is read up to its end or its limit, whatever it holds.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("event: end\ndata: {}\n\n"), int64(10))
	f.Add([]byte(":\n\n\r\n\r\ndata:x\ndata\n\n"), int64(1000))
	f.Fuzz(func(t *testing.T, text []byte, limit int64) {
		read := 0
		err := events(strings.NewReader(string(text)), limit&0xffff, func(e event) bool {
			read += len(e.name) + len(e.data)
			return e.name != "end"
		})
		if read > len(text) || err == nil && read == 0 {
			t.Fatalf("%d characters of %d, %v", read, len(text), err)
		}
	})
}
