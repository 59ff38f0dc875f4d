package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/recipe-rl/recipe/internal/session"
)

// errNoGap says that the tokens between two answers cannot be found out.
var errNoGap = errors.New("the chat template does not show where an answer ends")

// heads are what a short conversation renders to up to its answer and with it, by what decides that: the tools, the
// variables of the template, and the roles of what follows.
type heads struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte][]int32
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
	head, err := s.head(ctx, first, p.Tail, tail)
	if err != nil {
		return nil, 0, err
	}
	gap := first[len(head):]
	if len(gap) > 0 && gap[0] == last { // the model has ended its turn itself
		gap = gap[1:]
	}
	if len(gap) == 0 {
		return nil, 0, errNoGap
	}
	return gap, limit, nil
}

// head is the beginning of a rendered conversation, up to the digit and with it. Where the digit is depends on nothing
// but the roles of what follows, so the other digit is rendered once for each.
func (s *sessionCall) head(ctx context.Context, first []int32, after []session.Message, tail []json.RawMessage) (
	[]int32, error) {
	h, of := &s.g.heads, sha256.New()
	_, _ = fmt.Fprintf(of, "%d %s %d %s", len(s.q.Tools), s.q.Tools, len(s.q.Variables), s.q.Variables) // never fails
	for _, m := range after {
		_, _ = fmt.Fprintf(of, " %s", m.Role)
	}
	var key [sha256.Size]byte
	of.Sum(key[:0])
	h.mu.Lock()
	head, known := h.known[key]
	h.mu.Unlock()
	if known && len(head) < len(first) && slices.Equal(head, first[:len(head)]) {
		return head, nil
	}
	second, _, err := s.withDigit(ctx, 1, tail)
	if err != nil {
		return nil, err
	}
	same := 0
	for same < min(len(first), len(second)) && first[len(first)-1-same] == second[len(second)-1-same] {
		same++
	}
	if same == len(first) || same == len(second) {
		return nil, errNoGap
	}
	head = slices.Clone(first[:len(first)-same])
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known == nil || len(h.known) >= maxHeads {
		h.known = map[[sha256.Size]byte][]int32{}
	}
	h.known[key] = head
	return head, nil
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
