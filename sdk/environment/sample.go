package environment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/bounded"
	"github.com/recipe-rl/recipe/internal/errorbody"
	"github.com/recipe-rl/recipe/internal/peer"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/proxy"
	"github.com/recipe-rl/recipe/sdk/trace"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// mostAnswer is how many bytes the completions of one request may have.
const mostAnswer = 1 << 30

// sampler asks an inference block for completions.
type sampler struct {
	base, model, key string
	control          string // of the gateway; empty: there is none
	name             string // of the environment, for the gateway's statistics
	http             *http.Client
	most             int64 // bytes of an answer
}

func newSampler(out outputs.Inference, name string, timeout time.Duration) *sampler {
	transport := &http.Transport{Proxy: proxy.Of, MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute}
	if out.ControlURL != "" { // else it is external, and may be another user's
		transport = peer.Transport(out.BaseURL, transport)
	}
	return &sampler{
		control: strings.TrimRight(out.ControlURL, "/"),
		base:    strings.TrimRight(out.BaseURL, "/"), model: out.Model, key: out.APIKey, name: name,
		http: &http.Client{Timeout: timeout, Transport: transport}, most: mostAnswer,
	}
}

// sampling is how completions are drawn.
type sampling struct {
	N           int64    `json:"n"`
	MaxTokens   int64    `json:"max_tokens"`
	Temperature float64  `json:"temperature"`
	TopP        float64  `json:"top_p"`
	TopK        *int64   `json:"top_k,omitempty"`
	MinP        *float64 `json:"min_p,omitempty"`
	Repetition  *float64 `json:"repetition_penalty,omitempty"`
	Stop        []string `json:"stop,omitempty"`
	Seed        *int64   `json:"seed,omitempty"` // nil: the server's own sequence of seeds
}

// sampling is how the completions of a block of this name are drawn.
func (s Settings) sampling(name string) sampling {
	p := sampling{N: s.GroupSize, MaxTokens: s.MaxTokens, Temperature: s.Temperature, TopP: s.TopP, TopK: s.TopK,
		MinP: s.MinP, Repetition: s.RepetitionPenalty, Stop: s.Stop}
	if s.RequestSeed != nil {
		seed := mix(*s.RequestSeed, []byte(name))
		p.Seed = &seed
	}
	return p
}

// greedy always takes the most likely token.
func (p sampling) greedy() sampling {
	p.Temperature, p.TopP, p.TopK, p.MinP = 0, 1, nil, nil
	return p
}

// sample holds the answers to one question.
type sample struct {
	prompt      []int
	completions []Completion
	versions    *trajectory.Versions // that sampled it; nil when the server does not say
	// of each completion's tokens; nil where one version sampled all or nobody says
	spans [][]trajectory.VersionSpan
}

// refusal is an answer of the server that no repetition changes.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the inference block refused the request (HTTP %d): %s", r.status, r.text)
}

// question is what the model is asked: one of text, tokens and messages.
type question struct {
	text     string
	tokens   []int // as they are: the server adds nothing
	messages []Message
	template Template
}

// asker samples the answers to a question; the sampler's draw, or that with repetitions.
type asker func(ctx context.Context, q question, p sampling) (*sample, error)

// draw samples the answers to one question.
func (s *sampler) draw(ctx context.Context, q question, p sampling) (*sample, error) {
	body := struct {
		Model    string    `json:"model"`
		Prompt   any       `json:"prompt,omitempty"`
		Messages []Message `json:"messages,omitempty"`
		sampling
		Logprobs any  `json:"logprobs"`
		TokenIDs bool `json:"return_token_ids"`
		conversation
	}{Model: s.model, Messages: q.messages, sampling: p, Logprobs: 0, TokenIDs: true}
	route := "/completions"
	switch {
	case q.messages != nil:
		route, body.Logprobs = "/chat/completions", true
		body.conversation = q.conversation()
	case q.tokens != nil:
		body.Prompt = q.tokens
	default:
		body.Prompt = q.text
	}
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode the request for completions: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+route, bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("ask for completions: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+s.key)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Recipe-Client", s.name)
	trace.Inject(ctx, request.Header.Set)
	response, err := s.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask for completions: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := bounded.ReadAll(response.Body, s.most)
	if errors.Is(err, bounded.ErrTooLarge) { // it is as large when it is asked for again
		return nil, &unscored{causes: []error{err}, text: fmt.Sprintf("the answer with %d completions has more than %d MiB: "+
			"lower group_size or max_tokens, if the inference block is no faulty one", p.N, s.most>>20)}
	}
	if err != nil {
		return nil, fmt.Errorf("read the completions: %w", err)
	}
	switch code := response.StatusCode; {
	case code == http.StatusOK:
	case code >= 400 && code < 500 && code != http.StatusTooManyRequests && code != http.StatusRequestTimeout:
		return nil, &refusal{code, errorbody.Text(answer)}
	default:
		return nil, fmt.Errorf("ask for completions: HTTP %d: %s", code, errorbody.Text(answer))
	}
	drawn, err := readSample(answer, int(p.N))
	if err == nil && q.tokens != nil && !slices.Equal(drawn.prompt, q.tokens) {
		return nil, fmt.Errorf("ask for completions: the prompt was %d token ids and the server read %d others, so what "+
			"would be trained is not what was sampled", len(q.tokens), len(drawn.prompt))
	}
	return drawn, err
}

// conversation are the members of a request for a chat completion that depend on its messages.
type conversation struct {
	Template
	ToolChoice string `json:"tool_choice,omitempty"`
	Continue   *bool  `json:"continue_final_message,omitempty"`
	Begin      *bool  `json:"add_generation_prompt,omitempty"`
}

// conversation has the model go on with a turn of its own that ends the messages, as TRL does, instead of beginning
// another one behind it. Tools stand in the prompt, and what the model answers stays the text that it is.
func (q question) conversation() conversation {
	c := conversation{Template: q.template}
	if c.Tools != nil {
		c.ToolChoice = "none"
	}
	if n := len(q.messages); n > 0 && q.messages[n-1].Role == "assistant" {
		yes, no := true, false
		c.Continue, c.Begin = &yes, &no
	}
	return c
}

func brief(text []byte) string {
	s := strings.TrimSpace(string(text))
	if len(s) > 500 {
		s = strings.ToValidUTF8(s[:500], "") + " …"
	}
	return s
}

// completionAnswer is what is read of an answer of /v1/completions or /v1/chat/completions.
type completionAnswer struct {
	PromptTokenIDs []int  `json:"prompt_token_ids"`
	Version        *int64 `json:"policy_version"`
	VersionMax     *int64 `json:"policy_version_max"`
	Choices        []struct {
		Text    string `json:"text"`
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
		Finish         string          `json:"finish_reason"`
		StopReason     any             `json:"stop_reason"`  // of vLLM: the stop text, or the id of a token
		Matched        any             `json:"matched_stop"` // of SGLang: the same
		TokenIDs       []int           `json:"token_ids"`
		PromptTokenIDs []int           `json:"prompt_token_ids"`
		Spans          json.RawMessage `json:"weight_versions"`
		Logprobs       *struct {
			Tokens        []string   `json:"tokens"`
			TokenLogprobs []*float64 `json:"token_logprobs"`
			Content       []struct {
				Token   string  `json:"token"`
				Logprob float64 `json:"logprob"`
			} `json:"content"`
		} `json:"logprobs"`
	} `json:"choices"`
}

// span is how vLLM says which of its weights, by their label, sampled which tokens.
type span struct {
	Version string `json:"version"`
	Start   int    `json:"start"`
	End     int    `json:"end"`
}

// spansOf reads what an engine says of each token of a completion; nil when that does not fit, or says nothing but one
// version.
func spansOf(text json.RawMessage, tokens int) []trajectory.VersionSpan {
	var list []span
	if len(text) == 0 || json.Unmarshal(text, &list) != nil {
		return nil
	}
	out := make([]trajectory.VersionSpan, 0, len(list))
	at := 0
	for _, s := range list {
		version, err := strconv.ParseInt(s.Version, 10, 64)
		if err != nil || s.Start != at || s.End <= at {
			return nil
		}
		out, at = append(out, trajectory.VersionSpan{Version: version, Start: s.Start, End: s.End}), s.End
	}
	if at != tokens || len(out) < 2 {
		return nil
	}
	return out
}

// readSample reads an answer and checks that it can be trained on: every token with its id and its log-probability.
func readSample(data []byte, want int) (*sample, error) {
	var a completionAnswer
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, fmt.Errorf("read the completions: %w", err)
	}
	if len(a.Choices) != want {
		return nil, fmt.Errorf("read the completions: asked for %d, got %d", want, len(a.Choices))
	}
	s := &sample{prompt: a.PromptTokenIDs}
	if a.Version != nil {
		s.versions = &trajectory.Versions{Min: *a.Version, Max: *a.Version}
		if a.VersionMax != nil {
			s.versions.Max = max(*a.Version, *a.VersionMax)
		}
	}
	for i, c := range a.Choices {
		out := Completion{Text: c.Text + c.Message.Content, Finish: c.Finish, Tokens: c.TokenIDs}
		for _, ended := range []any{c.StopReason, c.Matched} {
			if stop, ok := ended.(string); ok && !strings.HasSuffix(out.Text, stop) {
				out.Stop = stop
			}
		}
		var names []string
		if c.Logprobs != nil {
			names = c.Logprobs.Tokens
			for _, v := range c.Logprobs.TokenLogprobs {
				if v == nil {
					return nil, fmt.Errorf("read completion %d: a token has no log-probability", i)
				}
				out.Logprobs = append(out.Logprobs, *v)
			}
			for _, t := range c.Logprobs.Content {
				out.Logprobs = append(out.Logprobs, t.Logprob)
				names = append(names, t.Token)
			}
		}
		if out.Tokens == nil {
			out.Tokens = idsOf(names)
		}
		if len(out.Tokens) == 0 || len(out.Tokens) != len(out.Logprobs) {
			return nil, fmt.Errorf("read completion %d: %d token ids and %d log-probabilities; training needs both for every "+
				"token (does the server know return_token_ids?)", i, len(out.Tokens), len(out.Logprobs))
		}
		if s.prompt == nil {
			s.prompt = c.PromptTokenIDs
		}
		s.completions = append(s.completions, out)
		s.spans = append(s.spans, spansOf(c.Spans, len(out.Tokens)))
	}
	if len(s.prompt) == 0 {
		return nil, errors.New("read the completions: the answer has no prompt_token_ids, so the prompt cannot be " +
			"distinguished from the completion")
	}
	return s, nil
}

// idsOf reads names of the form token_id:7; nil when they are something else.
func idsOf(names []string) []int {
	ids := make([]int, len(names))
	for i, name := range names {
		digits, ok := strings.CutPrefix(name, "token_id:")
		id, err := strconv.Atoi(digits)
		if !ok || err != nil {
			return nil
		}
		ids[i] = id
	}
	return ids
}
