package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/recipe-rl/recipe/internal/session"
)

// errNoGap reports that the tokens between two answers cannot be found out.
var errNoGap = errors.New("the chat template does not show where an answer ends")

// heads are what a short conversation renders to up to its answer and with it, by what decides that: the tools, the
// variables of the template, and the roles of what follows. Programs choose all of these, so a head has a fixed size.
type heads struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]head
}

// head is the beginning of a list of tokens.
type head struct {
	length int
	sum    [sha256.Size]byte
}

func headOf(tokens []int32) head {
	h := head{length: len(tokens)}
	of := sha256.New()
	_ = binary.Write(of, binary.LittleEndian, tokens) // a hash never fails
	of.Sum(h.sum[:0])
	return h
}

// begins reports whether tokens begin with the head, and go on.
func (h head) begins(tokens []int32) bool {
	return h.length < len(tokens) && headOf(tokens[:h.length]) == h
}

// maxHeads bounds the heads that are kept; beyond, all are looked for again.
const maxHeads = 4096

// render returns the tokens that the engine gets after those that it had: all of them, or those between the answer of
// the call that this one continues and the next answer. limit is the engine's context.
//
// A template applied to the whole conversation would write what the model said in other tokens than it sampled. So the
// engine renders a short conversation whose answer is a digit, and the same with another digit: what both end with is
// what follows an answer. A template may refuse results of tools after an answer that calls none; then there is no gap.
func (s *sessionCall) render(ctx context.Context, p session.Place, last int32) ([]int32, int, error) {
	tail := s.q.Raw[len(s.q.Raw)-len(p.Tail):]
	if p.Parent < 0 {
		return s.tokenize(ctx, tail)
	}
	first, limit, err := s.withDigit(ctx, 0, tail)
	if err != nil {
		return nil, 0, err
	}
	length, err := s.head(ctx, first, p.Tail, tail)
	if err != nil {
		return nil, 0, err
	}
	gap := first[length:]
	if len(gap) > 0 && gap[0] == last { // the model has ended its turn itself
		gap = gap[1:]
	}
	if len(gap) == 0 {
		return nil, 0, errNoGap
	}
	return gap, limit, nil
}

// head is how many tokens of a rendered conversation come up to the digit and with it. Where the digit is depends on
// nothing but the roles of what follows, so the other digit is rendered once for each.
func (s *sessionCall) head(ctx context.Context, first []int32, after []session.Message, tail []json.RawMessage) (
	int, error) {
	h, of := &s.g.heads, sha256.New()
	_, _ = fmt.Fprintf(of, "%d %s %d %s", len(s.q.Tools), s.q.Tools, len(s.q.Variables), s.q.Variables) // never fails
	for _, m := range after {
		_, _ = fmt.Fprintf(of, " %s", m.Role)
	}
	var key [sha256.Size]byte
	of.Sum(key[:0])
	h.mu.Lock()
	found, known := h.known[key]
	h.mu.Unlock()
	if known && found.begins(first) {
		return found.length, nil
	}
	second, _, err := s.withDigit(ctx, 1, tail)
	if err != nil {
		return 0, err
	}
	same := 0
	for same < min(len(first), len(second)) && first[len(first)-1-same] == second[len(second)-1-same] {
		same++
	}
	if same == len(first) || same == len(second) {
		return 0, errNoGap
	}
	found = headOf(first[:len(first)-same])
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known == nil || len(h.known) >= maxHeads {
		h.known = map[[sha256.Size]byte]head{}
	}
	h.known[key] = found
	return found.length, nil
}

// withDigit renders a question, a digit as its answer, and what follows.
func (s *sessionCall) withDigit(ctx context.Context, digit int, tail []json.RawMessage) ([]int32, int, error) {
	ids, limit, err := s.tokenize(ctx, append([]json.RawMessage{json.RawMessage(`{"role":"user","content":"?"}`),
		json.RawMessage(fmt.Sprintf(`{"role":"assistant","content":"%d"}`, digit))}, tail...))
	var refused *refusal
	if errors.As(err, &refused) && refused.status == http.StatusBadRequest {
		err = errNoGap
	}
	return ids, limit, err
}
