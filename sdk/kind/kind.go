// Package kind names the kinds of block that a recipe is made of and how each of them lives.
package kind

// Kind is the contract that a block fulfills: what goes in and what comes out. Any plugin of a kind can replace
// another.
type Kind string

// The kinds of block.
const (
	Inference    Kind = "inference"
	Trajectories Kind = "trajectories"
	Environment  Kind = "environment"
	Trainer      Kind = "trainer"
	Sync         Kind = "sync"
	Executor     Kind = "executor"
)

// All lists every kind in the order in which their blocks usually start.
func All() []Kind {
	return []Kind{Executor, Trajectories, Inference, Environment, Trainer, Sync}
}

// Valid reports whether k is one of the kinds.
func (k Kind) Valid() bool {
	for _, known := range All() {
		if k == known {
			return true
		}
	}
	return false
}

// Life is how long a block of a kind lives.
type Life string

const (
	// Service runs until what refers to it has ended.
	Service Life = "service"
	// Job ends by itself; when the last job has ended, the run ends.
	Job Life = "job"
	// Loop is an edge with an owner, a period and a version (sync): it starts last and is stopped first.
	Loop Life = "loop"
	// Config starts no process of its own (executor).
	Config Life = "config"
)

// Life returns how long a block of this kind lives.
func (k Kind) Life() Life {
	switch k {
	case Trainer:
		return Job
	case Sync:
		return Loop
	case Executor:
		return Config
	default:
		return Service
	}
}
