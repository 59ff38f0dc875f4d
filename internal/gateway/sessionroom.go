package gateway

import (
	"context"
	"errors"
	"fmt"
)

// reservation is what a pending call may add to its session: tokens of its budget, and of what it holds. It is counted
// before the engine is asked, since calls at a time would together exceed what each of them is within.
type reservation struct{ sampled, held int }

// room is how many tokens a call may sample. They are reserved for it until settle.
func (s *sessionCall) room(ctx context.Context, prompt, limit int) (int, error) {
	if b := s.l.opened.Budget; b.Context > 0 {
		limit = min(limit, b.Context)
	}
	want := limit - prompt
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if want < 1 {
		return 0, s.l.overLocked(fmt.Sprintf("context: the prompt has %d of %d tokens", prompt, limit))
	}
	left, why := s.l.leftLocked(prompt)
	for left < 1 {
		if s.l.reserved == (reservation{}) {
			return 0, s.l.overLocked(why)
		}
		if err := s.waitForOthers(ctx); err != nil {
			return 0, err
		}
		left, why = s.l.leftLocked(prompt)
	}
	want = min(want, left)
	if b := s.l.opened.Budget; b.Answer > 0 {
		want = min(want, b.Answer)
	}
	if s.q.MaxTokens > want {
		s.g.met.clamped.Add(1)
	} else if s.q.MaxTokens > 0 {
		want = s.q.MaxTokens
	}
	s.l.reserved.sampled += want
	s.l.reserved.held += prompt + want
	return want, nil
}

// leftLocked is how many tokens a call may sample after its prompt, and why there are no more.
func (l *liveSession) leftLocked(prompt int) (left int, why string) {
	left, why = maxSessionTokens-l.tree.Size()-l.reserved.held-prompt, fmt.Sprintf("size: its calls hold %d tokens, of %d",
		l.tree.Size(), maxSessionTokens)
	if b := l.opened.Budget; b.Tokens > 0 && b.Tokens-l.sampled-l.reserved.sampled < left {
		left, why = b.Tokens-l.sampled-l.reserved.sampled, fmt.Sprintf("tokens: %d were sampled", l.sampled)
	}
	return left, why
}

// waitForOthers waits until another call of the session has ended. It is called, and returns, with the lock held.
func (s *sessionCall) waitForOthers(ctx context.Context) error {
	if s.l.settled == nil {
		s.l.settled = make(chan struct{})
	}
	settled := s.l.settled
	s.l.mu.Unlock()
	defer s.l.mu.Lock()
	for {
		silent, stop := s.g.silence(&call{early: s.early})
		err := s.g.waitChange(ctx, settled, nil, nil, silent)
		stop()
		if !errors.Is(err, errSilent) {
			return err
		}
		if err := s.early.comment(); err != nil {
			return err
		}
	}
}

// settle ends a reservation: what the call has added counts by itself from now on.
func (l *liveSession) settle(p reservation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserved.sampled -= p.sampled
	l.reserved.held -= p.held
	if l.settled != nil {
		close(l.settled)
		l.settled = nil
	}
}
