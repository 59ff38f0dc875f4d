package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"unicode/utf8"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

const (
	maxN            = 1024
	maxAlternatives = 20
	maxStops        = 16
	// tokens of an answer whose request names no limit: a model this small seldom ends by itself
	longestByDefault = 1024
)

// params are the fields that all routes which sample have in common.
type params struct {
	Model       string     `json:"model"`
	N           *int       `json:"n"`
	MaxTokens   *int       `json:"max_tokens"`
	Temperature *float64   `json:"temperature"`
	TopP        *float64   `json:"top_p"`
	TopK        *int       `json:"top_k"` // -1, as vLLM has it: all tokens
	MinP        *float64   `json:"min_p"`
	Stop        stringList `json:"stop"`
	Seed        *int64     `json:"seed"`
	Stream      bool       `json:"stream"`
	Options     struct {
		Usage bool `json:"include_usage"`
	} `json:"stream_options"`
	PromptLogProbs   *int `json:"prompt_logprobs"`
	TokenIDs         bool `json:"return_token_ids"`
	TokensAsTokenIDs bool `json:"return_tokens_as_token_ids"`

	unsupported
}

// unsupported are fields that would change what is sampled. Ignoring them would be a lie, so a
// value that has an effect is refused.
type unsupported struct {
	Presence          *float64        `json:"presence_penalty"`
	Frequency         *float64        `json:"frequency_penalty"`
	Repetition        *float64        `json:"repetition_penalty"`
	BestOf            *float64        `json:"best_of"`
	MinTokens         *float64        `json:"min_tokens"`
	BeamSearch        bool            `json:"use_beam_search"`
	IgnoreEnd         bool            `json:"ignore_eos"`
	LogitBias         map[string]any  `json:"logit_bias"`
	Suffix            string          `json:"suffix"`
	StructuredOutputs json.RawMessage `json:"structured_outputs"`
	StopTokens        []int           `json:"stop_token_ids"`
	ResponseFormat    struct {
		Type string `json:"type"`
	} `json:"response_format"`
}

func (u *unsupported) check(n int) error {
	number := func(v *float64, neutral ...float64) bool {
		if v == nil {
			return false
		}
		for _, x := range neutral {
			if *v == x {
				return false
			}
		}
		return true
	}
	for name, set := range map[string]bool{
		"presence_penalty":  number(u.Presence, 0),
		"frequency_penalty": number(u.Frequency, 0), "repetition_penalty": number(u.Repetition, 1),
		"best_of": number(u.BestOf, 1, float64(n)), "min_tokens": number(u.MinTokens, 0), "use_beam_search": u.BeamSearch,
		"ignore_eos": u.IgnoreEnd, "logit_bias": len(u.LogitBias) > 0, "suffix": u.Suffix != "",
		"structured_outputs": len(u.StructuredOutputs) > 0 && string(u.StructuredOutputs) != "null",
		"stop_token_ids":     len(u.StopTokens) > 0,
		"response_format":    u.ResponseFormat.Type != "" && u.ResponseFormat.Type != "text",
	} {
		if set {
			return badRequest(name, "%s is not offered by the embedded model; leave it out or use a vllm inference block", name)
		}
	}
	return nil
}

// stringList is a JSON string or a list of them.
type stringList []string

func (l *stringList) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*l = nil
		if string(data) != "null" {
			*l = stringList{one}
		}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(l))
}

// request checks the common fields and makes an engine request of them. defaultMax of 0 means all
// the room that the context has.
func (h *Handler) request(p *params, prompt []int32, defaultMax int) (Request, error) {
	if p.Model != "" && p.Model != h.options.Model {
		return Request{}, &httpError{http.StatusNotFound, "not_found_error", "model",
			fmt.Sprintf("the model %q is not served here, only %q", p.Model, h.options.Model)}
	}
	config := h.engine.Config()
	if err := config.CheckTokens(prompt); err != nil {
		return Request{}, badRequest("prompt", "prompt: %v", err)
	}
	room := config.Context - len(prompt)
	if defaultMax == 0 {
		defaultMax = longestByDefault
	}
	defaultMax = min(defaultMax, room)
	r := Request{
		Prompt: prompt, N: given(p.N, 1), MaxTokens: given(p.MaxTokens, defaultMax), Stop: p.Stop,
		Sampling: lm.Sampling{Temperature: given(p.Temperature, 1), TopP: given(p.TopP, 1), MinP: given(p.MinP, 0)},
	}
	if k := given(p.TopK, 0); k != -1 {
		r.Sampling.TopK = k
	}
	if p.Seed != nil {
		seed := uint64(*p.Seed)
		r.Seed = &seed
	}
	switch {
	case r.N < 1 || r.N > maxN:
		return r, badRequest("n", "n: want 1 to %d, got %d", maxN, r.N)
	case room < 1:
		return r, badRequest("prompt", "prompt: its %d tokens fill the model's context of %d and leave no room to answer",
			len(prompt), config.Context)
	case r.MaxTokens < 1 || r.MaxTokens > room:
		return r,
			badRequest("max_tokens",
				"max_tokens: the prompt has %d of the %d tokens of the model's context, so want 1 to %d, got %d", len(prompt),
				config.Context, room, r.MaxTokens)
	case len(r.Stop) > maxStops:
		return r, badRequest("stop", "stop: want at most %d texts, got %d", maxStops, len(r.Stop))
	}
	for _, s := range r.Stop {
		if s == "" || !utf8.ValidString(s) {
			return r, badRequest("stop", "stop: want non-empty texts, got %q", s)
		}
	}
	if err := r.Sampling.Validate(); err != nil {
		return r, badRequest("", "%v", err)
	}
	return r, p.check(r.N)
}

func given[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}
	return *v
}

// setAlternatives takes the number of alternatives a request wants at each position.
func (r *Request) setAlternatives(field string, n int) error {
	if n < 0 || n > maxAlternatives {
		return badRequest(field, "%s: want 0 to %d, got %d", field, maxAlternatives, n)
	}
	r.Alternatives = n
	return nil
}

// prompt is a text, token ids, vLLM's object around token ids, or a list with one of them.
type prompt struct {
	text *string
	ids  []int32
}

func (p *prompt) UnmarshalJSON(data []byte) error {
	var list []json.RawMessage
	if p.one(data) || json.Unmarshal(data, &list) == nil && len(list) == 1 && p.one(list[0]) {
		return nil
	}
	return badRequest("prompt",
		"prompt: want one text, one list of token ids, {\"prompt_token_ids\": [...]}, or a list with one of them; several "+
			"prompts are several requests")
}

// one reads a prompt that is in no list, and reports whether it is one.
func (p *prompt) one(data []byte) bool {
	var text *string // nil: null
	var ids []int32
	var object struct {
		IDs  []int32 `json:"prompt_token_ids"`
		Text *string `json:"prompt"`
	}
	switch {
	case json.Unmarshal(data, &text) == nil:
		p.text = text
	case json.Unmarshal(data, &ids) == nil:
		p.ids = ids
	case json.Unmarshal(data, &object) == nil && object.IDs != nil:
		p.ids = object.IDs
	case json.Unmarshal(data, &object) == nil && object.Text != nil:
		p.text = object.Text
	default:
		return false
	}
	return true
}

// tokens encodes the prompt; an empty text becomes the token that begins one.
func (h *Handler) tokens(p prompt) ([]int32, error) {
	switch {
	case p.ids != nil:
		return p.ids, nil
	case p.text == nil:
		return nil, badRequest("prompt", "prompt: want a text or token ids, got none")
	case *p.text == "":
		return []int32{lm.Beginning}, nil
	}
	ids, err := h.engine.Tokenizer().Encode(*p.text)
	if err != nil {
		return nil, badRequest("prompt", "prompt: %v", err)
	}
	return ids, nil
}
