// Package weightserver serves a trainer's weights to the sync block that takes charge of them: the control endpoint of
// a trainer. Package weightclient is the other side.
package weightserver

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/internal/delta"
	"github.com/recipe-rl/recipe/sdk"
)

// How long a trainer waits for its sync block. A sync block asks for pending publications all the time, so silence
// means that it is dead or hangs; its restart by policy must fit.
const (
	attachDeadline = 3 * time.Minute
	syncSilence    = 3 * time.Minute
)

// Snapshot is a trainer's weights between two optimizer steps. A sync block calls its methods while the trainer waits
// in Server.Sync, one at a time, and never after that.
type Snapshot interface {
	// Publish writes the weights so that inference can load them.
	Publish(ctx context.Context, r PublishRequest) (sdk.Weights, error)
	// Logprobs returns log p(token[i] | token[:i]) for i ≥ 1 under these weights.
	Logprobs(ctx context.Context, tokens []int) ([]float64, error)
}

// Ahead is a Snapshot of a trainer that calculates its next step while its weights are brought to inference.
type Ahead interface {
	// Taken says that the weights have been read. The trainer may go on as if inference served the version, except that
	// it must not change the weights before Server.Sync returns; until then it may still be asked for them. Groups that
	// are more than maxStaleness versions older are not trained on, if it is given: the trajectory API, which does not
	// know the version yet, may hand them out.
	Taken(ctx context.Context, version int64, maxStaleness *int64) error
}

// Tokenizer is a Snapshot that can split a text into the model's tokens. A sync block verifies the weights with a text
// that the model finds likely; without this it must make do with arbitrary token ids, on which server and trainer agree
// less exactly.
type Tokenizer interface {
	// Tokenize returns the ids of a text without special tokens.
	Tokenize(ctx context.Context, text string) ([]int, error)
}

// Config is what a server is made with.
type Config struct {
	Address  string                   // of the trainer
	Dir      string                   // of the trainer's block, for weights that are handed out
	SyncedBy []string                 // addresses of the sync blocks that the recipe declares for it
	Version  int64                    // that the run has reached
	Resumed  bool                     // the trainer continues an earlier attempt
	Guard    func(func() error) error // calls a snapshot's methods; nil: they are called as they are
	Reached  func(version int64)      // is called when inference serves a new version
	Taken    func()                   // is called when a trainer goes on before Sync returns; nil: nobody is told

	attachDeadline, silence time.Duration // 0: the constants above
}

// Server holds the trainer between two steps while a sync block takes its weights.
type Server struct {
	Config
	calls    sync.Mutex // one call of a snapshot at a time
	versions *versions  // that are handed out

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when something below changes
	attached *Attach
	lastSeen time.Time // of the sync block
	step     int64
	version  int64
	first    bool // nothing has been published in this attempt
	pending  *Publication
	snapshot Snapshot // of pending
	outcome  *Done    // of pending
	turn     turn
	offered  bool // something has been offered in this attempt, of offeredStep last
	over     bool

	offeredStep int64
	servedStep  int64 // of version; -1: not known, as after a restart of the trainer
}

// New makes a server. Handler gives what is to be served.
func New(c Config) *Server {
	if c.attachDeadline == 0 {
		c.attachDeadline = attachDeadline
	}
	if c.silence == 0 {
		c.silence = syncSilence
	}
	if c.Guard == nil {
		c.Guard = func(f func() error) error { return f() }
	}
	served := int64(0)
	if c.Resumed || c.Version > 0 {
		served = -1
	}
	return &Server{Config: c, changed: make(chan struct{}), version: c.Version, first: true, servedStep: served,
		versions: &versions{dir: filepath.Join(c.Dir, delta.PublishedFolder)}}
}

// Version is the policy version that inference serves.
func (s *Server) Version() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// VersionOf is the policy version of the weights after a step: that under which inference serves them, or will when
// they are the next that it gets.
func (s *Server) VersionOf(step int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if step == s.servedStep || s.lone() {
		return s.version
	}
	return s.version + 1
}

// lone reports whether no sync block takes the weights: inference keeps those that it has. s.mu is held.
func (s *Server) lone() bool { return len(s.SyncedBy) == 0 && s.attached == nil }

// Syncer is the sync block that this trainer works with; empty: none.
func (s *Server) Syncer() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attached != nil {
		return s.attached.Address
	}
	if len(s.SyncedBy) > 0 {
		return s.SyncedBy[0]
	}
	return ""
}

// SetStep notes how far the trainer is.
func (s *Server) SetStep(step int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step = max(s.step, step)
}

func (s *Server) changedLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Close refuses every later call: Run has returned, so there are no weights any more.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.changedLocked()
}

// Sync is trainer.Host.Sync.
func (s *Server) Sync(ctx context.Context, step int64, snapshot Snapshot) (int64, error) {
	s.mu.Lock()
	s.step = step
	lone := s.lone()
	version := s.version
	s.mu.Unlock()
	if lone {
		return version, nil
	}
	if err := s.waitAttached(ctx); err != nil {
		return version, err
	}
	if version, due := s.offer(step, snapshot); !due && !s.rest(step, snapshot) {
		return version, nil
	}
	return s.waitDone(ctx)
}

// offer makes the publication of this step, if one is due.
func (s *Server) offer(step int64, snapshot Snapshot) (version int64, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A trainer that continues an earlier attempt holds other weights than those that are served: they are published
	// whatever the period says, as a version of their own. Step 0 of a new run is what inference starts with.
	continued := s.first && (s.Resumed || s.version > 0)
	onPeriod := step > 0 && step%max(1, s.attached.Every) == 0
	if again := s.offered && step == s.offeredStep; again {
		onPeriod = false // the same weights as before: a turn came to no step
	}
	if !continued && !onPeriod && !s.attached.Republish {
		return s.version, false
	}
	s.first, s.attached.Republish = false, false
	s.offered, s.offeredStep = true, step
	_, ahead := snapshot.(Ahead)
	s.pending = &Publication{Version: s.version + 1, Step: step, Ahead: ahead && !s.sharedLocked()}
	s.snapshot = snapshot
	s.outcome = nil
	s.lastSeen = time.Now()
	s.changedLocked()
	return s.version, true
}

func (s *Server) waitAttached(ctx context.Context) error {
	deadline := time.NewTimer(s.attachDeadline)
	defer deadline.Stop()
	for {
		s.mu.Lock()
		attached, changed := s.attached != nil, s.changed
		s.mu.Unlock()
		if attached {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			return &sdk.Error{
				Summary: fmt.Sprintf("%s has not attached to %s within %s, so nothing would bring the weights to inference",
					strings.Join(s.SyncedBy, ", "), s.Address, s.attachDeadline),
				Remedy: "read the log of " + strings.Join(s.SyncedBy, ", ") +
					"; remove the block to train without syncing",
			}
		}
	}
}

// waitDone waits for the outcome of the pending publication.
func (s *Server) waitDone(ctx context.Context) (int64, error) {
	tick := time.NewTicker(max(s.silence/20, time.Millisecond))
	defer tick.Stop()
	for {
		s.mu.Lock()
		pending, outcome, changed, by := s.pending, s.outcome, s.changed, s.attached.Address
		silent := time.Since(s.lastSeen)
		s.mu.Unlock()
		if outcome != nil {
			return s.settle(*outcome, by)
		}
		if silent > s.silence {
			s.drop()
			return s.Version(), &sdk.Error{
				Summary: fmt.Sprintf("%s has been silent for %s while %s waits to hand over policy version %d", by,
					silent.Round(time.Second), s.Address, pending.Version),
				Remedy: "read the log of " + by +
					"; the trainer continues from its last checkpoint when it is started again",
			}
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			s.drop()
			return s.Version(), ctx.Err()
		}
	}
}

// drop takes back the pending publication, after any call of the plugin in progress.
func (s *Server) drop() {
	s.mu.Lock()
	s.pending, s.snapshot, s.turn = nil, nil, turn{}
	s.changedLocked()
	s.mu.Unlock()
	s.calls.Lock()
	s.calls.Unlock() //nolint:staticcheck // an empty section: it only waits
}

func (s *Server) settle(outcome Done, by string) (int64, error) {
	s.calls.Lock() // the plugin's weights must not be touched any more
	s.mu.Lock()
	if outcome.Error == "" {
		if s.version = outcome.Version; s.pending != nil && s.pending.Kind != TurnOver {
			s.servedStep = s.pending.Step
		}
	}
	s.pending, s.snapshot, s.outcome, s.turn = nil, nil, nil, turn{}
	version := s.version
	s.changedLocked()
	s.mu.Unlock()
	s.calls.Unlock()
	if outcome.Error != "" {
		return version, &sdk.Error{
			Summary: fmt.Sprintf("%s could not bring policy version %d to inference", by, outcome.Version),
			Detail:  outcome.Error,
			Remedy:  "read the log of " + by + " and of the inference blocks it names",
		}
	}
	s.Reached(version)
	return version, nil
}

// attach takes in a sync block. Several blocks may not share one trainer: the second would publish behind the first
// one's back.
func (s *Server) attach(a Attach) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.Address == "" || a.Every < 1 {
		return fmt.Errorf("attach: address is %q and every is %d; want an address and 1 or more", a.Address, a.Every)
	}
	if s.attached != nil && s.attached.Address != a.Address {
		return fmt.Errorf("attach: %s has taken charge of the weights of %s already", s.attached.Address, s.Address)
	}
	if len(s.SyncedBy) > 0 && !containsString(s.SyncedBy, a.Address) {
		return fmt.Errorf("attach: the recipe declares %s for %s, not %s", strings.Join(s.SyncedBy, ", "), s.Address,
			a.Address)
	}
	s.attached = &a
	s.lastSeen = time.Now()
	if a.Version > s.version {
		s.version, s.servedStep = a.Version, -1 // inference is ahead of what the engine recorded: never go back
		switch {
		case s.pending == nil:
		case s.pending.Kind == TurnOver:
			s.pending.Version = a.Version
		case s.pending.Version <= a.Version:
			s.pending.Version = a.Version + 1
		}
	}
	s.changedLocked()
	return nil
}

func containsString(list []string, s string) bool {
	for _, other := range list {
		if other == s {
			return true
		}
	}
	return false
}

// seen notes that the sync block is there.
func (s *Server) seen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastSeen = time.Now()
}

// next waits until the trainer wants something: a publication above a version, or a turn; nil when it does not within
// the wait. It does not wait where no sync block has attached: the one that asks has attached to the trainer's earlier
// process, whose port this one has.
func (s *Server) next(ctx context.Context, after int64, wait time.Duration) *Publication {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		s.mu.Lock()
		s.lastSeen = time.Now()
		wanted, changed, none := s.wantedLocked(after), s.changed, s.over || s.attached == nil
		s.mu.Unlock()
		if wanted != nil {
			return wanted
		}
		if none {
			return nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// call calls the snapshot of the pending publication.
func (s *Server) call(version int64, f func(Snapshot) error) error {
	s.calls.Lock()
	defer s.calls.Unlock()
	s.mu.Lock()
	pending, snapshot, settled := s.pending, s.snapshot, s.outcome != nil
	s.lastSeen = time.Now()
	s.mu.Unlock()
	if snapshot == nil || settled || (version != 0 && pending.Version != version) {
		return fmt.Errorf("%s: no weight update of version %d is in progress", s.Address, version)
	}
	err := s.Guard(func() error { return f(snapshot) })
	s.mu.Lock()
	s.lastSeen = time.Now()
	s.mu.Unlock()
	return err
}

// taken lets a trainer go on that asked for it.
func (s *Server) taken(ctx context.Context, t Taken) error {
	return s.call(t.Version, func(weights Snapshot) error {
		ahead, ok := weights.(Ahead)
		if !ok {
			return fmt.Errorf("%s waits until inference serves version %d: its publication did not say ahead", s.Address,
				t.Version)
		}
		if err := ahead.Taken(ctx, t.Version, t.MaxStaleness); err != nil {
			return err
		}
		if s.Config.Taken != nil {
			s.Config.Taken()
		}
		return nil
	})
}

func (s *Server) done(d Done) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastSeen = time.Now()
	if s.pending == nil && d.Error == "" && d.Version == s.version {
		return nil // sent twice: the answer to the first was lost
	}
	if s.pending == nil || s.pending.Version != d.Version {
		return fmt.Errorf("%s has no publication of version %d waiting", s.Address, d.Version)
	}
	s.outcome = &d
	s.changedLocked()
	return nil
}

func (s *Server) state() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := State{Phase: "training", Step: s.step, Version: s.version, Turn: s.turn.has}
	if s.attached != nil {
		out.Sync = s.attached.Address
	}
	switch {
	case s.over:
		out.Phase = "over"
	case s.turn.wanted:
		out.Phase = "waiting"
	case s.pending != nil:
		out.Phase = "syncing"
		copied := *s.pending
		out.Pending = &copied
	}
	return out
}
