package run

import (
	"fmt"

	"github.com/recipe-rl/recipe/engine/event"
	blockevent "github.com/recipe-rl/recipe/internal/event"
)

// translate turns a block's event into one for the log. Outputs and handles are not for the log: ok is false.
func translate(address string, attempt int, e blockevent.Event) (out event.Event, ok bool) {
	out = event.Event{Address: address, BlockAttempt: attempt, Cursor: e.Seq, Time: e.Time.UTC()}
	switch b := e.Body.(type) {
	case blockevent.PhaseChange:
		out.Type, out.Phase, out.Message, out.Remedy = event.Phase, string(b.Phase), b.Message, b.Remedy
	case blockevent.Progress:
		out.Type, out.Step, out.Total, out.Unit = event.Progress, b.Step, b.Total, b.Unit
	case blockevent.Metrics:
		out.Type, out.Step, out.Metrics = event.Metrics, b.Step, b.Values
	case blockevent.LogLine:
		out.Type, out.Level, out.Message = event.LogLine, b.Level, b.Message
	case blockevent.Checkpoint:
		out.Type, out.Path, out.Step, out.Version = event.Checkpoint, b.Path, b.Step, b.Version
	case blockevent.Weights:
		out.Type, out.Version, out.Path, out.Format = event.Weights, b.Version, b.Path, b.Format
		out.Transport, out.Seconds, out.Inference = string(b.Transport), b.Seconds, b.Inference
		out.Metrics = map[string]float64{"max_logprob_difference": b.MaxLogprobDifference}
		for name, s := range b.Phases {
			out.Metrics["seconds_"+name] = s
		}
	case blockevent.Sample:
		out.Type, out.Environment, out.Prompt, out.Completion = event.Sample, b.Environment, b.Prompt, b.Completion
		out.Score, out.Version = b.Score, b.Version
	case blockevent.Span:
		began := b.Began.UTC()
		out.Type, out.Name, out.TraceID, out.SpanID, out.ParentID = event.Span, b.Name, b.TraceID, b.SpanID, b.ParentID
		out.Began, out.Seconds, out.Message = &began, b.Ended.Sub(b.Began).Seconds(), b.Error
		out.Attributes, out.Metrics = b.Attributes, b.Numbers
	case blockevent.Gap:
		out.Type, out.Level = event.Notice, "warn"
		out.Message = fmt.Sprintf("its events %d to %d are lost: no engine read them in time", b.From, b.To)
	default:
		return out, false
	}
	return out, true
}
