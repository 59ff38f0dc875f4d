package atropos

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Atropos's own environments, unmodified: make test-atropos-own. ATROPOS_CHECKOUT is a folder with Atropos's
// environments/, ATROPOS_PYTHON an interpreter with what they import.
func TestAtroposOwnEnvironments(t *testing.T) {
	checkout := os.Getenv("ATROPOS_CHECKOUT")
	if checkout == "" {
		t.Skip("ATROPOS_CHECKOUT names no folder with Atropos's environments; make test-atropos-own gets them from PyPI")
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
			w := newWorld(t)
			w.finish, w.reply, w.length = "stop", c.answer, 1<<20
			path := workplace(t, checkout)
			groups := rolled(t, w, 2, func(b *Config) {
				b.Path, b.Script, b.GroupSize, b.KeepSameScores = path, c.script, 4, true
				b.Tokenizer, b.MaxTokenLength, b.Config = templateTokenizer(t), 8192, maps.Clone(c.config)
				b.Silence, b.MaxNumWorkers = patience, 1 // games are made in the event loop, one after the other
			})
			for _, g := range groups {
				for i, row := range g["masks"].([]any) {
					if n := len(row.([]any)); n < 10 || n != len(g["tokens"].([]any)[i].([]any)) {
						t.Errorf("sequence %d has %d masks and %d tokens", i, n, len(g["tokens"].([]any)[i].([]any)))
					}
				}
			}
			t.Logf("%d groups arrived; the first has %d sequences, scores %v", len(groups), len(groups[0]["tokens"].([]any)),
				groups[0]["scores"])
		})
	}
}

// workplace is a folder with the checkout's environments and small data sets in place of those that they download.
func workplace(t *testing.T, checkout string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(checkout, "environments"), filepath.Join(dir, "environments")); err != nil {
		t.Fatal(err)
	}
	conversation := `{"conversations": [{"from": "system", "value": "Tools: add"}, {"from": "human", "value": "Add one to nothing."},
		{"from": "gpt", 
			"value": "<think>\nx\n</think>\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>"},
		{"from": "tool", "value": "<tool_response>\n1\n</tool_response>"},
		{"from": "gpt", "value": "<think>\nx\n</think>\nIt is 1."}, {"from": "human", "value": "And two?"},
		{"from": "gpt", 
			"value": "<think>\nx\n</think>\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 2}}\n</tool_call>"},
		{"from": "tool", "value": "<tool_response>\n2\n</tool_response>"},
		{"from": "gpt", "value": "<think>\nx\n</think>\nIt is 2."}]}`
	for name, text := range map[string]string{
		"interstellarninja/toolace_hermes_sequential_tool_use/train.jsonl": strings.Repeat(
			strings.Join(strings.Fields(conversation), " ")+"\n", 40),
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
