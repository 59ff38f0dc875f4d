package run

import (
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
)

// translate turns a plugin's event into one for the log. Outputs and handles are not for the log: ok is false.
func translate(address string, life int, e *pluginpb.Event) (out event.Event, ok bool) {
	out = event.Event{Address: address, Life: life, Cursor: e.GetSeq()}
	if t := e.GetTimeUnixNano(); t > 0 {
		out.Time = time.Unix(0, t).UTC()
	}
	switch b := e.GetBody().(type) {
	case *pluginpb.Event_Phase:
		out.Type, out.Phase, out.Message, out.Remedy = event.Phase, b.Phase.GetPhase(), b.Phase.GetMessage(), b.Phase.GetRemedy()
	case *pluginpb.Event_Progress:
		out.Type, out.Step, out.Total, out.Unit = event.Progress, b.Progress.GetStep(), b.Progress.GetTotal(), b.Progress.GetUnit()
	case *pluginpb.Event_Metrics:
		out.Type, out.Step, out.Metrics = event.Metrics, b.Metrics.GetStep(), b.Metrics.GetValues()
	case *pluginpb.Event_Log:
		out.Type, out.Level, out.Message = event.LogLine, b.Log.GetLevel(), b.Log.GetMessage()
	case *pluginpb.Event_Checkpoint:
		out.Type, out.Path, out.Step, out.Version = event.Checkpoint, b.Checkpoint.GetPath(), b.Checkpoint.GetStep(), b.Checkpoint.GetPolicyVersion()
	case *pluginpb.Event_Weights:
		w := b.Weights
		out.Type, out.Version, out.Path, out.Format = event.Weights, w.GetVersion(), w.GetPath(), w.GetFormat()
		out.Transport, out.Seconds, out.Inference = w.GetTransport(), w.GetSeconds(), w.GetInference()
		out.Metrics = map[string]float64{"max_logprob_difference": w.GetMaxLogprobDifference()}
		for name, s := range w.GetPhases() {
			out.Metrics["seconds_"+name] = s
		}
	case *pluginpb.Event_Sample:
		s := b.Sample
		out.Type, out.Environment, out.Prompt, out.Completion = event.Sample, s.GetEnvironment(), s.GetPrompt(), s.GetCompletion()
		out.Score, out.Version = s.GetScore(), s.GetPolicyVersion()
	default:
		return out, false
	}
	return out, true
}
