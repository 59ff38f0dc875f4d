package gateway

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"
	"sync"
)

// Record is what the gateway knows about one completion.
type Record struct {
	PromptTokens int       `json:"prompt_tokens"`      // how many of the looked-up tokens are the prompt
	Output       []int32   `json:"output"`             // token ids of the completion, end-of-sequence token included
	Logprobs     []float32 `json:"logprobs"`           // one per token of Output, from the engine
	Version      int       `json:"policy_version"`     // oldest policy version that may have sampled it
	VersionMax   int       `json:"policy_version_max"` // newest
	Copies       int       `json:"copies"`             // how often this very completion was sampled

	// Versions says which version sampled which token of Output, where that is known and there may have been several: from
	// the engine, or from the times at which its tokens came in a stream; then it is the oldest version that may have
	// sampled the token.
	Versions []VersionSpan `json:"policy_versions,omitempty"`
}

// sameLogprobs is the difference below which two log-probabilities of the same token by the same weights count as
// equal: batches of different sizes round differently.
const sameLogprobs = 1e-2

// records holds the latest completions, bounded by their tokens.
type records struct {
	mu     sync.Mutex
	seed   maphash.Seed
	limit  int // tokens
	tokens int // held
	bySum  map[uint64][]*entry
	first  *entry // oldest
	last   *entry // newest
}

type entry struct {
	Record
	sum  uint64
	next *entry
}

func newRecords(limit int) *records {
	return &records{seed: maphash.MakeSeed(), limit: limit, bySum: map[uint64][]*entry{}}
}

// add records a completion. Sampling the same tokens again from the same weights is the same record.
func (s *records) add(prompt []int32, r Record) {
	h := maphash.Hash{}
	h.SetSeed(s.seed)
	writeIDs(&h, prompt)
	writeIDs(&h, r.Output)
	sum := h.Sum64()
	r.PromptTokens, r.Copies = len(prompt), 1
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.bySum[sum] {
		if e.same(r) {
			e.Copies++
			return
		}
	}
	e := &entry{Record: r, sum: sum}
	s.bySum[sum] = append(s.bySum[sum], e)
	if s.last == nil {
		s.first = e
	} else {
		s.last.next = e
	}
	s.last = e
	s.tokens += weight(e)
	for s.tokens > s.limit && s.first != e {
		s.drop()
	}
}

// weight counts a completion's tokens, and a constant for the record itself so that empty ones are bounded, too.
func weight(e *entry) int { return len(e.Output) + 16 }

// drop deletes the oldest completion.
func (s *records) drop() {
	e := s.first
	s.first = e.next
	s.tokens -= weight(e)
	list := s.bySum[e.sum]
	for i := range list {
		if list[i] == e {
			list = append(list[:i:i], list[i+1:]...)
			break
		}
	}
	if len(list) == 0 {
		delete(s.bySum, e.sum)
		return
	}
	s.bySum[e.sum] = list
}

// same reports that r is e sampled again: same split, versions, tokens, and log-probabilities up to rounding.
func (e *entry) same(r Record) bool {
	if e.PromptTokens != r.PromptTokens || e.Version != r.Version || e.VersionMax != r.VersionMax ||
		len(e.Output) != len(r.Output) {
		return false
	}
	for i := range r.Output {
		if e.Output[i] != r.Output[i] || math.Abs(float64(e.Logprobs[i]-r.Logprobs[i])) > sameLogprobs {
			return false
		}
	}
	return true
}

// lookup finds the completions whose prompt and output together are these tokens.
func (s *records) lookup(tokens []int32) (r Record, found, ambiguous bool) {
	h := maphash.Hash{}
	h.SetSeed(s.seed)
	writeIDs(&h, tokens)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.bySum[h.Sum64()] {
		if !e.endsWith(tokens) {
			continue
		}
		if found {
			return Record{}, false, true
		}
		r, found = e.Record, true
	}
	return r, found, false
}

func (e *entry) endsWith(tokens []int32) bool {
	if e.PromptTokens+len(e.Output) != len(tokens) {
		return false
	}
	for i, id := range e.Output {
		if tokens[e.PromptTokens+i] != id {
			return false
		}
	}
	return true
}

func writeIDs(h *maphash.Hash, ids []int32) {
	var buf [512]byte
	for len(ids) > 0 {
		n := min(len(ids), len(buf)/4)
		for i, id := range ids[:n] {
			binary.LittleEndian.PutUint32(buf[4*i:], uint32(id))
		}
		_, _ = h.Write(buf[:4*n]) // a hash never fails
		ids = ids[n:]
	}
}

// Lookup returns the completion whose prompt and output, put together, are exactly these tokens. It is not found if
// there is none, or if there are several that differ (ambiguous): sampled by different versions, or split differently
// into prompt and output. Of a conversation of several turns, each turn's completion is found by the tokens up to that
// turn's end.
func (g *Gateway) Lookup(tokens []int) (r Record, found, ambiguous bool) {
	ids := make([]int32, len(tokens))
	for i, t := range tokens {
		if t < 0 || t > math.MaxInt32 {
			return Record{}, false, false
		}
		ids[i] = int32(t)
	}
	return g.records.lookup(ids)
}

// keep records the choices that are complete.
func (g *Gateway) keep(c *call, choices []choice, low, high int) {
	for i := range choices {
		ch := &choices[i]
		prompt := ch.promptIDs
		if prompt == nil {
			prompt = c.promptIDs
		}
		if prompt == nil || len(ch.ids) == 0 || len(ch.logprobs) != len(ch.ids) {
			continue
		}
		logprobs, err := ch.floats()
		if err != nil {
			continue
		}
		r := Record{Output: slices.Clone(ch.ids), // without spare capacity from parsing
			Logprobs: logprobs, Version: low, VersionMax: high}
		if len(ch.spans) > 1 || low != high { // the range is less exact, also for a single span
			r.Versions = ch.spans
		}
		g.records.add(prompt, r)
		g.met.recorded.Add(1)
	}
}
