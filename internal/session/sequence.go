package session

import "encoding/json"

// Untrained is the mask of a token that is not trained, as cross-entropy losses have it.
const Untrained = -100

// Sequence is a way from a first call to a last one. The sequences of a session hold each sampled token that may be
// trained in exactly one of them unmasked.
type Sequence struct {
	Tokens   []int32       `json:"tokens"`
	Masks    []int32       `json:"masks"`    // Untrained, or the token itself
	Logprobs []float32     `json:"logprobs"` // of sampled tokens; 1 for the others, which no log-probability is
	Versions []VersionSpan `json:"versions"` // of the trained tokens
	Calls    []int         `json:"calls"`
	Kind     string        `json:"kind"`   // root: it trains the session's first call; else fork
	Finish   string        `json:"finish"` // of the last call
	Masked   []Masked      `json:"masked,omitempty"`
	// Messages are the conversation in the form of Chat Completions, the answers among them.
	Messages []json.RawMessage `json:"messages"`
}

// Masked is why sampled tokens are not trained.
type Masked struct {
	Start int    `json:"start"` // first token
	End   int    `json:"end"`   // token after the last
	Why   string `json:"why"`
}

// trainedElsewhere is why the tokens of a call that several sequences share are trained in the first of them only.
const trainedElsewhere = "trained in another sequence"

// Sequences are the ways through the tree, one to each call that none continues, in the order of the calls.
func (t *Tree) Sequences() []Sequence {
	continued := make([]bool, len(t.nodes))
	for _, n := range t.nodes {
		if n.parent >= 0 {
			continued[n.parent] = true
		}
	}
	superseded := t.superseded(continued)
	taken := make([]bool, len(t.nodes))
	var out []Sequence
	for last := range t.nodes {
		if continued[last] || superseded[last] { // all that it shares with others stands there
			continue
		}
		s := Sequence{Calls: t.path(last), Kind: "fork", Finish: t.nodes[last].Finish}
		if s.Calls[0] == 0 && !taken[0] {
			s.Kind = "root"
		}
		for _, i := range s.Calls {
			why := t.nodes[i].Masked
			switch {
			case taken[i]:
				why = trainedElsewhere
			case why == "" && !t.nodes[i].delivered:
				why = Undelivered
			}
			taken[i] = true
			s.add(&t.nodes[i].Call, why)
		}
		out = append(out, s)
	}
	return out
}

// superseded finds the calls whose request was sent again and whose answer led nowhere, while another answer to the
// same request was continued.
func (t *Tree) superseded(continued []bool) []bool {
	type spot struct {
		parent  int
		request Key
	}
	goesOn := map[spot]bool{}
	for i, n := range t.nodes {
		if continued[i] {
			goesOn[spot{n.parent, n.request}] = true
		}
	}
	out := make([]bool, len(t.nodes))
	for i, n := range t.nodes {
		out[i] = !continued[i] && goesOn[spot{n.parent, n.request}]
	}
	return out
}

// add appends a call. A reason keeps its sampled tokens from being trained.
func (s *Sequence) add(c *Call, why string) {
	for _, m := range c.Asked {
		s.Messages = append(s.Messages, m.chat())
	}
	s.Messages = append(s.Messages, c.Answer.chat())
	for _, id := range c.Prompt {
		s.Tokens, s.Masks, s.Logprobs = append(s.Tokens, id), append(s.Masks, Untrained), append(s.Logprobs, 1)
	}
	start := len(s.Tokens)
	s.Tokens = append(s.Tokens, c.Output...)
	if why != "" {
		for range c.Output {
			s.Masks, s.Logprobs = append(s.Masks, Untrained), append(s.Logprobs, 1)
		}
		if len(c.Output) > 0 {
			s.Masked = append(s.Masked, Masked{start, len(s.Tokens), why})
		}
		return
	}
	s.Masks = append(s.Masks, c.Output...)
	s.Logprobs = append(s.Logprobs, c.Logprobs...)
	for _, v := range c.Versions {
		s.Versions = append(s.Versions, VersionSpan{start + v.Start, start + v.End, v.Version})
	}
}

// Trained is how many tokens of a sequence are trained.
func (s *Sequence) Trained() int {
	n := 0
	for _, m := range s.Masks {
		if m != Untrained {
			n++
		}
	}
	return n
}
