package gateway

import "time"

// EventKind names what happened.
type EventKind string

// The kinds of events, in the order in which they usually occur.
const (
	EventReplicaUp   EventKind = "replica_up"   // a replica may get requests
	EventReplicaDown EventKind = "replica_down" // a replica gets no requests; Err says why
	EventHeld        EventKind = "held"         // new requests wait; Duration is how long draining took
	EventResumed     EventKind = "resumed"      // requests go through again; Duration is how long they were held
	EventAsleep      EventKind = "asleep"       // the engines have given their GPU's memory back
	// an engine was woken without new weights and serves the same weights as before
	EventAwake        EventKind = "awake"
	EventHoldExpired  EventKind = "hold_expired"  // the owner of a hold did not renew or end it within its lease
	EventUpdated      EventKind = "updated"       // the policy version was raised
	EventUpdateFailed EventKind = "update_failed" // a replica did not load the weights; Err says why
	EventMismatch     EventKind = "mismatch"      // a replica's log-probabilities differ from those expected
	// a replica's answers across updates carry a range of versions, not one a token; Err says why
	EventRangeOnly      EventKind = "range_only"
	EventVersionChanged EventKind = "version_changed" // the policy version was set without an update
	EventNoFiles        EventKind = "no_files"        // all open files are in use: connections wait; sent once
	EventNoUsage        EventKind = "no_usage"        // an engine does not report its load; Err says why; sent once
)

// Event is something that happened in the gateway which a person or the engine may want to know.
type Event struct {
	Time     time.Time     // when
	Kind     EventKind     // what
	Replica  string        // which replica, if one
	Version  int           // the policy version after it
	Hold     string        // which hold, if one
	Duration time.Duration // how long it took, if it took time
	Message  string        // one line for people
	Err      error         // why, if it went wrong
}

// emit passes an event to the owner. Never call it with the lock held.
func (g *Gateway) emit(e Event) {
	e.Time = g.cfg.Clock.Now()
	if e.Kind == EventMismatch {
		g.met.mismatches.Add(1)
	}
	g.cfg.Events(e)
}
