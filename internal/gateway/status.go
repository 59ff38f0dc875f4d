package gateway

import "time"

// Status is a view of the gateway.
type Status struct {
	Version int         `json:"version"`
	Started time.Time   `json:"started"`
	Held    bool        `json:"held"`
	Hold    *HoldStatus `json:"hold,omitempty"`
	Kept    bool        `json:"kept,omitempty"`    // weight updates should wait, see Gateway.Keep
	KeptAt  *int64      `json:"kept_at,omitempty"` // updates to weights of later steps should wait, see Gateway.Keep
	Paused  time.Time   `json:"paused,omitzero"`   // since when a person holds requests
	Asleep  int         `json:"asleep,omitempty"`  // level at which the engines sleep; 0: awake
	// what happens to requests in flight at the next weight update; empty: not announced
	Updates     Mode                    `json:"updates,omitempty"`
	Expects     bool                    `json:"expects"` // a check's log-probabilities may come later (Check.Later)
	Down        bool                    `json:"down"`    // no replica is up: a weight update waits, Gateway.Adopt does not
	InFlight    int                     `json:"in_flight"`
	Waiting     int                     `json:"waiting"`
	Replicas    []ReplicaStatus         `json:"replicas"`
	Clients     map[string]ClientStatus `json:"clients"`
	LastRequest time.Time               `json:"last_request,omitzero"` // of any client; zero if there was none
}

// HoldStatus is the hold in force.
type HoldStatus struct {
	ID      string    `json:"id"`
	Mode    Mode      `json:"mode"`
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since"`
	Expires time.Time `json:"expires,omitzero"` // zero while draining
}

// ReplicaStatus is one replica.
type ReplicaStatus struct {
	ID       string `json:"id"`
	Healthy  bool   `json:"healthy"`          // as reported by its owner
	Ready    bool   `json:"ready"`            // gets requests: healthy, current weights, no failed connection a moment ago
	Version  int    `json:"version"`          // of its weights; -1 if unknown
	Reason   string `json:"reason,omitempty"` // why it is not ready, if its owner or an update gave a reason
	InFlight int    `json:"in_flight"`
	// Sequences are those in flight: a request may ask for several. Limit is how many there may be; 0: any number.
	Sequences int     `json:"sequences"`
	Limit     int     `json:"limit"`
	Cache     float64 `json:"cache"` // share of the KV cache that is in use, as last reported; 0: not reported
	Served    uint64  `json:"served"`
	Failures  uint64  `json:"failures"` // failed connections
}

// ClientStatus counts one client's requests. An environment that makes no rollouts has an old LastRequest or is
// missing.
type ClientStatus struct {
	Requests     uint64    `json:"requests"`
	Failures     uint64    `json:"failures"` // answered with 400 or above
	OutputTokens uint64    `json:"output_tokens"`
	InFlight     int       `json:"in_flight"` // waiting or at an engine
	LastRequest  time.Time `json:"last_request"`
}

// Status returns a view of the gateway at this moment.
func (g *Gateway) Status() Status {
	s := Status{Started: g.started, Expects: true, Down: g.down()}
	s.Clients, s.LastRequest = g.clients.snapshot()
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.cfg.Clock.Now()
	s.Updates, s.Paused = g.expected, g.paused
	s.Kept, s.KeptAt = g.keptLocked(now)
	s.Version, s.Asleep, s.InFlight, s.Waiting = g.version, g.asleep, len(g.inFlight), g.waiting
	if h := g.hold; h != nil {
		s.Held, s.Hold = true, &HoldStatus{h.ID, h.Mode, h.Reason, h.Since, h.Expires}
	}
	s.Replicas = make([]ReplicaStatus, 0, len(g.replicas))
	for _, r := range g.replicas {
		s.Replicas = append(s.Replicas, ReplicaStatus{r.ID, r.healthy, g.eligibleLocked(r, now), r.version, r.reason,
			r.inflight, r.limit.sequences, g.limitLocked(r), r.limit.usage.Cache, r.served, r.failures})
	}
	return s
}
