package host

import (
	"fmt"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Event is a report of a block. Seq numbers the events of a block without gaps, over all of its attempts.
type Event struct {
	Seq  uint64
	Time time.Time
	Body Body
}

// Body is the content of an event: PhaseChange, Progress, Metrics, LogLine, Checkpoint, Weights, Sample, Handle,
// Outputs or Gap.
type Body interface{ body() }

type (
	// PhaseChange says that the block has entered another phase. Remedy is for people, when it failed.
	PhaseChange struct {
		Phase           sdk.Phase
		Message, Remedy string
	}
	// Progress says how far a job is. Total 0 means unknown.
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
	// Handle is passed to the next attempt of the block. It is opaque except to package sdk/proc.
	Handle struct{ Data []byte }
	// Outputs replace the previous ones. Some of them are sensitive: never log or store them unredacted.
	Outputs struct{ Values cty.Value }
	// Gap says that the events From to To are lost.
	Gap struct{ From, To uint64 }
)

func (PhaseChange) body() {}
func (Progress) body()    {}
func (Metrics) body()     {}
func (LogLine) body()     {}
func (Checkpoint) body()  {}
func (Weights) body()     {}
func (Sample) body()      {}
func (Handle) body()      {}
func (Outputs) body()     {}
func (Gap) body()         {}

// eventOf reads an event of the protocol. A body that this engine does not know, from a newer plugin, is nil.
func eventOf(e *pluginpb.Event, outputs *spec.Schema) (Event, error) {
	out := Event{Seq: e.GetSeq(), Time: time.Unix(0, e.GetTimeUnixNano())}
	switch b := e.GetBody().(type) {
	case *pluginpb.Event_Phase:
		out.Body = PhaseChange{sdk.Phase(b.Phase.GetPhase()), b.Phase.GetMessage(), b.Phase.GetRemedy()}
	case *pluginpb.Event_Progress:
		out.Body = Progress{b.Progress.GetStep(), b.Progress.GetTotal(), b.Progress.GetUnit()}
	case *pluginpb.Event_Metrics:
		out.Body = Metrics{b.Metrics.GetStep(), b.Metrics.GetValues()}
	case *pluginpb.Event_Log:
		out.Body = LogLine{b.Log.GetLevel(), b.Log.GetMessage()}
	case *pluginpb.Event_Checkpoint:
		out.Body = Checkpoint{sdk.CheckpointInfo{Path: b.Checkpoint.GetPath(), Step: b.Checkpoint.GetStep(),
			Version: b.Checkpoint.GetPolicyVersion()}}
	case *pluginpb.Event_Weights:
		w := b.Weights
		out.Body = Weights{sdk.WeightsInfo{
			Version: w.GetVersion(), Path: w.GetPath(), Format: w.GetFormat(), Transport: w.GetTransport(),
			Inference: w.GetInference(),
			Seconds:   w.GetSeconds(), Phases: w.GetPhases(), MaxLogprobDifference: w.GetMaxLogprobDifference(),
		}}
	case *pluginpb.Event_Sample:
		s := b.Sample
		out.Body = Sample{sdk.Sample{
			Environment: s.GetEnvironment(), Prompt: s.GetPrompt(), Completion: s.GetCompletion(), Score: s.GetScore(),
			Version: s.GetPolicyVersion(),
		}}
	case *pluginpb.Event_Handle:
		out.Body = Handle{b.Handle.GetData()}
	case *pluginpb.Event_Gap:
		out.Body = Gap{b.Gap.GetFrom(), b.Gap.GetTo()}
	case *pluginpb.Event_Outputs:
		values, err := spec.Unmarshal(b.Outputs.GetValues(), outputs)
		if err != nil {
			return Event{}, fmt.Errorf("event %d: %w", e.GetSeq(), err)
		}
		out.Body = Outputs{values}
	}
	return out, nil
}
