package session

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
)

// Query is what a program asks, in any dialect.
type Query struct {
	Request
	Raw       []json.RawMessage // the messages in the form of Chat Completions, for the engine's chat template
	Model     string
	Stream    bool
	Usage     bool     // a stream of Chat Completions ends with an event that has the usage
	MaxTokens int      // 0: as many as fit
	Stop      []string // texts that end the answer
	Overruled []string // sampling parameters that the program sets, which the session's overrule
	Thinking  bool     // Anthropic's Messages: the program reads reasoning

	Constraint *Constraint // nil: none
}

// Rest stands for what decides an answer besides the conversation.
type Rest [8]byte

// Rest is that of the query.
func (q *Query) Rest() (r Rest) {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%d %q", q.MaxTokens, q.Stop) // a hash never fails
	if q.Constraint != nil {
		_, _ = fmt.Fprintf(h, " %t %s", q.Constraint.Calls, q.Constraint.Format)
	}
	copy(r[:], h.Sum(nil))
	return r
}

// sampling are the parameters of a request that decide what is sampled. A policy is trained on its own distribution, so
// the session's count, not the program's.
var sampling = map[string]bool{
	"temperature": true, "top_p": true, "top_k": true, "min_p": true, "presence_penalty": true, "frequency_penalty": true,
	"repetition_penalty": true, "logit_bias": true, "seed": true, "min_tokens": true,
}

// overruled are the sampling parameters that a request sets.
func overruled(fields map[string]json.RawMessage) []string {
	var out []string
	for name := range sampling {
		if !null(fields[name]) {
			out = append(out, name)
		}
	}
	return out
}

func null(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// stops reads one text or a list of them.
func stops(raw json.RawMessage) ([]string, error) {
	var one string
	var list []string
	switch {
	case null(raw):
	case json.Unmarshal(raw, &one) == nil:
		list = []string{one}
	case json.Unmarshal(raw, &list) != nil:
		return nil, errors.New("stop: want a text or a list of texts")
	}
	return fewStops("stop", list)
}

// fewStops refuses what would keep an engine busy after each token.
func fewStops(name string, list []string) ([]string, error) {
	if len(list) > maxStops {
		return nil, fmt.Errorf("%s: a session takes at most %d texts, got %d", name, maxStops, len(list))
	}
	for _, text := range list {
		if len(text) > maxStopBytes {
			return nil, fmt.Errorf("%s: a session takes texts of at most %d bytes, got one of %d", name, maxStopBytes,
				len(text))
		}
	}
	return list, nil
}

// Reply is the answer to a query.
type Reply struct {
	ID, Model      string
	Created        int64 // Unix seconds
	Answer         Message
	Finish         string
	Prompt, Output int  // tokens
	Thinking       bool // Anthropic's Messages: the program reads reasoning
}

func encode(v any) []byte {
	out, err := json.Marshal(v)
	if err != nil {
		panic("session: an answer always has a JSON form: " + err.Error())
	}
	return out
}
