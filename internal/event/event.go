// Package event is what a block reports: one type for the plugin's process, its event log and the engine.
package event

import (
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/trace"
)

// Event is one report of a block. Seq numbers the events of a block without gaps, over all of its attempts.
type Event struct {
	Seq  uint64
	Time time.Time
	Body Body
}

// Body is the content of an event: PhaseChange, MemoryTaken, Progress, Metrics, LogLine, Checkpoint, Weights, Sample,
// Span, Handle, Outputs or Gap. It is not changed once it has been reported: the log and all readers share it.
type Body interface{ body() }

type (
	// PhaseChange says that the block has entered another phase. When it failed, Remedy is for people, and Path leads to
	// the setting that it failed for, if it is one; Places are those of several, as in sdk.Error.
	PhaseChange struct {
		Phase           sdk.Phase
		Message, Remedy string
		Path            cty.Path
		Places          map[string]cty.Path
		Final           bool // of a failure: another attempt would fail likewise
	}
	// MemoryTaken says whether a block that is starting holds all memory of its accelerators whose amount it decides by
	// what is free there.
	MemoryTaken struct{ Taken bool }
	// Progress describes how far a job is. Total 0 means unknown.
	Progress struct {
		Step, Total int64
		Unit        string
	}
	// Metrics are numbers at a step.
	Metrics struct {
		Step   int64
		Values map[string]float64
	}
	// LogLine is one line of the block's log.
	LogLine struct{ Level, Message string }
	// Checkpoint is complete on disk.
	Checkpoint struct{ sdk.CheckpointInfo }
	// Weights were loaded by one inference block.
	Weights struct{ sdk.WeightsInfo }
	// Sample is one scored completion.
	Sample struct{ sdk.Sample }
	// Span is one span of a trace.
	Span struct{ trace.Span }
	// Handle is passed to the next attempt of the block. It is opaque except to package sdk/proc.
	Handle struct{ Data []byte }
	// Outputs replace the previous ones. Some of them are sensitive: never log or store them unredacted.
	Outputs struct{ Values cty.Value }
	// Gap reports that the events From to To are lost.
	Gap struct{ From, To uint64 }
)

func (PhaseChange) body() {}
func (MemoryTaken) body() {}
func (Progress) body()    {}
func (Metrics) body()     {}
func (LogLine) body()     {}
func (Checkpoint) body()  {}
func (Weights) body()     {}
func (Sample) body()      {}
func (Span) body()        {}
func (Handle) body()      {}
func (Outputs) body()     {}
func (Gap) body()         {}
