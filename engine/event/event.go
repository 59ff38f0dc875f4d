// Package event is the one event log of a run. Everything that shows a run (the terminal, status, logs, --json, the
// summary) is a reader of it; only the engine writes it. The format is versioned and documented in docs/events.md.
package event

import "time"

// FormatVersion is the `v` of every event written by this engine. Readers skip events of a higher version.
const FormatVersion = 1

// Type describes what an event is about and which of its fields are set.
type Type string

// The types of event.
const (
	RunStarted Type = "run_started" // Message: "apply", "resume", …; Digest
	RunEnded   Type = "run_ended"   // Phase: completed, failed, stopped; Message
	Phase      Type = "phase"       // Address, Phase, Message, Remedy
	Progress   Type = "progress"    // Address, Step, Total, Unit
	Metrics    Type = "metrics"     // Address, Step, Metrics
	LogLine    Type = "log"         // Address, Level, Message; Stream when the plugin's process printed it
	Checkpoint Type = "checkpoint"  // Address, Path, Step, Version
	// Address (of the sync block), Inference, Version, Path, Format, Transport, Seconds, Metrics (per phase)
	Weights Type = "weights"
	Sample  Type = "sample" // Address, Environment, Prompt, Completion, Score, Version
	// Address, Name, TraceID, SpanID, ParentID, Began, Seconds, Message (its error), Attributes, Metrics
	Span      Type = "span"
	Restart   Type = "restart"   // Address, Attempt, Delay (seconds), Message (why)
	Adopted   Type = "adopted"   // Address, PID: found alive after an engine ended
	Operation Type = "operation" // Address, Action, Message: what a plan made the engine do
	Output    Type = "output"    // Name, and Value, or Sensitive: its value is known, and not written
	Removed   Type = "removed"   // Address: the block has ended and is no longer part of the run
	Moved     Type = "moved"     // Address, From: the block had the address From until now
	Notice    Type = "notice"    // Level, Message: from the engine itself
	Paused    Type = "paused"    // a person has paused the run
	Resumed   Type = "resumed"   // it goes on; Seconds (length of the pause)
	// Cursors: the first line of every file but the first, with the number of the event before it
	LogFile Type = "log_file"
	// Address (of the cause), Message (who waits for whom), Remedy, Seconds (without progress)
	Stalled   Type = "stalled"
	StallOver Type = "stall_over" // Address, Seconds (length of the stall)
	Silent    Type = "silent"     // Address, Message: its process does not answer; what it reported before is old
	Answers   Type = "answers"    // Address: it does again
	// Name (of the alert), Message, Address and Step (of what it is about): its condition begins to hold
	Alert     Type = "alert"
	AlertOver Type = "alert_over" // Name: its condition holds no more
	// Name (of the evaluation), Address (of its environment), State, Step, Version, Message; of one that is done Seconds,
	// Metrics, Path (of its result)
	Evaluation Type = "evaluation"
	// Address, State, On (the block waited for), Message (what it is), Seconds (how long it has lasted)
	Activity Type = "activity"
	// Metrics: use of the processors, memory and GPUs of the engine's machine, or with Address and Host of the machine
	// of the block's job
	Machine Type = "machine"
)

// The states of an Activity.
const (
	Working = "work"
	Waiting = "wait"
	Resting = "rest" // there is nothing to do
)

// The states of an Evaluation.
const (
	EvaluationBegun  = "begun"
	EvaluationDone   = "done"
	EvaluationFailed = "failed" // there is no result
)

// Event is one line of the log. Fields that a type does not use are left out.
type Event struct {
	V    int       `json:"v"`
	Seq  uint64    `json:"seq"` // 1, 2, 3 … within a run
	Time time.Time `json:"time"`
	Type Type      `json:"type"`

	Address      string `json:"address,omitempty"`
	From         string `json:"from,omitempty"`   // an address
	Cursor       uint64 `json:"cursor,omitempty"` // the plugin's number of this event; reading continues there
	BlockAttempt int    `json:"life,omitempty"`   // which start of the block it comes from, from 1

	Phase   string `json:"phase,omitempty"`
	Message string `json:"message,omitempty"`
	Remedy  string `json:"remedy,omitempty"`
	Level   string `json:"level,omitempty"`
	Stream  string `json:"stream,omitempty"` // stdout or stderr: a line that the plugin's process has printed
	Action  string `json:"action,omitempty"`
	Digest  string `json:"digest,omitempty"`

	Host  string `json:"host,omitempty"`
	State string `json:"state,omitempty"`
	On    string `json:"on,omitempty"`

	Needs []string `json:"needs,omitempty"` // addresses of the blocks that a configuration refers to

	Step    int64              `json:"step,omitempty"`
	Total   int64              `json:"total,omitempty"`
	Unit    string             `json:"unit,omitempty"`
	Metrics map[string]float64 `json:"metrics,omitempty"`

	Path      string  `json:"path,omitempty"`
	Format    string  `json:"format,omitempty"`
	Version   int64   `json:"version,omitempty"`
	Transport string  `json:"transport,omitempty"`
	Seconds   float64 `json:"seconds,omitempty"`
	Inference string  `json:"inference,omitempty"`

	Environment string  `json:"environment,omitempty"`
	Prompt      string  `json:"prompt,omitempty"`
	Completion  string  `json:"completion,omitempty"`
	Score       float64 `json:"score,omitempty"`

	Attempt int     `json:"attempt,omitempty"`
	Delay   float64 `json:"delay,omitempty"`
	PID     int     `json:"pid,omitempty"`
	Name    string  `json:"name,omitempty"`
	Value   any     `json:"value,omitempty"`

	Sensitive bool `json:"sensitive,omitempty"`

	TraceID    string            `json:"trace_id,omitempty"`
	SpanID     string            `json:"span_id,omitempty"`
	ParentID   string            `json:"parent_span_id,omitempty"`
	Began      *time.Time        `json:"began,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`

	// how many similar events were counted instead of written since the last one
	Repeats int               `json:"repeats,omitempty"`
	Cursors map[string]Cursor `json:"cursors,omitempty"` // of every block, by address
}
