package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

// response is a whole answer of /v1/completions or /v1/chat/completions.
type response struct {
	ID             string   `json:"id"`
	Object         string   `json:"object"`
	Created        int64    `json:"created"`
	Model          string   `json:"model"`
	Version        int64    `json:"policy_version"`     // oldest that drew a token
	VersionMax     int64    `json:"policy_version_max"` // newest
	Choices        []choice `json:"choices"`
	PromptTokenIDs []int32  `json:"prompt_token_ids,omitempty"` // chat; completions have it in each choice
	Usage          *usage   `json:"usage,omitempty"`
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

// choice is one completion; which of text, message and delta it has depends on the route.
type choice struct {
	Index          int        `json:"index"`
	Text           *string    `json:"text,omitempty"`
	Message        *message   `json:"message,omitempty"`
	Delta          *message   `json:"delta,omitempty"`
	LogProbs       any        `json:"logprobs"`
	Finish         *Finish    `json:"finish_reason"`
	Stop           *string    `json:"stop_reason,omitempty"`
	TokenIDs       []int32    `json:"token_ids,omitempty"`
	PromptTokenIDs []int32    `json:"prompt_token_ids,omitempty"`
	PromptLogProbs []position `json:"prompt_logprobs,omitempty"`
}

// position maps token ids to what vLLM says about them; the first of a prompt is null.
type position map[string]promptLogProb

type promptLogProb struct {
	LogProb float64 `json:"logprob"`
	Rank    int     `json:"rank"`
	Token   string  `json:"decoded_token"`
}

// completionLogProbs is the "logprobs" of /v1/completions.
type completionLogProbs struct {
	Tokens  []string             `json:"tokens"`
	Values  []*float64           `json:"token_logprobs"`
	Top     []map[string]float64 `json:"top_logprobs"`
	Offsets []int                `json:"text_offset"`
}

type completionsRequest struct {
	params
	Prompt   prompt `json:"prompt"`
	LogProbs *int   `json:"logprobs"`
	Echo     bool   `json:"echo"`
}

// completionsDefault is OpenAI's default for max_tokens.
const completionsDefault = 16

func (h *Handler) completions(w http.ResponseWriter, r *http.Request) error {
	var q completionsRequest
	if err := readJSON(r, &q); err != nil {
		return err
	}
	ids, err := h.tokens(q.Prompt)
	if err != nil {
		return err
	}
	scoreOnly := q.MaxTokens != nil && *q.MaxTokens == 0 && (q.Echo || q.PromptLogProbs != nil)
	if scoreOnly {
		q.MaxTokens = nil
	}
	request, err := h.request(&q.params, ids, completionsDefault)
	if err != nil {
		return err
	}
	if q.LogProbs != nil {
		if err := request.setAlternatives("logprobs", *q.LogProbs); err != nil {
			return err
		}
	}
	f := &completionsForm{handler: h, query: &q, prompt: ids}
	if q.Stream {
		if q.Echo || q.PromptLogProbs != nil {
			return badRequest("stream", "stream: echo and prompt_logprobs come with a whole answer only; leave stream out")
		}
		return h.stream(w, r, request, f, q.Options.Usage)
	}
	results := []Completion{{Finish: FinishLength}}
	if !scoreOnly {
		if results, err = h.engine.Generate(r.Context(), request); err != nil {
			return err
		}
	}
	return h.answer(w, f, request, results)
}

// form turns results into what one route answers.
type form interface {
	object(stream bool) string
	idPrefix() string
	choice(i int, c Completion) (choice, error)
	chunk(p Progress, text string, first bool) choice
	// head is what stands beside the choices: the token ids of the prompt, or nothing.
	head() []int32
}

func (h *Handler) answer(w http.ResponseWriter, f form, request Request, results []Completion) error {
	out := response{ID: h.nextID(f.idPrefix()), Object: f.object(false), Created: time.Now().Unix(),
		Model: h.options.Model, Usage: &usage{Prompt: len(request.Prompt)}}
	out.Version, out.VersionMax = h.versions(results)
	for i, c := range results {
		ch, err := f.choice(i, c)
		if err != nil {
			return err
		}
		out.Choices = append(out.Choices, ch)
		out.Usage.Completion += len(c.Tokens)
	}
	out.Usage.Total = out.Usage.Prompt + out.Usage.Completion
	out.PromptTokenIDs = f.head()
	writeJSON(w, out)
	return nil
}

// versions are the oldest and the newest policy that drew any of the tokens.
func (h *Handler) versions(results []Completion) (low, high int64) {
	low = h.engine.Policy().Version
	for i, c := range results {
		if len(c.Tokens) == 0 {
			return low, low
		}
		if i == 0 {
			low, high = c.First, c.Last
		}
		low, high = min(low, c.First), max(high, c.Last)
	}
	return low, high
}

// completionsForm is the form of /v1/completions.
type completionsForm struct {
	handler *Handler
	query   *completionsRequest
	prompt  []int32
	offsets map[int]int // streaming: where each choice's next token begins
}

func (f *completionsForm) object(bool) string { return "text_completion" }
func (f *completionsForm) idPrefix() string   { return "cmpl-" }
func (f *completionsForm) head() []int32      { return nil }

func (f *completionsForm) choice(i int, c Completion) (choice, error) {
	out := choice{Index: i, Text: &c.Text, Finish: &c.Finish}
	if c.Stop != "" {
		out.Stop = &c.Stop
	}
	if f.query.TokenIDs {
		out.TokenIDs, out.PromptTokenIDs = ids(c.Tokens), f.prompt
	}
	var promptTokens []Token
	if f.query.Echo || f.query.PromptLogProbs != nil {
		var err error
		if promptTokens, err = f.handler.read(f.prompt, given(f.query.PromptLogProbs, 0)); err != nil {
			return out, err
		}
	}
	if f.query.PromptLogProbs != nil {
		out.PromptLogProbs = f.handler.positions(promptTokens)
	}
	tokens, known := c.Tokens, 0
	if f.query.Echo {
		text := f.handler.engine.Tokenizer().Decode(f.prompt) + c.Text
		out.Text = &text
		tokens, known = append(promptTokens, tokens...), 1
	}
	if f.query.LogProbs != nil {
		out.LogProbs = f.logProbs(tokens, known, 0)
	}
	return out, nil
}

func (f *completionsForm) chunk(p Progress, text string, _ bool) choice {
	out := choice{Index: p.Index, Text: &text}
	if f.query.TokenIDs {
		out.TokenIDs = []int32{p.Token.ID}
	}
	if f.query.LogProbs != nil {
		if f.offsets == nil {
			f.offsets = map[int]int{}
		}
		out.LogProbs = f.logProbs([]Token{p.Token}, 0, f.offsets[p.Index])
		f.offsets[p.Index] += len(f.handler.engine.Tokenizer().Decode([]int32{p.Token.ID}))
	}
	return out
}

// logProbs leaves the values of the first unknown tokens null.
func (f *completionsForm) logProbs(tokens []Token, unknown, offset int) *completionLogProbs {
	out := &completionLogProbs{Tokens: []string{}, Values: []*float64{}, Top: []map[string]float64{}, Offsets: []int{}}
	for i, t := range tokens {
		out.Tokens = append(out.Tokens, f.handler.name(t.ID, f.query.TokensAsTokenIDs))
		out.Offsets = append(out.Offsets, offset)
		offset += len(f.handler.engine.Tokenizer().Decode([]int32{t.ID}))
		if i < unknown {
			out.Values, out.Top = append(out.Values, nil), append(out.Top, nil)
			continue
		}
		out.Values = append(out.Values, &t.LogProb)
		top := map[string]float64{f.handler.name(t.ID, f.query.TokensAsTokenIDs): t.LogProb}
		for _, a := range t.Alternatives {
			top[f.handler.name(a.ID, f.query.TokensAsTokenIDs)] = a.LogProb
		}
		out.Top = append(out.Top, top)
	}
	return out
}

// name is how a token appears in log-probabilities.
func (h *Handler) name(id int32, asID bool) string {
	if asID {
		return "token_id:" + strconv.Itoa(int(id))
	}
	return h.engine.Tokenizer().Name(id)
}

// read looks at given tokens as if they had been drawn; the first has no log-probability.
func (h *Handler) read(tokens []int32, alternativesWanted int) ([]Token, error) {
	if alternativesWanted > maxAlternatives {
		return nil, badRequest("prompt_logprobs", "prompt_logprobs: want at most %d, got %d", maxAlternatives,
			alternativesWanted)
	}
	var a lm.Activations
	h.engine.Policy().Params.Forward(&a, [][]int32{tokens})
	out := []Token{{ID: tokens[0]}}
	for i, id := range tokens[1:] {
		logits := a.Logits(0, i)
		out = append(out, Token{id, lm.LogProb(logits, id), alternatives(logits, alternativesWanted)})
	}
	return out, nil
}

func (h *Handler) positions(tokens []Token) []position {
	out := []position{nil}
	for _, t := range tokens[1:] {
		p := position{}
		rank := len(t.Alternatives) + 1 // not among the alternatives: at least this
		for i, a := range t.Alternatives {
			p[strconv.Itoa(int(a.ID))] = promptLogProb{a.LogProb, i + 1, h.name(a.ID, false)}
			if a.ID == t.ID {
				rank = i + 1
			}
		}
		p[strconv.Itoa(int(t.ID))] = promptLogProb{t.LogProb, rank, h.name(t.ID, false)}
		out = append(out, p)
	}
	return out
}

func ids(tokens []Token) []int32 {
	out := make([]int32, len(tokens))
	for i, t := range tokens {
		out[i] = t.ID
	}
	return out
}
