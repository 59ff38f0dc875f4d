package sdk

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// SyncAttach is what a sync block says when it takes charge of a trainer's weights.
type SyncAttach struct {
	Address   string `json:"address"`             // of the sync block
	Every     int64  `json:"every"`               // optimizer steps between publications
	Transport string `json:"transport"`           // how weights will move
	Version   int64  `json:"version,omitempty"`   // highest policy version that inference serves, as far as the sync block sees
	Republish bool   `json:"republish,omitempty"` // inference lost the weights: publish at the next step whatever the period says
	Colocated bool   `json:"colocated,omitempty"` // trainer and inference take turns on the GPU
}

// Publication is what a trainer waits for: that a policy version is taken, or, where it shares its GPU with inference, that it
// gets its turn or that the turn is taken back.
type Publication struct {
	Kind    PublicationKind `json:"kind,omitempty"`
	Version int64           `json:"version"` // of a turn: the version that inference serves
	Step    int64           `json:"step"`
}

// PublicationKind says what a trainer waits for.
type PublicationKind string

// What a trainer waits for. Only a sync block that attached as colocated is asked for turns.
const (
	WeightsReady PublicationKind = ""     // weights of Version wait to be taken; acknowledged by SyncDone
	TurnWanted   PublicationKind = "turn" // the GPU is wanted for a step; answered by TurnGiven
	TurnOver     PublicationKind = "rest" // the GPU is free again and there are no new weights; acknowledged by SyncDone
)

// TurnGiven says that a trainer has the GPU for itself, or why it cannot have it.
type TurnGiven struct {
	Step  int64  `json:"step"`
	Error string `json:"error,omitempty"` // empty: inference has given its memory back
}

// SyncDone says how a publication ended.
type SyncDone struct {
	Version int64  `json:"version"`
	Error   string `json:"error,omitempty"` // empty: inference serves the version
}

// TrainerState is where a trainer stands.
type TrainerState struct {
	Phase   string       `json:"phase"` // "training", "waiting" (for its turn), "syncing" or "over"
	Step    int64        `json:"step"`
	Version int64        `json:"version"`
	Pending *Publication `json:"pending,omitempty"`
	Sync    string       `json:"sync,omitempty"` // the attached sync block
	Turn    bool         `json:"turn,omitempty"` // it has the GPU for itself
}

// How long a trainer waits for its sync block. A sync block asks for pending publications all the time, so silence means that
// it is dead or hangs; its restart by policy must fit.
const (
	attachDeadline = 3 * time.Minute
	syncSilence    = 3 * time.Minute
)

type gateConfig struct {
	address  string
	syncedBy []string
	version  int64 // that the run has reached
	resumed  bool
	publish  func(context.Context, PublishRequest) (Weights, error)
	logprobs func(context.Context, []int) ([]float64, error)
	tokenize func(context.Context, string) ([]int, error) // nil: the trainer cannot
	raised   func(int64)

	attachDeadline, silence time.Duration // 0: the constants above
}

// gate holds the trainer between two steps while a sync block takes its weights.
type gate struct {
	gateConfig
	calls sync.Mutex // one call of the plugin's Publish or Logprobs at a time

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when something below changes
	attached *SyncAttach
	heard    time.Time // of the sync block
	step     int64
	version  int64
	first    bool // nothing has been published in this life
	pending  *Publication
	outcome  *SyncDone // of pending
	turn     turn
	offered  bool // something has been offered in this life, of offeredStep last
	over     bool

	offeredStep int64
}

func newGate(c gateConfig) *gate {
	if c.attachDeadline == 0 {
		c.attachDeadline = attachDeadline
	}
	if c.silence == 0 {
		c.silence = syncSilence
	}
	return &gate{gateConfig: c, changed: make(chan struct{}), version: c.version, first: true}
}

func (g *gate) current() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.version
}

// syncer is the sync block that this trainer works with; empty: none.
func (g *gate) syncer() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.attached != nil {
		return g.attached.Address
	}
	if len(g.syncedBy) > 0 {
		return g.syncedBy[0]
	}
	return ""
}

func (g *gate) setStep(step int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.step = max(g.step, step)
}

func (g *gate) changedLocked() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// end refuses every later call: Run has returned, so there are no weights any more.
func (g *gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
	g.changedLocked()
}

// sync is TrainerHost.Sync.
func (g *gate) sync(ctx context.Context, step int64) (int64, error) {
	g.mu.Lock()
	g.step = step
	lone := len(g.syncedBy) == 0 && g.attached == nil
	version := g.version
	g.mu.Unlock()
	if lone {
		return version, nil
	}
	if err := g.waitAttached(ctx); err != nil {
		return version, err
	}
	if version, due := g.offer(step); !due && !g.rest(step) {
		return version, nil
	}
	return g.waitDone(ctx)
}

// offer makes the publication of this step, if one is due.
func (g *gate) offer(step int64) (version int64, due bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// A trainer that continues an earlier life holds other weights than those that are served: they are published whatever
	// the period says, as a version of their own. Step 0 of a new run is what inference starts with.
	continued := g.first && (g.resumed || g.version > 0)
	onPeriod := step > 0 && step%max(1, g.attached.Every) == 0
	if again := g.offered && step == g.offeredStep; again {
		onPeriod = false // the same weights as before: a turn came to no step
	}
	if !continued && !onPeriod && !g.attached.Republish {
		return g.version, false
	}
	g.first, g.attached.Republish = false, false
	g.offered, g.offeredStep = true, step
	g.pending = &Publication{Version: g.version + 1, Step: step}
	g.outcome = nil
	g.heard = time.Now()
	g.changedLocked()
	return g.version, true
}

func (g *gate) waitAttached(ctx context.Context) error {
	deadline := time.NewTimer(g.attachDeadline)
	defer deadline.Stop()
	for {
		g.mu.Lock()
		attached, changed := g.attached != nil, g.changed
		g.mu.Unlock()
		if attached {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			return &Error{
				Summary: fmt.Sprintf("%s has not attached to %s within %s, so nothing would bring the weights to inference", strings.Join(g.syncedBy, ", "), g.address, g.attachDeadline),
				Remedy:  "read the log of " + strings.Join(g.syncedBy, ", ") + "; remove the block to train without syncing",
			}
		}
	}
}

// waitDone waits for the outcome of the pending publication.
func (g *gate) waitDone(ctx context.Context) (int64, error) {
	tick := time.NewTicker(max(g.silence/20, time.Millisecond))
	defer tick.Stop()
	for {
		g.mu.Lock()
		pending, outcome, changed, by := g.pending, g.outcome, g.changed, g.attached.Address
		silent := time.Since(g.heard)
		g.mu.Unlock()
		if outcome != nil {
			return g.settle(*outcome, by)
		}
		if silent > g.silence {
			g.drop()
			return g.current(), &Error{
				Summary: fmt.Sprintf("%s has been silent for %s while %s waits to hand over policy version %d", by, silent.Round(time.Second), g.address, pending.Version),
				Remedy:  "read the log of " + by + "; the trainer continues from its last checkpoint when it is started again",
			}
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			g.drop()
			return g.current(), ctx.Err()
		}
	}
}

// drop takes back the pending publication, after any call of the plugin in progress.
func (g *gate) drop() {
	g.mu.Lock()
	g.pending, g.turn = nil, turn{}
	g.changedLocked()
	g.mu.Unlock()
	g.calls.Lock()
	g.calls.Unlock() //nolint:staticcheck // an empty section: it only waits
}

func (g *gate) settle(outcome SyncDone, by string) (int64, error) {
	g.calls.Lock() // the plugin's weights must not be touched any more
	g.mu.Lock()
	g.pending, g.outcome, g.turn = nil, nil, turn{}
	if outcome.Error == "" {
		g.version = outcome.Version
	}
	version := g.version
	g.changedLocked()
	g.mu.Unlock()
	g.calls.Unlock()
	if outcome.Error != "" {
		return version, &Error{
			Summary: fmt.Sprintf("%s could not bring policy version %d to inference", by, outcome.Version),
			Detail:  outcome.Error,
			Remedy:  "read the log of " + by + " and of the inference blocks it names",
		}
	}
	g.raised(version)
	return version, nil
}

// attach takes in a sync block. Several blocks may not share one trainer: the second would publish behind the first one's back.
func (g *gate) attach(a SyncAttach) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a.Address == "" || a.Every < 1 {
		return fmt.Errorf("attach: address is %q and every is %d; want an address and 1 or more", a.Address, a.Every)
	}
	if g.attached != nil && g.attached.Address != a.Address {
		return fmt.Errorf("attach: %s has taken charge of the weights of %s already", g.attached.Address, g.address)
	}
	if len(g.syncedBy) > 0 && !containsString(g.syncedBy, a.Address) {
		return fmt.Errorf("attach: the recipe declares %s for %s, not %s", strings.Join(g.syncedBy, ", "), g.address, a.Address)
	}
	g.attached = &a
	g.heard = time.Now()
	if a.Version > g.version {
		g.version = a.Version // inference is ahead of what the engine recorded: never go back
		switch {
		case g.pending == nil:
		case g.pending.Kind == TurnOver:
			g.pending.Version = a.Version
		case g.pending.Version <= a.Version:
			g.pending.Version = a.Version + 1
		}
	}
	g.changedLocked()
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

// hear notes that the sync block is there.
func (g *gate) hear() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heard = time.Now()
}

// next waits until the trainer wants something: a publication above a version, or a turn; nil when it does not within the wait.
func (g *gate) next(ctx context.Context, after int64, wait time.Duration) *Publication {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		g.mu.Lock()
		g.heard = time.Now()
		wanted, changed, over := g.wantedLocked(after), g.changed, g.over
		g.mu.Unlock()
		if wanted != nil {
			return wanted
		}
		if over {
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

// call runs one of the plugin's functions on the weights of the pending publication.
func (g *gate) call(version int64, f func() error) error {
	g.calls.Lock()
	defer g.calls.Unlock()
	g.mu.Lock()
	pending, settled := g.pending, g.outcome != nil
	g.heard = time.Now()
	g.mu.Unlock()
	if pending == nil || settled || (version != 0 && pending.Version != version) {
		return fmt.Errorf("%s has no publication of version %d waiting: its weights are not at rest", g.address, version)
	}
	err := guard(g.address, f)
	g.mu.Lock()
	g.heard = time.Now()
	g.mu.Unlock()
	return err
}

func (g *gate) done(d SyncDone) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heard = time.Now()
	if g.pending == nil && d.Error == "" && d.Version == g.version {
		return nil // told twice: the answer to the first was lost
	}
	if g.pending == nil || g.pending.Version != d.Version {
		return fmt.Errorf("%s has no publication of version %d waiting", g.address, d.Version)
	}
	g.outcome = &d
	g.changedLocked()
	return nil
}

func (g *gate) state() TrainerState {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := TrainerState{Phase: "training", Step: g.step, Version: g.version, Turn: g.turn.has}
	if g.attached != nil {
		s.Sync = g.attached.Address
	}
	switch {
	case g.over:
		s.Phase = "over"
	case g.turn.wanted:
		s.Phase = "waiting"
	case g.pending != nil:
		s.Phase = "syncing"
		copied := *g.pending
		s.Pending = &copied
	}
	return s
}
