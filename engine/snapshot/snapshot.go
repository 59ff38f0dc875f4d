// Package snapshot is the state of a run at one moment, folded from its event log. Every view of a running or finished
// run (the live table, status, the summary) is made from a Snapshot.
package snapshot

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/sdk"
)

// Snapshot is a run folded from its events. The zero Snapshot has seen none. It is not safe for concurrent use.
type Snapshot struct {
	Blocks  map[string]*Block
	Started time.Time              // of the latest apply, or of the one whose blocks that has adopted
	Earlier time.Time              // when the apply before it started, if its engine was killed; else zero
	Ended   time.Time              // zero while it runs
	Status  string                 // completed, failed or stopped once ended; running before
	Message string                 // why it ended
	Paused  time.Time              // since when a person has paused it; zero: it is not
	Version int64                  // newest policy version that inference serves
	Outputs map[string]event.Event // of the recipe, by name, those known in the latest apply: the newest event of each
	Samples map[string]Samples     // by environment address or name, as in the events
	Stalls  map[string]event.Event // current stalls, by the address of the cause: the newest event of each
	Last    uint64                 // number of the newest event seen

	Evaluations map[string]*Evaluation // by name
}

// Block is one block of the run.
type Block struct {
	Address    string
	Phase      string
	Message    string // the newest from the block or the engine
	Remedy     string
	Since      time.Time // when the phase began
	Attempt    int       // number of starts
	Restarts   int       // by policy, in this apply
	Step       int64     // of its progress; metrics have their own steps
	Total      int64     // 0: unknown
	Unit       string
	Version    int64              // policy version that inference serves or a sync block has delivered
	Silent     time.Time          // since when its process does not answer; zero: it does
	Metrics    map[string]float64 // newest value of each
	History    map[string]*Series
	Checkpoint event.Event // newest; zero Type when there is none
	Best       *state.Best // from run.json; nil where it is not read, or none has a result
	Updates    int         // weight updates seen, for a sync block
	Needs      []string    // the blocks that its planned configuration refers to, sorted
	Pace       Pace
}

// Samples are the first and the newest scored completion of an environment.
type Samples struct{ First, Last event.Event }

// Apply adds one event. Events come in the order of their numbers.
func (snap *Snapshot) Apply(e event.Event) {
	snap.Last = e.Seq
	switch e.Type {
	case event.RunStarted:
		snap.Earlier = time.Time{}
		if snap.Status == "running" {
			snap.Earlier = snap.Started
		}
		snap.Started, snap.Ended, snap.Status, snap.Message = e.Time, time.Time{}, "running", ""
		snap.Paused = time.Time{}
		clear(snap.Stalls)
		clear(snap.Outputs) // those that are known are told again
		for _, blk := range snap.Blocks {
			blk.Restarts, blk.Pace, blk.Silent = 0, Pace{}, time.Time{}
		}
	case event.Adopted: // the run was not interrupted
		if !snap.Earlier.IsZero() {
			snap.Started = snap.Earlier
		}
	case event.RunEnded:
		snap.Ended, snap.Status, snap.Message, snap.Paused = e.Time, e.Phase, e.Message, time.Time{}
	case event.Paused:
		snap.Paused = e.Time
	case event.Resumed:
		snap.Paused = time.Time{}
		for _, blk := range snap.Blocks {
			blk.Pace = Pace{} // the pause is no part of it
		}
	case event.Stalled:
		if snap.Stalls == nil {
			snap.Stalls = map[string]event.Event{}
		}
		snap.Stalls[e.Address] = e
	case event.StallOver:
		delete(snap.Stalls, e.Address)
	case event.Machine:
		return // its address is the block of a job, which may be over
	case event.Evaluation:
		snap.evaluation(e)
		return // its address is the environment, of which it is no news
	case event.Output:
		if snap.Outputs == nil {
			snap.Outputs = map[string]event.Event{}
		}
		snap.Outputs[e.Name] = e
	}
	if e.Address == "" {
		return
	}
	if e.Type == event.Moved {
		snap.move(e.From, e.Address)
		return
	}
	if e.Type == event.Removed { // its events stay in the log
		delete(snap.Blocks, e.Address)
		return
	}
	snap.block(e.Address).apply(e)
	switch e.Type {
	case event.Weights:
		snap.Version = max(snap.Version, e.Version)
		if e.Inference != "" {
			served := snap.block(e.Inference)
			served.Version = max(served.Version, e.Version)
		}
	case event.Sample:
		snap.sample(e)
	}
}

// SamePhase reports whether the block of a phase event is already in that phase, with the same message.
func (snap *Snapshot) SamePhase(e event.Event) bool {
	blk := snap.Blocks[e.Address]
	return blk != nil && blk.Phase == e.Phase && blk.Message == e.Message && blk.Attempt >= e.BlockAttempt
}

// move gives a block another address.
func (snap *Snapshot) move(from, to string) {
	if blk := snap.Blocks[from]; blk != nil {
		blk.Address, snap.Blocks[to] = to, blk
		delete(snap.Blocks, from)
	}
	if s, ok := snap.Samples[from]; ok {
		snap.Samples[to] = s
		delete(snap.Samples, from)
	}
}

func (snap *Snapshot) block(address string) *Block {
	if snap.Blocks == nil {
		snap.Blocks = map[string]*Block{}
	}
	blk := snap.Blocks[address]
	if blk == nil {
		blk = &Block{Address: address, Phase: string(sdk.Pending), Metrics: map[string]float64{},
			History: map[string]*Series{}}
		snap.Blocks[address] = blk
	}
	return blk
}

func (snap *Snapshot) sample(e event.Event) {
	if snap.Samples == nil {
		snap.Samples = map[string]Samples{}
	}
	name := e.Environment
	if name == "" {
		name = e.Address
	}
	s, known := snap.Samples[name]
	if !known && (len(snap.Samples) >= maxEnvironments || len(name) > maxName) {
		return
	}
	e.Prompt, e.Completion = cut(e.Prompt), cut(e.Completion)
	if s.First.Type == "" {
		s.First = e
	}
	s.Last = e
	snap.Samples[name] = s
}

// What a block reports fills no memory, however many names it uses: what is beyond is in the log alone.
const (
	maxMetrics      = 4096    // of a block
	maxEnvironments = 128     // with samples
	maxName         = 1 << 10 // bytes
	maxSample       = 1 << 20 // bytes of a text
)

// cut shortens a text of a sample.
func cut(text string) string {
	if len(text) <= maxSample {
		return text
	}
	return strings.ToValidUTF8(text[:maxSample], "") + " …" // a copy
}

func (blk *Block) apply(e event.Event) {
	blk.Attempt = max(blk.Attempt, e.BlockAttempt)
	switch e.Type {
	case event.Operation:
		blk.Needs = e.Needs
	case event.Silent:
		blk.Silent = e.Time
	case event.Answers:
		blk.Silent = time.Time{}
	case event.Phase:
		if e.Phase != blk.Phase {
			blk.Since = e.Time
		}
		if e.Phase == string(sdk.Ready) && blk.Phase != e.Phase && blk.Step >= blk.Total {
			blk.Step, blk.Total, blk.Unit, blk.Pace = 0, 0, "", Pace{} // what it counted was its start
		}
		blk.Phase, blk.Message, blk.Remedy, blk.Silent = e.Phase, e.Message, e.Remedy, time.Time{}
	case event.Progress:
		blk.Step, blk.Total, blk.Unit = e.Step, e.Total, e.Unit
		blk.Pace.add(e.Time, e.Step)
	case event.Metrics:
		for name, value := range e.Metrics {
			series := blk.History[name]
			if series == nil && (len(blk.History) >= maxMetrics || len(name) > maxName) {
				continue
			}
			if series == nil {
				series = &Series{}
				blk.History[name] = series
			}
			blk.Metrics[name] = value
			series.Add(e.Step, value)
		}
		if v, ok := e.Metrics["policy_version"]; ok {
			blk.Version = int64(v)
		}
	case event.Checkpoint:
		blk.Checkpoint = e
	case event.Weights:
		blk.Updates++
		blk.Version = max(blk.Version, e.Version)
	case event.Restart:
		blk.Restarts++
		blk.Message = e.Message
	case event.Adopted:
		blk.Message = "adopted from an earlier engine"
	}
}

// Fresh returns the newest metrics; none of a block whose process does not answer: they are old.
func (blk *Block) Fresh() map[string]float64 {
	if !blk.Silent.IsZero() {
		return nil
	}
	return blk.Metrics
}

// Addresses lists the blocks in display order, which is the usual start order of their kinds.
func (snap *Snapshot) Addresses() []string {
	return slices.SortedFunc(maps.Keys(snap.Blocks), compare)
}
