package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/concurrency"
)

// Replica is one engine process behind the gateway.
type Replica struct {
	ID     string // unique among the replicas, for example "0"
	URL    string // root of the engine, for example "http://127.0.0.1:41001"; without /v1
	APIKey string // sent to the engine as a bearer token; may be empty
	// Version is the policy version of its weights, according to its owner. The gateway uses the one given to Admit only.
	Version int64
}

// UnknownVersion is the version of weights that are not known.
const UnknownVersion = -1

// same reports whether two descriptions are of one process.
func (r Replica) same(other Replica) bool {
	return r.ID == other.ID && r.URL == other.URL && r.APIKey == other.APIKey
}

// replica is the gateway's view of one engine. All fields but Replica and base are guarded by Gateway.mu.
type replica struct {
	Replica
	base     *url.URL
	version  int       // policy version of its weights
	pending  int       // version being loaded, or UnknownVersion
	unusable int       // streams in a row that could not be put together; see stopStreaming
	healthy  bool      // as its owner reported
	reason   string    // why it gets no requests
	suspect  time.Time // gets no requests before this moment
	inflight int
	limit    limit
	served   uint64
	failures uint64
}

func newReplica(r Replica) (*replica, error) {
	base, err := url.Parse(strings.TrimSuffix(r.URL, "/"))
	if err != nil {
		return nil, fmt.Errorf("gateway: URL of replica %q: %w", r.ID, err)
	}
	if (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("gateway: URL of replica %q is %q; want http://host:port", r.ID, r.URL)
	}
	return &replica{Replica: r, base: base, version: UnknownVersion, pending: UnknownVersion,
		reason: "not admitted yet", limit: limit{control: concurrency.New()}}, nil
}

// SetReplicas replaces the set of replicas. A replica whose ID, URL and key are unchanged keeps its state; a new one
// gets no requests until Admit or SetReplicaHealthy. Requests in flight on a removed replica go on.
func (g *Gateway) SetReplicas(list []Replica) error {
	next := make([]*replica, 0, len(list))
	seen := map[string]bool{}
	for _, r := range list {
		if r.ID == "" || seen[r.ID] {
			return fmt.Errorf("gateway: replica ID %q is empty or used twice; want unique IDs", r.ID)
		}
		seen[r.ID] = true
		n, err := newReplica(r)
		if err != nil {
			return err
		}
		next = append(next, n)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, n := range next {
		if old := g.findLocked(n.ID); old != nil && old.same(n.Replica) {
			next[i] = old
		}
	}
	g.replicas = next
	g.prefixes.clear()
	g.changedLocked()
	return nil
}

// Admit lets a replica take part: it is up and its weights are of the given policy version (-1 if unknown). If that is
// not the current version, the latest weight update is loaded into it first, so that an engine restarted from its base
// model never answers for the policy. The error says why it stays out; the next weight update tries it again, as does
// another Admit.
func (g *Gateway) Admit(ctx context.Context, id string, version int) error {
	return g.AdmitNow(ctx, id, func() int { return version })
}

// AdmitNow is Admit with a version that is asked for when no weight update is in progress any more: one that went on
// meanwhile may have changed it.
func (g *Gateway) AdmitNow(ctx context.Context, id string, version func() int) error {
	ctx, cancel := g.bounded(ctx)
	defer cancel()
	g.admitting.Add(1)
	defer g.admitting.Add(-1)
	if err := g.updating.lock(ctx); err != nil {
		return err
	}
	ctx, end := g.overtakable(ctx)
	err := g.admit(ctx, id, version())
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errOvertaken) {
		err = cause
	}
	end()
	g.updating.unlock()
	g.afterUpdate()
	return err
}

// admit is Admit with g.updating held.
func (g *Gateway) admit(ctx context.Context, id string, version int) error {
	g.mu.Lock()
	r := g.findLocked(id)
	if r == nil {
		g.mu.Unlock()
		return unknownReplica(id)
	}
	r.healthy, r.reason, r.suspect, r.unusable = true, "being admitted", time.Time{}, 0
	r.version, r.pending = UnknownVersion, UnknownVersion
	current, last := g.version, g.last
	g.mu.Unlock()
	if version != current {
		if last == nil || last.version() != current {
			err := fmt.Errorf("gateway: replica %q serves policy version %d, the current one is %d, and no weight update that "+
				"could bring it there is known; push the weights again", id, version, current)
			g.exclude(r, EventReplicaDown, err)
			return err
		}
		if _, _, errs := g.loadChecked(ctx, []*replica{r}, *last); errs[0] != nil {
			return errs[0]
		}
	}
	g.mu.Lock()
	r.version, r.reason = current, ""
	g.changedLocked()
	g.mu.Unlock()
	g.emit(Event{Kind: EventReplicaUp, Replica: id, Version: current,
		Message: fmt.Sprintf("replica %s serves policy version %d", id, current)})
	return nil
}

// ReplicaLost says that the engine's process has ended: what runs under this ID later counts as having unknown weights
// until Admit.
func (g *Gateway) ReplicaLost(id, reason string) error {
	g.mu.Lock()
	r := g.findLocked(id)
	if r == nil {
		g.mu.Unlock()
		return unknownReplica(id)
	}
	r.healthy, r.reason = false, reason
	r.version, r.pending = UnknownVersion, UnknownVersion
	g.abortLocked(r)
	current := g.version
	g.changedLocked()
	g.mu.Unlock()
	g.emit(Event{Kind: EventReplicaDown, Replica: id, Version: current, Message: "replica " + id + " is lost: " + reason,
		Err: errors.New(reason)})
	return nil
}

// SetReplicaHealthy says whether a replica whose process lives can answer. A healthy one still gets requests only while
// its weights are of the current policy version. When the process ended, say ReplicaLost, and after its restart Admit,
// because its weights are those it was started with. The reason is shown to those who wait.
func (g *Gateway) SetReplicaHealthy(id string, healthy bool, reason string) error {
	g.mu.Lock()
	r := g.findLocked(id)
	if r == nil {
		g.mu.Unlock()
		return unknownReplica(id)
	}
	changed := r.healthy != healthy
	r.healthy, r.reason = healthy, reason
	if healthy {
		r.suspect = time.Time{}
	}
	version := r.version
	g.changedLocked()
	g.mu.Unlock()
	switch {
	case changed && healthy:
		g.emit(Event{Kind: EventReplicaUp, Replica: id, Version: version, Message: "replica " + id + " is healthy"})
	case changed:
		g.emit(Event{Kind: EventReplicaDown, Replica: id, Version: version, Message: "replica " + id + " is out: " + reason,
			Err: errors.New(reason)})
	}
	return nil
}

// exclude stops requests to a replica whose weights are unknown, and records why. Requests in flight there are sent
// again elsewhere. Its process lives, so the next weight update may repair it.
func (g *Gateway) exclude(r *replica, kind EventKind, err error) {
	g.mu.Lock()
	r.reason = err.Error()
	r.version, r.pending = UnknownVersion, UnknownVersion
	g.abortLocked(r)
	current := g.version
	g.changedLocked()
	g.mu.Unlock()
	g.emit(Event{Kind: kind, Replica: r.ID, Version: current, Message: "replica " + r.ID + " is out: " + err.Error(),
		Err: err})
}

// suspectReplica keeps requests away from a replica for a moment after a connection to it failed. The health that its
// owner reported stays as it is: the owner sees the process, the gateway only a socket.
func (g *Gateway) suspectReplica(r *replica, err error) {
	g.mu.Lock()
	r.failures++
	now, current := g.cfg.Clock.Now(), g.version
	already := r.suspect.After(now)
	if !already {
		r.suspect = now.Add(g.cfg.Cooldown)
	}
	g.mu.Unlock()
	if already { // the requests that failed with the first one
		return
	}
	g.cfg.Clock.AfterFunc(g.cfg.Cooldown, func() {
		g.mu.Lock()
		g.changedLocked()
		g.mu.Unlock()
	})
	g.emit(Event{Kind: EventReplicaDown, Replica: r.ID, Version: current,
		Message: fmt.Sprintf("replica %s failed, next try in %s: %v", r.ID, g.cfg.Cooldown, err), Err: err})
}

// eligibleLocked reports whether r may get a request now.
func (g *Gateway) eligibleLocked(r *replica, now time.Time) bool {
	return r.healthy && r.version == g.version && !r.suspect.After(now)
}

func (g *Gateway) findLocked(id string) *replica {
	for _, r := range g.replicas {
		if r.ID == id {
			return r
		}
	}
	return nil
}

func unknownReplica(id string) error {
	return fmt.Errorf("gateway: no replica %q; SetReplicas names those there are", id)
}
