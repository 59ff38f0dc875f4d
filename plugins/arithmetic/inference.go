package arithmetic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// asker asks an OpenAI-compatible server for completions.
type asker struct {
	http  *http.Client
	url   string
	key   string
	model string
}

func newAsker(o sdk.InferenceOutputs, connections int) *asker {
	return &asker{
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections, IdleConnTimeout: time.Minute}},
		url:  o.BaseURL + "/completions", key: o.APIKey, model: o.Model,
	}
}

func (a *asker) close() { a.http.CloseIdleConnections() }

// question is one request.
type question struct {
	Model       string  `json:"model"`
	Prompt      string  `json:"prompt"`
	N           int     `json:"n"`
	MaxTokens   int     `json:"max_tokens"`
	Temperature float64 `json:"temperature"`
	LogProbs    int     `json:"logprobs"`
	TokenIDs    bool    `json:"return_token_ids"`
}

// reply is the part of an answer that an environment needs.
type reply struct {
	Version    *int64  `json:"policy_version"`
	VersionMax *int64  `json:"policy_version_max"`
	PromptIDs  []int   `json:"prompt_token_ids"`
	Choices    []given `json:"choices"`
}

// given is one completion.
type given struct {
	Text      string `json:"text"`
	Finish    string `json:"finish_reason"`
	TokenIDs  []int  `json:"token_ids"`
	PromptIDs []int  `json:"prompt_token_ids"`
	LogProbs  *struct {
		Values []float64 `json:"token_logprobs"`
	} `json:"logprobs"`
}

// requestTimeout outlasts a gateway that holds requests during a restart of the engine behind it.
const requestTimeout = 10 * time.Minute

// maxReply bounds an answer; a group of a thousand short completions takes less than a megabyte.
const maxReply = 32 << 20

func (a *asker) ask(ctx context.Context, q question) (*reply, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	q.Model = a.model
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+a.key)
	answer, err := a.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("asking for completions: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxReply))
	if err != nil {
		return nil, fmt.Errorf("reading completions: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking for completions: status %d: %.300s", answer.StatusCode, data)
	}
	var out reply
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("reading completions: %w in %.200q", err, data)
	}
	return &out, out.check(q)
}

// check refuses answers that cannot be trained on, because something in between dropped a part.
func (r *reply) check(q question) error {
	if len(r.Choices) != q.N {
		return fmt.Errorf("asked for %d completions, got %d", q.N, len(r.Choices))
	}
	for i := range r.Choices {
		c := &r.Choices[i]
		if c.PromptIDs == nil {
			c.PromptIDs = r.PromptIDs
		}
		if len(c.PromptIDs) == 0 || len(c.TokenIDs) == 0 {
			return fmt.Errorf("completion %d comes without token ids: the inference server does not know return_token_ids", i)
		}
		if c.LogProbs == nil || len(c.LogProbs.Values) != len(c.TokenIDs) {
			return fmt.Errorf("completion %d has %d tokens and not as many log-probabilities", i, len(c.TokenIDs))
		}
	}
	return nil
}
