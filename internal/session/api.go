package session

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Open is the request that opens a session.
type Open struct {
	Task     string   `json:"task,omitempty"`     // name of the task, for people
	Group    string   `json:"group,omitempty"`    // name of the group of rollouts of one task
	Index    int      `json:"index,omitempty"`    // of the rollout in its group
	Budget   Budget   `json:"budget,omitzero"`    //
	Sampling Sampling `json:"sampling,omitempty"` // overrules what the program asks for
}

// Budget limits a session. 0: no limit.
type Budget struct {
	Turns   int     `json:"turns,omitempty"`   // calls
	Tokens  int     `json:"tokens,omitempty"`  // sampled, of all calls together
	Context int     `json:"context,omitempty"` // of one call: prompt and answer
	Answer  int     `json:"answer,omitempty"`  // sampled, of one call
	Seconds float64 `json:"seconds,omitempty"` // since the session was opened
}

// Sampling is a distribution: parameters of /v1/completions by name. What is missing has the engine's default;
// temperature is 1.
type Sampling map[string]float64

// parameters are those that a session may have.
var parameters = map[string]bool{"temperature": true, "top_p": true, "top_k": true, "min_p": true,
	"repetition_penalty": true, "presence_penalty": true, "frequency_penalty": true, "seed": true}

// Check finds what a session cannot be opened with.
func (o *Open) Check() error {
	b := o.Budget
	if b.Turns < 0 || b.Tokens < 0 || b.Context < 0 || b.Answer < 0 || !(b.Seconds >= 0) || math.IsInf(b.Seconds, 0) {
		return fmt.Errorf("budget: want numbers from 0 (no limit), got %+v", b)
	}
	for name, v := range o.Sampling {
		if !parameters[name] {
			return fmt.Errorf("sampling: %q is not known; want temperature, top_p, top_k, min_p, repetition_penalty, "+
				"presence_penalty, frequency_penalty or seed", name)
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("sampling: %s is no number", name)
		}
		if name == "seed" && (v < 0 || v > math.MaxInt32 || v != math.Trunc(v)) {
			return fmt.Errorf("sampling: seed: want a whole number from 0 to %d, got %g", math.MaxInt32, v)
		}
	}
	if len(o.Task) > 1024 || len(o.Group) > 1024 {
		return errors.New("task, group: want names of at most 1024 bytes")
	}
	return nil
}

// Opened is the answer to Open.
type Opened struct {
	ID      string `json:"id"`
	Key     string `json:"key"`
	BaseURL string `json:"base_url"` // for OpenAI's clients; the key is their api_key
}

// Stored is what a session was opened with: the first line of its journal.
type Stored struct {
	Format int `json:"format"`
	Open
	Opened time.Time `json:"opened"`
}

// Names of states.
const (
	StateOpen     = "open"
	StateFinished = "finished"
	StateAborted  = "aborted"
)

// State is what changes of a session besides its calls.
type State struct {
	State     string             `json:"state"`
	Why       string             `json:"why,omitempty"`       // it was aborted
	Truncated string             `json:"truncated,omitempty"` // which limit of the budget was reached
	Reward    *float64           `json:"reward,omitempty"`    // none: it is not scored
	Metrics   map[string]float64 `json:"metrics,omitempty"`
}

// Status is a session as its owner sees it.
type Status struct {
	ID string `json:"id"`
	Stored
	State
	Calls     int        `json:"calls"`     // answered
	Pending   int        `json:"pending"`   // being answered
	Sampled   int        `json:"sampled"`   // tokens
	Overruled int        `json:"overruled"` // sampling parameters of the program that the session's overruled
	Sequences []Sequence `json:"sequences,omitempty"`
}
