package server

import (
	"encoding/json"
	"net/http"
)

type tokenizeRequest struct {
	Prompt   *string         `json:"prompt"`
	Messages []message       `json:"messages"`
	Tools    json.RawMessage `json:"tools"`
}

// tokenize answers as vLLM's route of that name.
func (h *Handler) tokenize(w http.ResponseWriter, r *http.Request) error {
	var q tokenizeRequest
	if err := readJSON(r, &q); err != nil {
		return err
	}
	var text string
	switch {
	case q.Prompt != nil:
		text = *q.Prompt
	case len(q.Messages) > 0:
		var err error
		if text, err = flatten(q.Messages, q.Tools); err != nil {
			return err
		}
	default:
		return badRequest("prompt", "want prompt or messages, got neither")
	}
	tokens, err := h.engine.Tokenizer().Encode(text)
	if err != nil {
		return badRequest("prompt", "prompt: %v", err)
	}
	writeJSON(w, map[string]any{"tokens": tokens, "count": len(tokens), "max_model_len": h.engine.Config().Context})
	return nil
}

type detokenizeRequest struct {
	Tokens []int32 `json:"tokens"`
}

func (h *Handler) detokenize(w http.ResponseWriter, r *http.Request) error {
	var q detokenizeRequest
	if err := readJSON(r, &q); err != nil {
		return err
	}
	for i, t := range q.Tokens {
		if t < 0 || int(t) >= h.engine.Config().Inputs() {
			return badRequest("tokens", "tokens: want ids from 0 to %d, got %d at position %d", h.engine.Config().Inputs()-1,
				t, i)
		}
	}
	writeJSON(w, map[string]string{"prompt": h.engine.Tokenizer().Decode(q.Tokens)})
	return nil
}

type logProbsRequest struct {
	TokenIDs []int32 `json:"token_ids"`
}

// logProbs describes how likely the served weights find a given sequence: compared with the trainer's
// numbers it verifies that a weight update arrived. The first token has nothing before it and is 0.
func (h *Handler) logProbs(w http.ResponseWriter, r *http.Request) error {
	var q logProbsRequest
	if err := readJSON(r, &q); err != nil {
		return err
	}
	values, version, err := h.engine.LogProbs(q.TokenIDs)
	if err != nil {
		return badRequest("token_ids", "token_ids: %v", err)
	}
	writeJSON(w, map[string]any{"logprobs": values, "policy_version": version})
	return nil
}
