package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/outputs"
)

// scripted is an engine that answers as a competent model would: it calls the tool for a shell, or writes code, and
// then gives the result. A token is a byte. The result is right in every second conversation.
type scripted struct {
	*inference.Local
	begun atomic.Int64 // conversations
	asked *asked
}

// asked are the prompts that the scripted model has got.
type asked struct {
	mu      sync.Mutex
	prompts []string
}

func (a *asked) add(prompt string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.prompts = append(a.prompts, prompt)
}

// take returns the prompts since the last call.
func (a *asked) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.prompts
	a.prompts = nil
	return out
}

type noConfig struct{}

const scriptedContext = 1 << 19

var _ inference.Plugin[noConfig] = (*scripted)(nil)

func newScripted(prompts *asked) *sdk.Definition {
	return inference.New("scripted", "A scripted model.",
		func() inference.Plugin[noConfig] { return &scripted{asked: prompts} },
		sdk.WithOutputs(outputs.Inference{}))
}

func (s *scripted) Start(context.Context, sdk.Request[noConfig], inference.Host) (_ inference.Engine, err error) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tokenize", s.tokenize)
	mux.HandleFunc("POST /v1/completions", s.complete)
	s.Local, err = inference.ServeLocal(mux)
	return s, err
}

func (s *scripted) Replicas() []inference.Replica {
	return []inference.Replica{{ID: "0", URL: s.URL()}}
}

func (s *scripted) Outputs() any {
	return outputs.Inference{Model: "scripted", Tokenizer: "scripted", MaxModelLen: scriptedContext}
}

func (s *scripted) Load(context.Context, sdk.Weights) error { return nil }

func (s *scripted) Logprobs(_ context.Context, _ inference.Replica, tokens []int) ([]float64, error) {
	return make([]float64, len(tokens)-1), nil
}

// tokenize renders a conversation as Qwen's template does, in bytes.
func (s *scripted) tokenize(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Messages []struct {
			Role    string `json:"role"`
			Content any    `json:"content"`
			Calls   any    `json:"tool_calls"`
		} `json:"messages"`
		Tools json.RawMessage `json:"tools"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var b strings.Builder
	if len(q.Tools) > 0 {
		fmt.Fprintf(&b, "<tools>%s</tools>", q.Tools)
	}
	for _, m := range q.Messages {
		fmt.Fprintf(&b, "<|im_start|>%s\n%v", m.Role, m.Content)
		if m.Calls != nil {
			calls, _ := json.Marshal(m.Calls)
			b.Write(calls)
		}
		b.WriteString("<|im_end|>\n")
	}
	b.WriteString("<|im_start|>assistant\n")
	answer(w, map[string]any{"tokens": bytesOf(b.String()), "max_model_len": scriptedContext})
}

func (s *scripted) complete(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Prompt []int `json:"prompt"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	text := make([]byte, len(q.Prompt))
	for i, id := range q.Prompt {
		text[i] = byte(id)
	}
	s.asked.add(string(text))
	said := s.say(string(text))
	ids := bytesOf(said + "<|im_end|>")
	logprobs := make([]float64, len(ids))
	names := make([]string, len(ids))
	for i := range ids {
		logprobs[i], names[i] = -0.5, fmt.Sprintf("token_id:%d", ids[i])
	}
	answer(w, map[string]any{"id": "1", "object": "text_completion", "model": "scripted", "prompt_token_ids": q.Prompt,
		"choices": []any{map[string]any{"index": 0, "text": said, "finish_reason": "stop", "stop_reason": nil,
			"token_ids": ids, "prompt_token_ids": q.Prompt,
			"logprobs": map[string]any{"tokens": names, "token_logprobs": logprobs}}}})
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func bytesOf(text string) []int {
	ids := make([]int, len(text))
	for i := range len(text) {
		ids[i] = int(text[i])
	}
	return ids
}

// tool is a function that an agent offers, in either form of OpenAI's.
type tool struct {
	Function struct {
		Name       string `json:"name"`
		Parameters struct {
			Properties map[string]struct {
				Type any `json:"type"`
			} `json:"properties"`
			Required []string `json:"required"`
		} `json:"parameters"`
	} `json:"function"`
}

var (
	offered = regexp.MustCompile(`(?s)^<tools>(.*?)</tools>`)
	shells  = []string{"Bash", "bash", "shell", "shell_command", "exec_command", "add"}
)

// say is the answer to a conversation: a call of a tool first, then the result.
func (s *scripted) say(prompt string) string {
	_, last, _ := cutLast(prompt, "<|im_start|>user\n")
	done := strings.Contains(last, "<|im_start|>tool") || strings.Contains(last, "Observation:")
	begun := s.begun.Load()
	if !done {
		begun = s.begun.Add(1)
	}
	result := []string{"7", "8"}[begun%2]
	var tools []tool
	if m := offered.FindStringSubmatch(prompt); m != nil {
		_ = json.Unmarshal([]byte(m[1]), &tools)
	}
	const submit = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" // of mini-swe-agent
	at := slices.IndexFunc(tools, func(t tool) bool { return slices.Contains(shells, t.Function.Name) })
	switch {
	case at >= 0 && !done:
		return call(tools[at], "echo "+result+" > answer.txt")
	case at >= 0 && strings.Contains(prompt, submit):
		return call(tools[at], "echo "+submit)
	case strings.Contains(prompt, "final_answer(") && !done: // smolagents
		return "Thought: a tool.\n<code>\nprint(bash(\"echo " + result + " > answer.txt\"))\n</code>"
	case strings.Contains(prompt, "final_answer("):
		return "Thought: easy.\n<code>\nfinal_answer(" + result + ")\n</code>"
	}
	return "The answer is " + result + "."
}

func cutLast(text, sep string) (before, after string, found bool) {
	at := strings.LastIndex(text, sep)
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+len(sep):], true
}

// call is a call of a tool for a shell, or of one that adds numbers, as its parameters want it.
func call(t tool, command string) string {
	arguments := map[string]any{}
	for _, name := range t.Function.Parameters.Required {
		switch kind := t.Function.Parameters.Properties[name].Type; {
		case kind == "array":
			arguments[name] = []string{"bash", "-c", command}
		case kind == "integer" || kind == "number":
			arguments[name] = 2
		default:
			arguments[name] = command
		}
	}
	text, _ := json.Marshal(map[string]any{"name": t.Function.Name, "arguments": arguments})
	return "<tool_call>\n" + string(text) + "\n</tool_call>"
}
