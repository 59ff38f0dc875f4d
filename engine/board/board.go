// Package board is what a run looks like at one moment, folded from its event log. Every view of a running or finished run
// (the live table, status, the summary) is made from a Board, so that none of them keeps books of its own.
package board

import (
	"sort"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/sdk"
)

// Board is a run as its events tell it. The zero Board is a run of which nothing is known. It is not safe for concurrent use.
type Board struct {
	Blocks  map[string]*Block
	Started time.Time // of the latest apply
	Ended   time.Time // zero while it goes on
	Status  string    // completed, failed or stopped once ended; running before
	Message string    // why it ended
	Version int64     // newest policy version that inference serves
	Outputs map[string]any
	Samples map[string]Samples     // by environment address or name, whatever the events say
	Stalls  map[string]event.Event // what stands still, by the address at its cause: the newest event of each
	Last    uint64                 // number of the newest event seen
}

// Block is one block of the run.
type Block struct {
	Address    string
	Phase      string
	Message    string // the newest that the block or the engine said of it
	Remedy     string
	Since      time.Time // when the phase began
	Life       int       // how often it was started
	Restarts   int       // by policy, in this apply
	Step       int64     // as its progress says; metrics count in steps of their own
	Total      int64     // 0: unknown
	Unit       string
	Version    int64              // policy version that inference serves or a sync block has brought
	Metrics    map[string]float64 // newest value of each
	History    map[string]*Series
	Checkpoint event.Event // newest; zero Type when there is none
	Updates    int         // weight updates seen, for a sync block
}

// Samples are the first and the newest scored completion of an environment.
type Samples struct{ First, Last event.Event }

// Apply takes one more event into account. Events come in the order of their numbers.
func (b *Board) Apply(e event.Event) {
	b.Last = e.Seq
	switch e.Type {
	case event.RunStarted:
		b.Started, b.Ended, b.Status, b.Message = e.Time, time.Time{}, "running", ""
		clear(b.Stalls)
		for _, blk := range b.Blocks {
			blk.Restarts = 0
		}
	case event.RunEnded:
		b.Ended, b.Status, b.Message = e.Time, e.Phase, e.Message
	case event.Stalled:
		if b.Stalls == nil {
			b.Stalls = map[string]event.Event{}
		}
		b.Stalls[e.Address] = e
	case event.StallOver:
		delete(b.Stalls, e.Address)
	case event.Output:
		if b.Outputs == nil {
			b.Outputs = map[string]any{}
		}
		b.Outputs[e.Name] = e.Value
	}
	if e.Address == "" {
		return
	}
	if e.Type == event.Removed { // what it said stays in the log
		delete(b.Blocks, e.Address)
		return
	}
	b.block(e.Address).apply(e)
	switch e.Type {
	case event.Weights:
		b.Version = max(b.Version, e.Version)
		if e.Inference != "" {
			served := b.block(e.Inference)
			served.Version = max(served.Version, e.Version)
		}
	case event.Sample:
		b.sample(e)
	}
}

// Stands says whether the block of a phase event already stands at that phase, for the same reason.
func (b *Board) Stands(e event.Event) bool {
	blk := b.Blocks[e.Address]
	return blk != nil && blk.Phase == e.Phase && blk.Message == e.Message && blk.Life >= e.Life
}

func (b *Board) block(address string) *Block {
	if b.Blocks == nil {
		b.Blocks = map[string]*Block{}
	}
	blk := b.Blocks[address]
	if blk == nil {
		blk = &Block{Address: address, Phase: string(sdk.Pending), Metrics: map[string]float64{}, History: map[string]*Series{}}
		b.Blocks[address] = blk
	}
	return blk
}

func (b *Board) sample(e event.Event) {
	if b.Samples == nil {
		b.Samples = map[string]Samples{}
	}
	name := e.Environment
	if name == "" {
		name = e.Address
	}
	s := b.Samples[name]
	if s.First.Type == "" {
		s.First = e
	}
	s.Last = e
	b.Samples[name] = s
}

func (blk *Block) apply(e event.Event) {
	blk.Life = max(blk.Life, e.Life)
	switch e.Type {
	case event.Phase:
		if e.Phase != blk.Phase {
			blk.Since = e.Time
		}
		blk.Phase, blk.Message, blk.Remedy = e.Phase, e.Message, e.Remedy
	case event.Progress:
		blk.Step, blk.Total, blk.Unit = e.Step, e.Total, e.Unit
	case event.Metrics:
		for name, value := range e.Metrics {
			blk.Metrics[name] = value
			series := blk.History[name]
			if series == nil {
				series = &Series{}
				blk.History[name] = series
			}
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
		blk.Message = "taken over"
	}
}

// Addresses lists the blocks in the order in which people look at them: trainers last but sync, as they start.
func (b *Board) Addresses() []string {
	out := make([]string, 0, len(b.Blocks))
	for a := range b.Blocks {
		out = append(out, a)
	}
	sort.Slice(out, func(i, j int) bool { return less(out[i], out[j]) })
	return out
}

// Read folds the whole log in dir.
func Read(dir string) (*Board, error) {
	b := &Board{}
	err := event.Read(dir, 0, func(e event.Event) error {
		b.Apply(e)
		return nil
	})
	return b, err
}
