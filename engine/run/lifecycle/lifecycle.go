// Package lifecycle is the state machine of a block in a run: a State, the triggers that change it, and Next, a pure
// function. It starts and stops nothing: the supervisor of engine/run does what a change needs.
package lifecycle

import "github.com/recipe-rl/recipe/sdk"

// State is where one block is, and what is to follow. Its zero value, with the phase sdk.Pending, is a block that is
// to run and waits for its needs.
type State struct {
	Goal  Goal
	Stage Stage
	Phase sdk.Phase // as reported last; of a block that does not run: how it ended, or Pending when it may start
	Ready bool      // it was ready in this attempt
	Again bool      // it is started again when this attempt has ended
	From  Origin    // where its next attempt begins
}

// Goal is the state that the supervisor wants a block to reach.
type Goal int

// What a block is to reach.
const (
	Up      Goal = iota // running, or completed if it is a job
	Down                // ended, after the blocks that need it
	Removed             // ended and no longer part of the run
)

// Stage is what the engine does for a block now.
type Stage int

// The stages of a block.
const (
	Idle      Stage = iota // nothing of the block runs
	Preparing              // its process prepares; the start follows when its needs are met
	Settled                // as preparing, and it may use all free GPU memory: no other block needs to measure it any more
	Running                // its process was started
	Stopping               // its process was ordered to stop
	Delayed                // its process failed; a timer runs until the next attempt
	Checked                // an external server, which the engine checks and does not run
)

func (s Stage) String() string {
	return [...]string{"idle", "preparing", "settled", "running", "stopping", "delayed", "checked"}[s]
}

// Origin is where an attempt begins.
type Origin int

// The origins of an attempt.
const (
	Recorded Origin = iota // at the last checkpoint if the block has had an attempt, else at the beginning
	Resumed                // at the last checkpoint
	Scratch                // at the beginning; what the block has produced is set aside
)

// HasProcess reports whether an attempt runs.
func (s State) HasProcess() bool { return s.IsPreparing() || s.WasStarted() }

// IsPreparing reports whether an attempt runs and was not started.
func (s State) IsPreparing() bool { return s.Stage == Preparing || s.Stage == Settled }

// WasStarted reports whether an attempt runs that was started, or ordered to stop.
func (s State) WasStarted() bool { return s.Stage == Running || s.Stage == Stopping }

// Over reports whether the block has ended and will not be started again.
func (s State) Over() bool { return s.Stage == Idle && s.Phase.Over() }

// MayBegin reports whether an attempt may begin as soon as the needs of the block are met.
func (s State) MayBegin() bool { return s.Goal == Up && s.Stage == Idle && s.Phase == sdk.Pending }

// Trigger is what changes the state of a block.
type Trigger interface{ isTrigger() }

type trigger struct{}

func (trigger) isTrigger() {}

// Triggers that a plan or a person causes.
type (
	// Undeclared means that the recipe does not declare the block any more.
	Undeclared struct{ trigger }
	// Redeclared means that the recipe declares the block again before it has ended.
	Redeclared struct{ trigger }
	// Replanned means that a plan starts the block again.
	Replanned struct {
		trigger
		From Origin
	}
	// Restarted means that a person starts the block again, or that a block that it needs has another address.
	Restarted struct{ trigger }
	// RunEnds means that all blocks are to stop.
	RunEnds struct{ trigger }
)

// Triggers that are acts of the supervisor.
type (
	// Begun means that a process is launched or adopted. It prepares first, or starts at once.
	Begun struct {
		trigger
		Prepares bool
	}
	// Started means that a prepared process is started.
	Started struct{ trigger }
	// MayUseMemory means that a prepared process may use all free GPU memory.
	MayUseMemory struct{ trigger }
	// Ordered means that a process is ordered to stop.
	Ordered struct{ trigger }
	// CheckBegan means that the checks of an external server begin.
	CheckBegan struct{ trigger }
	// Concluded means that a block without a process is done, or cannot be started.
	Concluded struct {
		trigger
		Phase sdk.Phase
	}
)

// Triggers that come from the block.
type (
	// Reported means that the process, or the check of an external server, reports a phase.
	Reported struct {
		trigger
		Phase sdk.Phase
	}
	// Exited means that the process has ended and is not restarted by the policy.
	Exited struct {
		trigger
		Phase sdk.Phase
	}
	// Retried means that the process has failed and the restart policy allows another attempt after a delay.
	Retried struct{ trigger }
	// DelayOver means that this delay is over.
	DelayOver struct{ trigger }
)

// Next returns the state that follows a trigger. It returns false when the trigger has no meaning in this state, for
// example a late report of a process that has ended.
func Next(s State, t Trigger) (State, bool) {
	switch t := t.(type) {
	case Undeclared:
		s.Goal, s.Again = Removed, false
	case Redeclared:
		if s.Goal != Removed {
			return s, false
		}
		s.Goal, s.Again, s.From = Up, s.Stage == Stopping, max(s.From, Resumed)
	case Replanned:
		s.Goal, s.Again, s.From = Up, true, t.From
	case Restarted:
		s.Goal, s.Again, s.From = Up, true, max(s.From, Resumed)
	case RunEnds:
		if s.Goal == Up {
			s.Goal, s.Again = Down, false
		}
	case Begun:
		if !s.MayBegin() {
			return s, false
		}
		s.Stage, s.Phase = Running, sdk.Starting
		if t.Prepares {
			s.Stage, s.Phase = Preparing, sdk.Preparing
		}
		s.Ready, s.From = false, Recorded
	case Started:
		if !s.IsPreparing() {
			return s, false
		}
		s.Stage = Running
	case MayUseMemory:
		if s.Stage != Preparing {
			return s, false
		}
		s.Stage = Settled
	case Ordered:
		if !s.HasProcess() || s.Stage == Stopping {
			return s, false
		}
		s.Stage = Stopping
	case CheckBegan:
		if !s.MayBegin() {
			return s, false
		}
		s.Stage, s.Phase, s.From = Checked, sdk.Starting, Recorded
	case Concluded:
		if !s.MayBegin() {
			return s, false
		}
		s.Phase, s.Ready = t.Phase, t.Phase != sdk.Failed
	case Reported:
		if !s.HasProcess() && s.Stage != Checked {
			return s, false
		}
		s.Phase = t.Phase
		s.Ready = s.Ready || t.Phase == sdk.Ready || t.Phase == sdk.Degraded
		if s.Stage == Checked && t.Phase == sdk.Failed {
			s.Stage = Idle
		}
	case Exited:
		if !s.HasProcess() {
			return s, false
		}
		s.Stage, s.Phase = Idle, t.Phase
	case Retried:
		if !s.HasProcess() || s.Goal != Up || s.Again {
			return s, false
		}
		s.Stage, s.Phase, s.From = Delayed, sdk.Stopped, max(s.From, Resumed)
	case DelayOver:
		if s.Stage != Delayed {
			return s, false
		}
		s.Stage, s.Phase = Idle, sdk.Pending
	}
	return s.withoutProcess(), true
}

// withoutProcess does at once what a block with a process does when the process has ended.
func (s State) withoutProcess() State {
	if s.HasProcess() {
		return s
	}
	switch {
	case s.Goal == Up && s.Again:
		s.Stage, s.Phase, s.Ready, s.Again = Idle, sdk.Pending, false, false
	case s.Goal != Up:
		s.Stage = Idle
		if !s.Phase.Over() {
			s.Phase = sdk.Stopped
		}
	}
	return s
}
