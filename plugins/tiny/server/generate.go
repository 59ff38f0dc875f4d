package server

import (
	"net/http"
	"strconv"
)

// generateRequest is what Atropos environments send: tokens in, tokens and log-probabilities out.
type generateRequest struct {
	params
	Prompt prompt `json:"prompt"`
}

// generateResponse lists, for each completion and position, the drawn token's log-probability by id.
type generateResponse struct {
	Text           []string                 `json:"text"`
	Prompt         string                   `json:"prompt"`
	TokenIDs       [][]int32                `json:"token_ids"`
	LogProbs       [][][]map[string]float64 `json:"logprobs"`
	Finish         []Finish                 `json:"finish_reasons"`
	PromptTokenIDs []int32                  `json:"prompt_token_ids"`
	PromptLogProbs []map[string]float64     `json:"prompt_logprobs,omitempty"`
	Version        int64                    `json:"policy_version"`
	VersionMax     int64                    `json:"policy_version_max"`
}

func (h *Handler) generate(w http.ResponseWriter, r *http.Request) error {
	var q generateRequest
	if err := readJSON(r, &q); err != nil {
		return err
	}
	if q.Stream {
		return badRequest("stream", "stream: /generate answers at once; stream with /v1/completions")
	}
	tokens, err := h.tokens(q.Prompt)
	if err != nil {
		return err
	}
	request, err := h.request(&q.params, tokens, 0)
	if err != nil {
		return err
	}
	out := generateResponse{PromptTokenIDs: tokens}
	if q.Prompt.text != nil {
		out.Prompt = *q.Prompt.text
	}
	if q.PromptLogProbs != nil {
		read, err := h.read(tokens, *q.PromptLogProbs)
		if err != nil {
			return err
		}
		for i, t := range read {
			if i == 0 {
				out.PromptLogProbs = append(out.PromptLogProbs, nil)
				continue
			}
			out.PromptLogProbs = append(out.PromptLogProbs, byID(t))
		}
	}
	results, err := h.engine.Generate(r.Context(), request)
	if err != nil {
		return err
	}
	out.Version, out.VersionMax = h.versions(results)
	for _, c := range results {
		positions := [][]map[string]float64{}
		for _, t := range c.Tokens {
			positions = append(positions, []map[string]float64{{strconv.Itoa(int(t.ID)): t.LogProb}})
		}
		out.Text, out.TokenIDs = append(out.Text, c.Text), append(out.TokenIDs, ids(c.Tokens))
		out.LogProbs, out.Finish = append(out.LogProbs, positions), append(out.Finish, c.Finish)
	}
	writeJSON(w, out)
	return nil
}

func byID(t Token) map[string]float64 {
	out := map[string]float64{strconv.Itoa(int(t.ID)): t.LogProb}
	for _, a := range t.Alternatives {
		out[strconv.Itoa(int(a.ID))] = a.LogProb
	}
	return out
}
