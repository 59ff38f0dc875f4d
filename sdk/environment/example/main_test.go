package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// The guide shows this program.
func TestTheGuideShowsThisProgram(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../../docs/writing-plugins.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(guide), "```go\n"+string(program)+"```") {
		t.Error("docs/writing-plugins.md does not hold main.go as it is; copy it there")
	}
}

func TestScore(t *testing.T) {
	t.Parallel()
	r := &reverse{}
	for text, want := range map[string]float64{"olleh": 1, " olleh\n": 1, "ollex": 0.8, "hello": 0.2, "": 0} {
		if got, err := r.Score(t.Context(), task("hello"), environment.Completion{Text: text}); err != nil ||
			got != want {
			t.Errorf("score of %q: %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestHeldOutWordsAreNotTrained(t *testing.T) {
	t.Parallel()
	r, err := open(context.Background(), environment.Setup[Config]{Config: Config{Words: words(t, 100)}})
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := r.EvaluationTasks(t.Context())
	if err != nil || len(tasks) != 10 || len(r.train) != 90 {
		t.Errorf("%d held out, %d to train on, %v; want 10 and 90", len(tasks), len(r.train), err)
	}
}

func words(t *testing.T, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "words")
	if err := os.WriteFile(path, []byte(strings.Repeat("hello\n", n)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCompliance(t *testing.T) {
	groups := func(t *testing.T) (any, *plugintest.Trajectories) {
		api := plugintest.FakeTrajectories(t, 16)
		server := plugintest.Harness(t, plugintest.FakeInference())
		server.Start(plugintest.FakeConfig{})
		server.Ready()
		book := api.Reference()
		return Config{Words: words(t, 20), Settings: environment.Settings{
			Inference: server.Reference(), Trajectories: &book, GroupSize: 4, MaxTokens: 8, Temperature: 1, TopP: 1,
			Concurrency: 4, MaxBatchesOffpolicy: 1, RequestTimeout: time.Minute,
		}}, api
	}
	plugintest.Compliance(t, definition(), plugintest.Suite{
		Config: func(t *testing.T) any { c, _ := groups(t); return c },
		Groups: groups,
		Bad: map[string]func(*testing.T) any{
			"no such file": func(t *testing.T) any {
				c, _ := groups(t)
				broken := c.(Config)
				broken.Words = "/no/such/file"
				return broken
			},
		},
	})
}
