package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// awakeTolerance is for engines whose weights have not been checked yet. Their answers before and after a sleep should
// be equal; lost memory makes a much larger difference.
const awakeTolerance = 0.3

// awakeText is the text that such an engine is compared by. Every vocabulary has low ids.
func awakeText() []int { return []int{1, 2, 3, 5, 8, 4, 7, 9, 6, 10, 3, 1} }

// baseline holds the answers of engines at a policy version, by replica.
type baseline struct {
	version int
	checks  map[string]Check
}

// noteBefore records what engines answer before they sleep: from the check of the last update, else by asking them. An
// engine that cannot be asked is not checked after it wakes.
func (g *Gateway) noteBefore(ctx context.Context) {
	g.mu.Lock()
	verified := g.last != nil && g.last.version() == g.version && g.last.Check != nil
	g.mu.Unlock()
	if verified {
		return
	}
	answers, _ := g.Logprobs(ctx, awakeText()) // those that failed have none
	g.mu.Lock()
	defer g.mu.Unlock()
	g.before = baseline{g.version, map[string]Check{}}
	for _, a := range answers {
		if a.Error == "" && len(a.Logprobs) > 0 {
			g.before.checks[a.ID] = Check{Tokens: awakeText(), Logprobs: a.Logprobs, Tolerance: awakeTolerance}
		}
	}
}

// verifyAwake compares the answers of engines that were woken without new weights with those from before: nothing else
// would notice that memory was not restored. An engine that differs is excluded. Called with g.updating held.
func (g *Gateway) verifyAwake(ctx context.Context) {
	g.mu.Lock()
	var list []*replica
	checks := map[*replica]Check{}
	for _, r := range g.replicas {
		if !r.healthy || r.version != g.version {
			continue
		}
		check, known := g.before.checks[r.ID]
		known = known && g.before.version == g.version
		if last := g.last; last != nil && last.version() == g.version && last.Check != nil {
			check, known = *last.Check, true
		}
		if known {
			list, checks[r] = append(list, r), check
		}
	}
	version := g.version
	g.mu.Unlock()
	var wg sync.WaitGroup
	for _, r := range list {
		wg.Go(func() {
			difference, err := g.verify(ctx, r.Replica, checks[r], version)
			if err == nil {
				g.emit(Event{Kind: EventAwake, Replica: r.ID, Version: version,
					Message: fmt.Sprintf("replica %s woke and still serves policy version %d: log-probabilities differ by "+
						"at most %.3g", r.ID, version, difference)})
				return
			}
			kind := EventReplicaDown
			if errors.Is(err, ErrMismatch) {
				kind = EventMismatch
			}
			g.exclude(r, kind, fmt.Errorf("after it woke: %w", err))
		})
	}
	wg.Wait()
}
