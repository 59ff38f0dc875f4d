package wire

import (
	"fmt"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/trace"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// EncodeEvent makes the message of an event. Outputs is the schema of the block's outputs.
func EncodeEvent(e event.Event, outputs *spec.Schema) (*pluginpb.Event, error) {
	m := &pluginpb.Event{Seq: e.Seq, TimeUnixNano: e.Time.UnixNano()}
	switch b := e.Body.(type) {
	case event.PhaseChange:
		phase := &pluginpb.Phase{Phase: string(b.Phase), Message: b.Message, Remedy: b.Remedy, Final: b.Final}
		if len(b.Path) > 0 {
			var err error
			if phase.Path, err = spec.MarshalPath(b.Path); err != nil {
				return nil, fmt.Errorf("encode event %d: %w", e.Seq, err)
			}
		}
		for name, path := range b.Places {
			data, err := spec.MarshalPath(path)
			if err != nil {
				return nil, fmt.Errorf("encode event %d: %w", e.Seq, err)
			}
			if phase.Places == nil {
				phase.Places = map[string][]byte{}
			}
			phase.Places[name] = data
		}
		m.Body = &pluginpb.Event_Phase{Phase: phase}
	case event.MemoryTaken:
		m.Body = &pluginpb.Event_MemoryTaken{MemoryTaken: &pluginpb.MemoryTaken{Taken: b.Taken}}
	case event.Progress:
		m.Body = &pluginpb.Event_Progress{Progress: &pluginpb.Progress{Step: b.Step, Total: b.Total, Unit: b.Unit}}
	case event.Metrics:
		m.Body = &pluginpb.Event_Metrics{Metrics: &pluginpb.Metrics{Step: b.Step, Values: b.Values}}
	case event.LogLine:
		m.Body = &pluginpb.Event_Log{Log: &pluginpb.Log{Level: b.Level, Message: b.Message}}
	case event.Checkpoint:
		m.Body = &pluginpb.Event_Checkpoint{Checkpoint: &pluginpb.CheckpointSaved{Path: b.Path, Step: b.Step,
			PolicyVersion: b.Version}}
	case event.Weights:
		m.Body = &pluginpb.Event_Weights{Weights: &pluginpb.Weights{
			Version: b.Version, Path: b.Path, Format: b.Format, Transport: string(b.Transport), Inference: b.Inference,
			Seconds: b.Seconds, Phases: b.Phases, MaxLogprobDifference: b.MaxLogprobDifference,
		}}
	case event.Sample:
		m.Body = &pluginpb.Event_Sample{Sample: &pluginpb.Sample{Environment: b.Environment, Prompt: b.Prompt,
			Completion: b.Completion, Score: b.Score, PolicyVersion: b.Version}}
	case event.Span:
		m.Body = &pluginpb.Event_Span{Span: &pluginpb.Span{TraceId: b.TraceID, SpanId: b.SpanID,
			ParentSpanId: b.ParentID, Name: b.Name, StartUnixNano: b.Began.UnixNano(), EndUnixNano: b.Ended.UnixNano(),
			Error: b.Error, Attributes: b.Attributes, Numbers: b.Numbers}}
	case event.Handle:
		m.Body = &pluginpb.Event_Handle{Handle: &pluginpb.Handle{Data: b.Data}}
	case event.Gap:
		m.Body = &pluginpb.Event_Gap{Gap: &pluginpb.Gap{From: b.From, To: b.To}}
	case event.Outputs:
		data, err := spec.Marshal(b.Values, outputs)
		if err != nil {
			return nil, fmt.Errorf("encode event %d: %w", e.Seq, err)
		}
		m.Body = &pluginpb.Event_Outputs{Outputs: &pluginpb.Outputs{Values: data}}
	default:
		return nil, fmt.Errorf("encode event %d: a body of type %T has no message", e.Seq, e.Body)
	}
	return Readable(m), nil
}

// places are the paths that can be read.
func places(encoded map[string][]byte) map[string]cty.Path {
	var out map[string]cty.Path
	for name, data := range encoded {
		if path, err := spec.UnmarshalPath(data); err == nil {
			if out == nil {
				out = map[string]cty.Path{}
			}
			out[name] = path
		}
	}
	return out
}

// DecodeEvent reads the message of an event. A body that this version does not know, from a newer plugin, is nil.
func DecodeEvent(m *pluginpb.Event, outputs *spec.Schema) (event.Event, error) {
	e := event.Event{Seq: m.GetSeq(), Time: time.Unix(0, m.GetTimeUnixNano())}
	switch b := m.GetBody().(type) {
	case *pluginpb.Event_Phase:
		path, err := spec.UnmarshalPath(b.Phase.GetPath())
		if err != nil { // how a block ended is worth more than where its mistake is
			path = nil
		}
		e.Body = event.PhaseChange{Phase: sdk.Phase(b.Phase.GetPhase()), Message: b.Phase.GetMessage(),
			Remedy: b.Phase.GetRemedy(), Path: path, Places: places(b.Phase.GetPlaces()),
			Final: b.Phase.GetFinal()}
	case *pluginpb.Event_MemoryTaken:
		e.Body = event.MemoryTaken{Taken: b.MemoryTaken.GetTaken()}
	case *pluginpb.Event_Progress:
		e.Body = event.Progress{Step: b.Progress.GetStep(), Total: b.Progress.GetTotal(), Unit: b.Progress.GetUnit()}
	case *pluginpb.Event_Metrics:
		e.Body = event.Metrics{Step: b.Metrics.GetStep(), Values: b.Metrics.GetValues()}
	case *pluginpb.Event_Log:
		e.Body = event.LogLine{Level: b.Log.GetLevel(), Message: b.Log.GetMessage()}
	case *pluginpb.Event_Checkpoint:
		e.Body = event.Checkpoint{CheckpointInfo: sdk.CheckpointInfo{Path: b.Checkpoint.GetPath(),
			Step: b.Checkpoint.GetStep(), Version: b.Checkpoint.GetPolicyVersion()}}
	case *pluginpb.Event_Weights:
		w := b.Weights
		e.Body = event.Weights{WeightsInfo: sdk.WeightsInfo{
			Version: w.GetVersion(), Path: w.GetPath(), Format: w.GetFormat(), Transport: transport.Name(w.GetTransport()),
			Inference: w.GetInference(), Seconds: w.GetSeconds(), Phases: w.GetPhases(),
			MaxLogprobDifference: w.GetMaxLogprobDifference(),
		}}
	case *pluginpb.Event_Sample:
		s := b.Sample
		e.Body = event.Sample{Sample: sdk.Sample{Environment: s.GetEnvironment(), Prompt: s.GetPrompt(),
			Completion: s.GetCompletion(), Score: s.GetScore(), Version: s.GetPolicyVersion()}}
	case *pluginpb.Event_Span:
		s := b.Span
		e.Body = event.Span{Span: trace.Span{
			Context:  trace.Context{TraceID: s.GetTraceId(), SpanID: s.GetSpanId(), Sampled: true},
			ParentID: s.GetParentSpanId(), Name: s.GetName(), Began: time.Unix(0, s.GetStartUnixNano()),
			Ended: time.Unix(0, s.GetEndUnixNano()), Error: s.GetError(), Attributes: s.GetAttributes(),
			Numbers: s.GetNumbers()}}
	case *pluginpb.Event_Handle:
		e.Body = event.Handle{Data: b.Handle.GetData()}
	case *pluginpb.Event_Gap:
		e.Body = event.Gap{From: b.Gap.GetFrom(), To: b.Gap.GetTo()}
	case *pluginpb.Event_Outputs:
		values, err := spec.Unmarshal(b.Outputs.GetValues(), outputs)
		if err != nil {
			return event.Event{}, fmt.Errorf("event %d: %w", m.GetSeq(), err)
		}
		e.Body = event.Outputs{Values: values}
	}
	return e, nil
}
