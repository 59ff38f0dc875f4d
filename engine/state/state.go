// Package state is what a run remembers on disk: which blocks were started, with what, and how far they are. It is a
// JSON file and a journal of what has changed since it was written, so that a change costs as much as it is big, and an
// engine that is killed at any moment finds out from them what may still be alive. Secrets are never in them.
package state

import (
	"encoding/json"
	"time"

	"github.com/recipe-rl/recipe/schema/addr"
)

// FormatVersion is the version of run.json that this engine writes. It reads this one and older ones. Version 2 came
// with the journal beside it, which an engine that knows only version 1 would not read.
const FormatVersion = 2

// Status is where a run stands.
type Status string

// The statuses of a run.
const (
	New       Status = "new"       // nothing was ever started
	Running   Status = "running"   // an engine works on it, or was killed while it did
	Completed Status = "completed" // every job is done
	Failed    Status = "failed"    // it ended because a block failed for good
	Stopped   Status = "stopped"   // a person stopped it; apply goes on
)

// Run is the content of run.json.
type Run struct {
	Format  int                       `json:"format_version"`
	Changes uint64                    `json:"changes,omitempty"` // number of the newest change that is in here
	ID      string                    `json:"id"`
	Recipe  string                    `json:"recipe"`
	File    string                    `json:"file"`
	Digest  string                    `json:"digest,omitempty"` // of the recipe that was applied last
	Status  Status                    `json:"status"`
	Error   string                    `json:"error,omitempty"`
	Started time.Time                 `json:"started,omitzero"`
	Ended   time.Time                 `json:"ended,omitzero"`
	Engine  Engine                    `json:"engine"`
	Policy  Policy                    `json:"policy"`
	Blocks  map[addr.Block]*Block     `json:"blocks"`
	Outputs map[string]RecordedOutput `json:"outputs,omitempty"`
}

// Engine is the process that works on the run, or did last.
type Engine struct {
	PID      int    `json:"pid,omitempty"`
	Host     string `json:"host,omitempty"`
	Socket   string `json:"socket,omitempty"`
	Detached bool   `json:"detached,omitempty"`
}

// Policy is the newest policy version that inference was proved to serve, and where its weights are.
type Policy struct {
	Version int64  `json:"version"`
	Weights string `json:"weights,omitempty"`
	Format  string `json:"format,omitempty"`
}

// Intent is what the engine was about to do with a block when it last wrote run.json.
type Intent string

// The intents.
const (
	IntentStart Intent = "start" // written before a process is started
	IntentRun   Intent = "run"   // written after it was started
	IntentStop  Intent = "stop"  // written before it is stopped
	IntentDone  Intent = "done"  // a job that completed, or a block that was stopped and is gone
)

// Block is what is recorded of one block.
type Block struct {
	Plugin   string `json:"plugin_version,omitempty"`
	Schema   string `json:"schema_digest,omitempty"`
	External bool   `json:"external,omitempty"`
	// Config is the recordable form of the block's body, one entry an attribute (see Recordable, Surroundings).
	Config  map[string]json.RawMessage `json:"config,omitempty"`
	Devices []string                   `json:"devices,omitempty"` // GPUs that it was started on
	Intent  Intent                     `json:"intent"`
	Phase   string                     `json:"phase,omitempty"`
	Error   string                     `json:"error,omitempty"`
	Attempt int                        `json:"life"` // how often it was started
	Started time.Time                  `json:"started,omitzero"`
	Ended   time.Time                  `json:"ended,omitzero"`
	// Restarts are the times of restarts by policy, newest last; those outside the window are dropped.
	Restarts   []time.Time                `json:"restarts,omitempty"`
	Listen     string                     `json:"listen,omitempty"`
	Handle     []byte                     `json:"handle,omitempty"`
	Step       int64                      `json:"step,omitempty"`
	Total      int64                      `json:"total,omitempty"`
	Checkpoint *Checkpoint                `json:"checkpoint,omitempty"`
	Outputs    map[string]json.RawMessage `json:"outputs,omitempty"` // without sensitive ones
}

// Checkpoint is the newest complete checkpoint of a trainer.
type Checkpoint struct {
	Path    string `json:"path"`
	Step    int64  `json:"step"`
	Version int64  `json:"version"`
}

// RecordedOutput is one output of the recipe. A sensitive one has no value here.
type RecordedOutput struct {
	Value       json.RawMessage `json:"value,omitempty"`
	Type        json.RawMessage `json:"type,omitempty"`
	Sensitive   bool            `json:"sensitive,omitempty"`
	Description string          `json:"description,omitempty"`
}

// Clone returns a copy that shares nothing with r that a writer changes.
func (r *Run) Clone() *Run {
	out := *r
	out.Blocks = make(map[addr.Block]*Block, len(r.Blocks))
	for a, b := range r.Blocks {
		out.Blocks[a] = b.clone()
	}
	out.Outputs = make(map[string]RecordedOutput, len(r.Outputs))
	for k, v := range r.Outputs {
		out.Outputs[k] = v
	}
	return &out
}

func (b *Block) clone() *Block {
	c := *b
	c.Restarts = append([]time.Time(nil), b.Restarts...)
	if b.Checkpoint != nil {
		ck := *b.Checkpoint
		c.Checkpoint = &ck
	}
	return &c
}
