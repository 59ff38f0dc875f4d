// Package state is the record of a run on disk: the started blocks, their configuration and progress. It is a JSON file
// and a journal of the changes since, so that the cost of a change is proportional to its size, and the next engine
// knows what may still be alive after a crash at any moment. It contains no secrets.
package state

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/evaluated"
	"github.com/recipe-rl/recipe/schema/addr"
)

// FormatVersion is the version of run.json that this engine writes. It reads this one and older ones. Version 2 added
// the journal, which engines for version 1 do not read.
const FormatVersion = 2

// Status is the state of a run.
type Status string

// The statuses of a run.
const (
	New       Status = "new"       // nothing was ever started
	Running   Status = "running"   // an engine owns it, or was killed while it did
	Completed Status = "completed" // every job is done
	Failed    Status = "failed"    // it ended because a block failed permanently
	Stopped   Status = "stopped"   // it was stopped; apply continues it
)

// Run is the content of run.json.
type Run struct {
	Format  int                       `json:"format_version"`
	Changes uint64                    `json:"changes,omitempty"` // number of the newest change included
	Events  uint64                    `json:"events,omitempty"`  // number of the newest event when it was written
	ID      string                    `json:"id"`
	Recipe  string                    `json:"recipe"`
	File    string                    `json:"file"`
	Digest  string                    `json:"digest,omitempty"` // of the recipe that was applied last
	Status  Status                    `json:"status"`
	Error   string                    `json:"error,omitempty"`
	Started time.Time                 `json:"started,omitzero"`
	Ended   time.Time                 `json:"ended,omitzero"`
	Paused  time.Time                 `json:"paused,omitzero"` // since when; zero: it is not
	Engine  Engine                    `json:"engine"`
	Plans   []AppliedPlan             `json:"saved_plans,omitempty"` // applied to it, newest last
	Policy  Policy                    `json:"policy"`
	Blocks  map[addr.Block]*Block     `json:"blocks"`
	Outputs map[string]RecordedOutput `json:"outputs,omitempty"`
}

// AppliedPlan is a saved plan that was applied.
type AppliedPlan struct {
	ID      string    `json:"id"`
	Applied time.Time `json:"applied"`
}

// keptPlans bounds the plans in a record, which is written whole at every change of the run.
const keptPlans = 20

// Apply notes that a saved plan is applied now; an empty id is a plan that was not saved.
func (r *Run) Apply(id string, now time.Time) {
	if id == "" {
		return
	}
	plans := append(slices.Clone(r.Plans), AppliedPlan{id, now.UTC()})
	r.Plans = plans[max(0, len(plans)-keptPlans):]
}

// Engine is the process that owns the run, or did last.
type Engine struct {
	PID      int    `json:"pid,omitempty"`
	Host     string `json:"host,omitempty"`
	Socket   string `json:"socket,omitempty"`
	Detached bool   `json:"detached,omitempty"`
}

// Policy is the newest policy version that inference is verified to serve, and the path of its weights.
type Policy struct {
	Version int64  `json:"version"`
	Weights string `json:"weights,omitempty"`
	Format  string `json:"format,omitempty"`
}

// Intent is what the engine was about to do with a block when it last wrote the record.
type Intent string

// The intents.
const (
	IntentStart Intent = "start" // written before a process is started
	IntentRun   Intent = "run"   // written after it was started
	IntentStop  Intent = "stop"  // written before it is stopped
	IntentDone  Intent = "done"  // a completed job, or a stopped block
)

// Block is the record of one block.
type Block struct {
	Plugin   string `json:"plugin_version,omitempty"`
	Schema   string `json:"schema_digest,omitempty"`
	External bool   `json:"external,omitempty"`
	// Config is the recordable form of the block's body, one entry an attribute (see Recordable, Surroundings).
	Config  map[string]json.RawMessage `json:"config,omitempty"`
	Devices []string                   `json:"devices,omitempty"` // GPUs assigned at its start
	Intent  Intent                     `json:"intent"`
	Phase   string                     `json:"phase,omitempty"`
	EndedBy string                     `json:"ended_by,omitempty"` // the stop_when rule that ended it before its last step
	Error   string                     `json:"error,omitempty"`
	Attempt int                        `json:"life"` // number of starts
	Started time.Time                  `json:"started,omitzero"`
	Ended   time.Time                  `json:"ended,omitzero"`
	// Restarts are the times of restarts by policy, newest last; those outside the window are dropped.
	Restarts   []time.Time                `json:"restarts,omitempty"`
	Listen     string                     `json:"listen,omitempty"`
	Renewals   int                        `json:"token_renewals,omitempty"` // how often its tokens were changed
	Renewed    bool                       `json:"tokens_renewed,omitempty"` // blocks that refer to it still have older ones
	Handle     []byte                     `json:"handle,omitempty"`
	Step       int64                      `json:"step,omitempty"`
	Total      int64                      `json:"total,omitempty"`
	Checkpoint *Checkpoint                `json:"checkpoint,omitempty"`
	Best       *Best                      `json:"best,omitempty"`
	Outputs    map[string]json.RawMessage `json:"outputs,omitempty"` // without sensitive ones; null: repeats a secret
}

// Checkpoint is the newest complete checkpoint of a trainer.
type Checkpoint struct {
	Path    string `json:"path"`
	Step    int64  `json:"step"`
	Version int64  `json:"version"`
}

// Best is the checkpoint of a trainer with the best result of the evaluation by which it keeps them.
type Best struct {
	Path   string  `json:"path"`
	Step   int64   `json:"step"`
	Metric string  `json:"metric"` // evaluation/NAME/METRIC
	Value  float64 `json:"value"`
}

// Evaluation is the name of the evaluation block by which the checkpoint is the best.
func (b *Best) Evaluation() string {
	name, _, _ := strings.Cut(strings.TrimPrefix(b.Metric, evaluated.Prefix), "/")
	return name
}

// RecordedOutput is one output of the recipe. A sensitive one has no value here.
type RecordedOutput struct {
	Value       json.RawMessage `json:"value,omitempty"`
	Type        json.RawMessage `json:"type,omitempty"`
	Sensitive   bool            `json:"sensitive,omitempty"`
	Description string          `json:"description,omitempty"`
}

// Clone returns a copy that shares no mutable data with r.
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
	if b.Best != nil {
		best := *b.Best
		c.Best = &best
	}
	return &c
}
