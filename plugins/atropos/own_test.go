package atropos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// Atropos's own environments, unmodified, behind a real gateway and with a real trajectory API, from which a trainer
// takes their groups; only the engine's answers are written here. make test-atropos-own runs it. ATROPOS_CHECKOUT is a
// folder with Atropos's environments/, ATROPOS_PYTHON an interpreter with what they import.
func TestAtroposOwnEnvironments(t *testing.T) {
	checkout := os.Getenv("ATROPOS_CHECKOUT")
	if checkout == "" {
		t.Skip("ATROPOS_CHECKOUT names no folder with Atropos's environments; make test-atropos-own gets them from PyPI")
	}
	recipe := filepath.Join(t.TempDir(), "recipe")
	if out, err := exec.Command("go", "build", "-o", recipe, "../../cmd/recipe").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, c := range map[string]struct {
		script string
		config map[string]any
		answer func(prompt string, i int) string
	}{
		"blackjack": {"environments/game_environments/gymnasium/blackjack/blackjack_env_no_thinking.py", nil,
			func(_ string, i int) string { return blackjack([]string{"stick", "hit"}[i%2]) }},
		"blackjack, thinking": {"environments/game_environments/gymnasium/blackjack/blackjack_env_thinking.py", nil,
			func(_ string, i int) string { return "<think>x</think>" + blackjack([]string{"stick", "hit"}[i%2]) }},
		"gym_taxi": {"environments/game_environments/gymnasium/gym_taxi.py", nil,
			func(_ string, i int) string { return []string{"3", "x"}[i%2] }},
		"letter_counting": {"environments/letter_counting_environment/letter_counting_environment.py", nil,
			func(_ string, i int) string { return fmt.Sprintf("<think>\nx</think><answer>%d</answer>", i%4) }},
		"regex": {"environments/community/regex_generation/regex_env.py", nil,
			func(_ string, i int) string { return []string{"<answer>.+</answer>", "<answer>x</answer>"}[i%2] }},
		"tool_use_multiturn": {"environments/tool_use_multiturn_server.py", nil, toolCall},
		"textworld": {"environments/game_environments/textworld_env/textworld_env.py",
			map[string]any{"max_steps": int64(3)}, func(_ string, i int) string {
				return []string{"<think>x</think> look",
					"inventory"}[i%2]
			}},
	} {
		t.Run(name, func(t *testing.T) {
			path := workplace(t, checkout)
			inference, trajectories := refs(gated(t, c.answer), runAPI(t, recipe))
			groups := taken(t, trajectories, request(t, newWorld(t), func(b *Config) {
				b.Inference, b.Trajectories = inference, trajectories
				b.Path, b.Script, b.GroupSize, b.KeepSameScores = path, c.script, 4, true
				b.Tokenizer, b.MaxTokenLength, b.Config = templateTokenizer(t), 8192, maps.Clone(c.config)
				b.Silence, b.MaxNumWorkers = patience, 1 // games are made in the event loop, one after the other
			}))
			for _, g := range groups {
				for i, row := range g.Masks {
					trained := slices.IndexFunc(row, func(id int) bool { return id != -100 })
					if trained < 0 || len(row) != len(g.Tokens[i]) || row[trained] != g.Tokens[i][trained] {
						t.Errorf("sequence %d: %d masks and %d tokens, the first trained one at %d", i, len(row),
							len(g.Tokens[i]), trained)
					}
				}
			}
			t.Logf("%d groups were taken; the first has %d sequences, scores %v", len(groups), len(groups[0].Tokens),
				groups[0].Scores)
		})
	}
}

// gated serves an engine that answers as told behind a gateway and returns the gateway's URL.
func gated(t *testing.T, answer func(prompt string, i int) string) string {
	t.Helper()
	engine := httptest.NewServer(&scripted{answer: answer})
	t.Cleanup(engine.Close)
	g, err := gateway.New(gateway.Config{Address: "127.0.0.1:0", Token: "key"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { _ = g.Serve(ctx) })
	t.Cleanup(func() { cancel(); serving.Wait() })
	if err := errors.Join(g.SetReplicas([]gateway.Replica{{ID: "0", URL: engine.URL}}), g.Admit(ctx, "0", 0)); err != nil {
		t.Fatal(err)
	}
	return g.URL()
}

// scripted is an engine that answers /v1/completions and /v1/chat/completions as vLLM does.
type scripted struct {
	answered atomic.Int64
	answer   func(prompt string, i int) string
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		N        int             `json:"n"`
		Prompt   json.RawMessage `json:"prompt"` // a text, or token ids: the gateway's /generate sends these
		Messages []struct {
			Content string `json:"content"`
		} `json:"messages"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var prompt string
	var ids []int
	if json.Unmarshal(q.Prompt, &ids) == nil {
		prompt = charactersOf(ids)
	} else {
		_ = json.Unmarshal(q.Prompt, &prompt)
	}
	for _, m := range q.Messages {
		prompt += m.Content + "\n"
	}
	n := max(1, q.N)
	first := int(s.answered.Add(int64(n))) - n
	choices := make([]any, n)
	for i := range n {
		text := s.answer(prompt, first+i)
		tokens := idsOf(text)
		choices[i] = map[string]any{
			"index": i, "text": text, "finish_reason": "stop", "token_ids": tokens,
			"message":  map[string]any{"role": "assistant", "content": text},
			"logprobs": map[string]any{"token_logprobs": slices.Repeat([]float64{-0.5}, len(tokens))},
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"id": "x", "object": "completion", "created": 1, "model": "policy",
		"choices": choices})
}

// runAPI starts `recipe run-api` and returns its URL.
func runAPI(t *testing.T, recipe string) string {
	t.Helper()
	api := exec.Command(recipe, "run-api", "--port", "0", "--store", "memory")
	api.Env = append(os.Environ(), "RECIPE_RUN_API_TOKEN=token")
	out, err := api.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := api.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = api.Process.Signal(os.Interrupt)
		_ = api.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n') // its end, too, ends this wait
	url := regexp.MustCompile(`http://[\d.:]+`).FindString(line)
	if url == "" {
		t.Fatalf("run-api says %q, %v", line, err)
	}
	return url
}

// taken runs an environment until a trainer has taken a batch of two groups of four.
func taken(t *testing.T, api *spec.Ref, req sdk.Request[Config]) []trajectory.Group {
	t.Helper()
	client, err := trajectory.New(api.Values.GetAttr("url").AsString(), trajectory.WithToken("token"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := client.Register(ctx, trajectory.Registration{BatchSize: 8, MaxTokenLen: 1 << 20,
		NumSteps: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	h, ended := newHost(), make(chan error, 1)
	go func() { ended <- (&Environment{}).Run(ctx, req, h) }()
	for {
		batch, err := client.Batch(ctx, 0)
		if batch != nil {
			cancel()
			<-ended
			return batch.Groups
		}
		select {
		case failure := <-ended:
			t.Fatalf("the environment ended: %v; log %q", failure, h.logs)
		default:
		}
		if ctx.Err() != nil {
			<-ended
			t.Fatalf("no batch in %s: %v; phases %q, log %q", patience, err, h.phases, h.logs)
		}
	}
}

// workplace is a folder with the checkout's environments and small data sets in place of those that they download.
func workplace(t *testing.T, checkout string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(checkout, "environments"), filepath.Join(dir, "environments")); err != nil {
		t.Fatal(err)
	}
	call := func(a string) string {
		return `{"from": "gpt", "value": "<think>\nx\n</think>\n<tool_call>\n{\"name\": \"add\", \"arguments\": ` +
			`{\"a\": ` + a + `}}\n</tool_call>"}, {"from": "tool", "value": "<tool_response>\n` + a + `\n</tool_response>"}, ` +
			`{"from": "gpt", "value": "<think>\nx\n</think>\nIt is ` + a + `."}`
	}
	conversation := `{"conversations": [{"from": "system", "value": "Tools: add"}, ` +
		`{"from": "human", "value": "Add one to nothing."}, ` + call("1") + `, {"from": "human", "value": "And two?"}, ` +
		call("2") + "]}\n"
	for name, text := range map[string]string{
		"interstellarninja/toolace_hermes_sequential_tool_use/train.jsonl": strings.Repeat(conversation, 40),
		"nltk/corpora/words/en":       "apple\nbanana\ncherry\nstrawberry\n",
		"nltk/corpora/words/en-basic": "apple\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), text)
	}
	t.Setenv("NLTK_DATA", filepath.Join(dir, "nltk"))
	return dir
}

func blackjack(action string) string {
	return fmt.Sprintf(`<tool_call>{"name": "take_action", "arguments": {"action": %q}}</tool_call>`, action)
}

// toolCall is the next answer that the conversation of workplace expects: a tool call, right in every other answer, or
// text about its result.
func toolCall(prompt string, i int) string {
	asked := max(strings.LastIndex(prompt, "Add one to nothing."), strings.LastIndex(prompt, "And two?"))
	if max(strings.LastIndex(prompt, "1\n</tool_response>"), strings.LastIndex(prompt, "2\n</tool_response>")) > asked {
		return "<think>\nx\n</think>\nThat is it."
	}
	argument := 1
	switch {
	case i%2 == 1:
		argument = 9
	case strings.Contains(prompt, "And two?"):
		argument = 2
	}
	return fmt.Sprintf("<think>\nx\n</think>\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": %d}}\n</tool_call>",
		argument)
}
