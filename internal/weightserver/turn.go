package weightserver

import (
	"context"
	"fmt"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// turn is the state of a trainer that shares its GPU with inference, guarded by Server.mu.
type turn struct {
	wanted bool
	has    bool
	step   int64
	failed string // why it cannot be had
}

// Shared reports whether inference and the trainer take turns on the GPU.
func (s *Server) Shared() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sharedLocked()
}

func (s *Server) sharedLocked() bool { return s.attached != nil && s.attached.Colocated }

// WaitTurn is trainer.Host.Turn: it returns when the sync block has put inference to sleep.
func (s *Server) WaitTurn(ctx context.Context, step int64) error {
	s.mu.Lock()
	lone := len(s.SyncedBy) == 0 && s.attached == nil
	s.mu.Unlock()
	if lone {
		return nil
	}
	if err := s.waitAttached(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	if !s.sharedLocked() || s.turn.has {
		s.mu.Unlock()
		return nil
	}
	s.turn = turn{wanted: true, step: step}
	s.lastSeen = time.Now()
	s.changedLocked()
	s.mu.Unlock()
	return s.waitTurn(ctx)
}

func (s *Server) waitTurn(ctx context.Context) error {
	tick := time.NewTicker(max(s.silence/20, time.Millisecond))
	defer tick.Stop()
	for {
		s.mu.Lock()
		t, changed, by, shared := s.turn, s.changed, s.attached.Address, s.sharedLocked()
		silent := time.Since(s.lastSeen)
		s.mu.Unlock()
		switch {
		case t.has:
			return nil
		case !shared: // another sync block, or the same with another configuration
			s.giveUp()
			return nil
		case t.failed != "":
			s.giveUp()
			return &sdk.Error{
				Summary: fmt.Sprintf("%s could not give %s the GPU for step %d", by, s.Address, t.step),
				Detail:  t.failed,
				Remedy: "read the log of " + by + " and of the inference blocks it names; colocated = \"share\" in " +
					by + " trains beside a server that stays awake",
			}
		case silent > s.silence:
			s.giveUp()
			return &sdk.Error{
				Summary: fmt.Sprintf("%s has been silent for %s while %s waits for its turn on the GPU", by,
					silent.Round(time.Second), s.Address),
				Remedy: "read the log of " + by +
					"; the trainer continues from its last checkpoint when it is started again",
			}
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			s.giveUp()
			return ctx.Err()
		}
	}
}

// giveUp takes the wish back.
func (s *Server) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn = turn{}
	s.changedLocked()
}

// give is the sync block's answer to a turn that is wanted.
func (s *Server) give(t TurnGiven) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastSeen = time.Now()
	if s.turn.has && s.turn.step == t.Step && t.Error == "" {
		return nil // sent twice: the answer to the first was lost
	}
	if !s.turn.wanted || s.turn.step != t.Step {
		return fmt.Errorf("%s does not wait for a turn for step %d", s.Address, t.Step)
	}
	s.turn.wanted, s.turn.has, s.turn.failed = false, t.Error == "", t.Error
	s.changedLocked()
	return nil
}

// rest offers the end of a turn without new weights; false when there is none to end.
func (s *Server) rest(step int64, snapshot Snapshot) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.turn.has || !s.sharedLocked() {
		s.turn = turn{}
		return false
	}
	s.pending, s.snapshot = &Publication{Kind: TurnOver, Version: s.version, Step: step}, snapshot
	s.outcome = nil
	s.lastSeen = time.Now()
	s.changedLocked()
	return true
}

// wantedLocked is what the sync block is to do for the trainer now; nil: nothing.
func (s *Server) wantedLocked(after int64) *Publication {
	switch {
	case s.turn.wanted:
		return &Publication{Kind: TurnWanted, Version: s.version, Step: s.turn.step}
	case s.pending != nil && s.outcome == nil && (s.pending.Kind != WeightsReady || s.pending.Version > after):
		copied := *s.pending
		return &copied
	}
	return nil
}
