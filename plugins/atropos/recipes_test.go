package atropos

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// characters are the tokens of testdata/tokenizer, one for each character.
var characters = sync.OnceValue(func() []string {
	data, err := os.ReadFile(filepath.Join("testdata", "tokenizer", "tokenizer.json"))
	if err != nil {
		panic(err)
	}
	var t struct {
		Model struct {
			Vocab map[string]int `json:"vocab"`
		} `json:"model"`
	}
	if err := json.Unmarshal(data, &t); err != nil {
		panic(err)
	}
	out := make([]string, len(t.Model.Vocab))
	for text, id := range t.Model.Vocab {
		out[id] = text
	}
	return out
})

func charactersOf(ids []int) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(characters()[id])
	}
	return b.String()
}

func idsOf(text string) (ids []int) {
	for _, c := range text {
		id := 3 // unknown
		for i, known := range characters() {
			if known == string(c) {
				id = i
			}
		}
		ids = append(ids, id)
	}
	return ids
}

// rolled runs an environment of recipes/environments until it has posted that many groups, and returns its requests,
// too.
func rolled(t *testing.T, w *world, groups int, change func(*Config)) []map[string]any {
	t.Helper()
	h := newHost()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	req := request(t, w, change)
	go func() { ended <- (&Environment{}).Run(ctx, req, h) }()
	deadline := time.After(patience)
	for {
		w.mu.Lock()
		found := w.groups[:len(w.groups):len(w.groups)]
		w.mu.Unlock()
		if len(found) >= groups {
			cancel()
			<-ended
			return found
		}
		select {
		case <-w.posted:
		case err := <-ended:
			t.Fatalf("the environment ended: %v; log %q", err, h.logs)
		case <-deadline:
			h.mu.Lock()
			defer h.mu.Unlock()
			t.Fatalf(
				"waited too long for %d groups; there are %d; log %q, asked %d times",
				groups,
				len(found),
				h.logs,
				w.requests,
			)
		}
	}
}

// trained returns the trained text of each sequence of a group, with · in place of each masked stretch.
func trained(t *testing.T, group map[string]any) (texts []string) {
	t.Helper()
	for i, row := range group["masks"].([]any) {
		tokens := group["tokens"].([]any)[i].([]any)
		if len(tokens) != len(row.([]any)) || len(tokens) != len(group["inference_logprobs"].([]any)[i].([]any)) {
			t.Fatalf("sequence %d: lengths of tokens, masks and log-probabilities disagree", i)
		}
		text := ""
		for k, m := range row.([]any) {
			switch id := int(m.(float64)); {
			case id != -100:
				text += characters()[id]
			case !strings.HasSuffix(text, "·"):
				text += "·"
			}
			if id := m.(float64); id != -100 && id != tokens[k].(float64) {
				t.Fatalf("sequence %d: mask %v on token %v", i, id, tokens[k])
			}
		}
		texts = append(texts, text)
	}
	return texts
}

func script(t *testing.T, name string) func(*Config) {
	return func(c *Config) { c.Script = filepath.Join(repository(t), "recipes", "environments", name) }
}

var sum = regexp.MustCompile(`What is (\d+)([+*])(\d+)\?`)

// result is the right answer to the question of a prompt.
func result(prompt string) int {
	m := sum.FindStringSubmatch(prompt)
	if m == nil {
		return -1
	}
	var a, b int
	_, _ = fmt.Sscan(m[1], &a)
	_, _ = fmt.Sscan(m[3], &b)
	if m[2] == "*" {
		return a * b
	}
	return a + b
}

// TestMultiTurn: conversations with a tool. The prompt only grows, and the tool's output is not trained on.
//
//docs:troubleshooting.md Turns before the last are masked, because the library forgets them
func TestMultiTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	begun := 0
	w.reply = func(prompt string, _ int) string {
		if m := regexp.MustCompile(`<tool_response>(\d+)</tool_response>$`).FindStringSubmatch(strings.ReplaceAll(prompt,
			"<unk>", "")); m != nil {
			return "<answer>" + m[1] + "</answer>"
		}
		mu.Lock()
		defer mu.Unlock()
		if begun++; begun%2 == 0 {
			return "<answer>1</answer>" // half of the conversations guess
		}
		return `<tool_call>{"name": "calculator", "arguments": {"expression": "(3 + 5) * 12 / 2"}}</tool_call>`
	}
	questions := filepath.Join(t.TempDir(), "gsm8k.jsonl")
	if err := os.WriteFile(questions, []byte(`{"question": "Three and five boxes of a dozen, shared by two. Each gets?", `+
		`"answer": "#### 48"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tools := func(c *Config) {
		script(t, "tools.py")(c)
		c.Config = map[string]any{"train_path": questions, "test_path": questions}
	}
	for _, g := range rolled(t, w, 1, tools)[:1] {
		for i, text := range trained(t, g) {
			score := g["scores"].([]any)[i].(float64)
			switch {
			case strings.HasPrefix(text, "·<tool_call>"):
				if parts := strings.Split(text, "·"); len(parts) != 3 || !strings.HasPrefix(parts[2], "<answer>") ||
					strings.Contains(text, "tool_response") ||
					score != 1 {
					t.Errorf(
						"a conversation with the tool trains %q with score %v; want the call and the answer, and "+
							"nothing that the tool said",
						text,
						score,
					)
				}
			case text != "·<answer>1</answer>" || score != 0:
				t.Errorf("a guess trains %q with score %v", text, score)
			}
		}
	}
}

// TestSearch: a tool that finds passages in a folder of texts by BM25, and an answer in words.
func TestSearch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	begun, read := 0, ""
	w.reply = func(prompt string, _ int) string {
		mu.Lock()
		defer mu.Unlock()
		if _, response, called := strings.Cut(strings.ReplaceAll(prompt, "<unk>", ""), "<tool_response>"); called {
			read = response
			return "<answer> grenn. </answer>"
		}
		if begun++; begun%2 == 0 {
			return "<answer>Velm</answer>" // half of the conversations guess
		}
		// Words that are operators of SQLite's query language, and a quotation mark.
		return `<tool_call>{"name": "search", "arguments": {"query": "AND NOT capitals \"of Thule NEAR("}}</tool_call>`
	}
	texts, questions := t.TempDir(), filepath.Join(t.TempDir(), "questions.jsonl")
	if err := os.Mkdir(filepath.Join(texts, "far"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(texts, "far", "north.txt"),
		"The capital of Thule is Grenn.\n\nThe capital of Ultima is Velm.\n")
	write(t, filepath.Join(texts, "south.md"), "Nobody lives on Hy Brasil.\n")
	write(t, filepath.Join(texts, "picture.png"), "Thule Thule Thule")
	write(t, questions, `{"question": "What is the capital of Thule?", "answer": "#### Grenn"}`+"\n")
	tools := func(c *Config) {
		script(t, "tools.py")(c)
		c.Config = map[string]any{"train_path": questions, "test_path": questions, "corpus": texts, "passages": 2}
	}
	for i, text := range trained(t, rolled(t, w, 1, tools)[0]) {
		if !strings.HasPrefix(text, "·<tool_call>") && text != "·<answer>Velm</answer>" {
			t.Errorf("conversation %d trains %q; want a call and an answer, or a guess", i, text)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	// "of" is in both capitals and in no other passage; "Thule" ranks its own higher. The test's tokenizer
	// has no token for the end of a line between them.
	want := "The capital of Thule is Grenn.The capital of Ultima is Velm.</tool_response>"
	if strings.TrimSpace(read) != want {
		t.Errorf("the model reads %q, want %q", read, want)
	}
}

// TestAToolSaysMoreThanFits: the conversation ends before a result that has no room, and is trained on.
func TestAToolSaysMoreThanFits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	begun, answered := 0, 0
	w.reply = func(prompt string, _ int) string {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(prompt, "tool_response") {
			answered++
		}
		if begun++; begun%2 == 0 {
			return "<answer>here</answer>" // half of the conversations guess, and are right
		}
		return `<tool_call>{"name": "search", "arguments": {"query": "far"}}</tool_call>`
	}
	texts, questions := t.TempDir(), filepath.Join(t.TempDir(), "questions.jsonl")
	write(t, filepath.Join(texts, "far.txt"), strings.Repeat("far away ", 1000))
	write(t, questions, `{"question": "Where?", "answer": "#### here"}`+"\n")
	tools := func(c *Config) {
		script(t, "tools.py")(c)
		c.Config = map[string]any{"train_path": questions, "test_path": questions, "corpus": texts}
	}
	calls := 0
	for _, text := range trained(t, rolled(t, w, 1, tools)[0]) {
		if strings.HasPrefix(text, "·<tool_call>") {
			calls++
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if calls == 0 || answered > 0 {
		t.Errorf("%d conversations with a call, and the model was asked %d times with a result that has no room", calls,
			answered)
	}
}

// TestTwoAgents: each role produces a group of its own.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.reply = func(prompt string, i int) string {
		switch {
		case strings.HasPrefix(prompt, "Is ") && i%2 == 0:
			return "yes"
		case strings.HasPrefix(prompt, "Is "):
			return "no"
		case i < 4:
			return itoa(result(prompt))
		default:
			return "x"
		}
	}
	roles := map[string]int{}
	for _, g := range rolled(t, w, 2, script(t, "two_agents.py"))[:2] {
		texts := trained(t, g)
		role := "solver"
		if strings.HasPrefix(texts[0], "·yes") {
			role = "checker"
		}
		roles[role]++
		right := 0.0
		for _, s := range g["scores"].([]any) {
			right += s.(float64)
		}
		if len(texts) != 8 || right != 4 {
			t.Errorf("%s: %d sequences, scores %v; want 8, half of them right", role, len(texts), g["scores"])
		}
	}
	if roles["solver"] != 1 || roles["checker"] != 1 {
		t.Errorf("groups of %v, want one of each role", roles)
	}
}

// TestR1Zero: a reward for the format, and a larger one for the right answer within it.
func TestR1Zero(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.reply = func(prompt string, i int) string {
		switch n := chainSum(prompt); i % 4 {
		case 0:
			return fmt.Sprintf("so</think> <answer>%d</answer>", n)
		case 1:
			return fmt.Sprintf("so</think> <answer>%d", n+1) // the server kept the stop text
		case 2:
			return fmt.Sprintf("<answer>%d</answer>", n)
		default:
			return fmt.Sprint(n)
		}
	}
	g := rolled(t, w, 1, func(c *Config) {
		script(t, "r1_zero.py")(c)
		c.Config = map[string]any{"dataset": "chain_sum", "dataset_config": oneDigitSums}
	})[0]
	for i, want := range []float64{1, 0.2, 0, 0, 1, 0.2, 0, 0} {
		if got := g["scores"].([]any)[i].(float64); got != want {
			t.Errorf("score %d is %v, want %v (%q)", i, got, want, trained(t, g)[i])
		}
	}
	if p := w.asked[0].Prompt; !strings.HasSuffix(p, "Assistant: <think>") {
		t.Errorf("the prompt is %q; want the template, with thinking opened", p)
	}
}

// TestChatTemplate: the environment's own template renders what is sent, in rollouts and in evaluations.
func TestChatTemplate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rolled(t, w, 1, script(t, "chat_template.py"))
	want := regexp.MustCompile(`^SYSTEM: Answer with a number\.(<unk>|\n)USER: What is \d\+\d\?(<unk>|\n)ASSISTANT: $`)
	if p := w.asked[0].Prompt; !want.MatchString(p) {
		t.Errorf("the prompt is %q, want %s", p, want)
	}
}

// TestGSM8KAsks: system prompt and question in the tokenizer's chat template, one answer per member of the group, of
// bounded length.
func TestGSM8KAsks(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data.jsonl")
	write(t, data, `{"question":"How many legs have two cats?","answer":"Each has four.\n#### 8"}`+"\n")
	w := newWorld(t)
	w.reply = func(_ string, i int) string { return fmt.Sprintf(`\boxed{%d}`, 5+i) }
	g := rolled(t, w, 1, func(c *Config) {
		script(t, "gsm8k.py")(c)
		c.Tokenizer, c.GroupSize, c.MaxTokenLength = chatTokenizer(t), 4, 40
		c.Config = map[string]any{"train_path": data, "test_path": data, "system_prompt": "Be brief."}
	})[0]
	if q := w.asked[0]; q.Prompt != "[system]Be brief.[user]How many legs have two cats?[assistant]" || q.N != 4 ||
		q.MaxTokens != 40 ||
		q.Temperature != 1 {
		t.Errorf("it asked %+v; want system prompt and question, 4 answers of at most 40 tokens at temperature 1", q)
	}
	if s := fmt.Sprint(g["scores"]); s != "[-1 -1 -1 1]" {
		t.Errorf("scores %s, want only the last to be right", s)
	}
}

// TestReasoningGymTask: the task generates the questions and scores the answers.
func TestReasoningGymTask(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(filepath.Join(filepath.Dir(python(t)), "..", "lib")); err != nil {
		t.Skip(err)
	}
	w := newWorld(t)
	w.reply = func(prompt string, i int) string {
		if i >= 3 {
			return "none"
		}
		return itoa(chainSum(prompt))
	}
	g := rolled(t, w, 1, func(c *Config) {
		script(t, "reasoning_gym_server.py")(c)
		c.Config = map[string]any{"dataset": "chain_sum", "dataset_config": oneDigitSums}
	})[0]
	if s := fmt.Sprint(g["scores"]); s != "[1 1 1 0 0 0 0 0]" {
		t.Errorf("scores %s of answers of which three are right; asked %q", s, w.asked[0].Prompt)
	}
}

// TestReasoningGymChat: the question goes through the model's chat template, and the answer is the text in its tags.
func TestReasoningGymChat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.reply = func(prompt string, i int) string {
		n := chainSum(prompt)
		if i >= 3 {
			return fmt.Sprintf("it is %d", n) // no tags
		}
		return fmt.Sprintf("1 and 1. <answer>%d</answer>", n)
	}
	g := rolled(t, w, 1, func(c *Config) {
		script(t, "reasoning_gym_server.py")(c)
		c.Tokenizer = chatTokenizer(t)
		c.Config = map[string]any{
			"dataset": "chain_sum", "dataset_config": oneDigitSums, "chat": true,
			"prompt_template": "{question} Tags!", "answer_pattern": "(?<=<answer>)[^<]+", "stop": []any{"STOP"},
		}
	})[0]
	if s := fmt.Sprint(g["scores"]); s != "[1 1 1 0 0 0 0 0]" {
		t.Errorf("scores %s of answers of which three are right; asked %q", s, w.asked[0].Prompt)
	}
	if p := w.asked[0].Prompt; !strings.HasPrefix(p, "[user]") || !strings.HasSuffix(p, " Tags![assistant]") {
		t.Errorf("the prompt is %q; want the chat template around question and instructions", p)
	}
}

// oneDigitSums are settings of chain_sum: 4 - 1, 7 + 9.
var oneDigitSums = map[string]any{"min_terms": 2, "max_terms": 2, "max_digits": 1}

var chain = regexp.MustCompile(`(\d+) ([+-]) (\d+) =`)

// chainSum is the right answer to a question of chain_sum with two terms.
func chainSum(prompt string) int {
	m := chain.FindStringSubmatch(prompt)
	if m == nil {
		return -1000
	}
	var a, b int
	_, _ = fmt.Sscan(m[1], &a)
	_, _ = fmt.Sscan(m[3], &b)
	if m[2] == "-" {
		b = -b
	}
	return a + b
}

// TestGame: observations depend on actions, are not trained on, and the reward falls with the number of turns.
func TestGame(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	begun := 0
	last := regexp.MustCompile(`Guess: (\d+)\. \((\w+)\)(?:<unk>|\n)Guess: $`)
	w.reply = func(prompt string, _ int) string {
		mu.Lock()
		defer mu.Unlock()
		m := last.FindStringSubmatch(prompt)
		if m == nil {
			begun++
			return []string{"8.", "x."}[begun%2] // half of the games never guess
		}
		var guess int
		_, _ = fmt.Sscan(m[1], &guess)
		if m[2] == "higher" {
			return fmt.Sprintf("%d.", guess+1)
		}
		return fmt.Sprintf("%d.", guess-1)
	}
	rewards := map[float64]bool{}
	for _, g := range rolled(t, w, 3, script(t, "game.py"))[:3] {
		for i, text := range trained(t, g) {
			score := g["scores"].([]any)[i].(float64)
			rewards[score] = true
			if strings.ContainsAny(text, "()") || strings.Contains(text, "Guess") {
				t.Errorf("%q is trained: observations must not be", text)
			}
			if turns := strings.Count(text, "."); score > 0 && score != 1-float64(turns-1)/6 {
				t.Errorf("a game of %d turns has the reward %v", turns, score)
			}
		}
	}
	if len(rewards) < 2 {
		t.Errorf("all games have the reward %v", rewards)
	}
}

// TestReplicas: one block with two processes, which share weight and minimum allocation.
func TestReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := newHost()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	req := request(t, w, func(c *Config) { c.Replicas = 2 })
	go func() { ended <- (&Environment{}).Run(ctx, req, h) }()
	h.await(t, "both to be ready", func() bool { return h.ready == 1 })
	h.await(t, "both to register", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.names) == 2
	})
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
