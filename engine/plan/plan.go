// Package plan decides what apply would do: declared × recorded × observed → operations, each with its reason.
// It is pure: it reads no file, starts nothing and sends no request.
package plan

import (
	"encoding/json"
	"slices"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// FormatVersion is the version of the JSON form of a Plan. A new minor version only adds fields.
const FormatVersion = "1.12"

// Action is what apply does with a block.
type Action string

// The actions, from the mildest to the hardest.
const (
	Nothing Action = "nothing" // the block is as declared
	Create  Action = "create"  // the block is new
	Update  Action = "update"  // the running block applies the change
	Resume  Action = "resume"  // a job continues from its newest checkpoint
	Restart Action = "restart" // the block is stopped, if it runs, and started
	Replace Action = "replace" // its results are archived, and it starts from the beginning
	Stop    Action = "stop"    // the block is no longer declared
)

// Actions lists every action in the order in which counts are shown.
func Actions() []Action { return []Action{Create, Update, Resume, Restart, Replace, Stop, Nothing} }

// Plan is what apply would do. Operations are in start order; those that stop something come last, in stop order.
type Plan struct {
	FormatVersion string         `json:"format_version"`
	Recipe        string         `json:"recipe"`
	Digest        string         `json:"digest"`
	Status        state.Status   `json:"status"` // of the run as recorded
	Operations    []*Operation   `json:"operations"`
	Outputs       []Output       `json:"outputs"`
	Alerts        []Alert        `json:"alerts,omitempty"`
	Tracking      []Tracker      `json:"tracking,omitempty"`    // since 1.10
	Evaluations   []Evaluation   `json:"evaluations,omitempty"` // since 1.12
	Counts        map[Action]int `json:"counts"`
	Findings      []Finding      `json:"findings"`
	// Untrusted are programs of the recipe that were not run, so that their blocks are checked by a file alone.
	Untrusted []diagnostic.Untrusted `json:"untrusted,omitempty"`

	Saved string `json:"-"` // id of the saved plan that is applied, of which this is what it comes to now
}

// Operation is what happens to one block.
type Operation struct {
	Address addr.Block `json:"address"`
	Kind    kind.Kind  `json:"kind"`
	Plugin  string     `json:"plugin"`
	Action  Action     `json:"action"`
	Alive   bool       `json:"alive"` // it runs now
	// MovedFrom is its recorded address, which a moved block of the recipe has changed to Address. Since 1.11.
	MovedFrom addr.Block `json:"moved_from,omitzero"`
	Reasons   []Reason   `json:"reasons"`
	// Needs are the blocks that must come first, sorted.
	Needs []Dependency `json:"needs"`
	// Config is the recordable form of the body, and of placement, runtime, environment_variables and external beside
	// it; references are {"ref": ADDRESS}, values not yet known {"unknown": true}, sensitive ones {"sensitive":
	// FINGERPRINT}.
	Config map[string]json.RawMessage `json:"config,omitempty"`
	// Devices are the GPUs of this machine that it uses: named or assigned.
	Devices []string `json:"devices,omitempty"`
	// Nondeterminism explains why equal seeds may not give equal weights.
	Nondeterminism []string `json:"nondeterminism,omitempty"`
	// Job is what a start of the block would submit to its executor; nil without one, or when nothing is started.
	Job *Job `json:"job,omitempty"`

	Block *schema.Block `json:"-"` // nil for Stop
}

// Job is a request to a cluster's scheduler, without secrets.
type Job struct {
	Executor addr.Block `json:"executor"`
	Language string     `json:"language"` // of the request, such as "sbatch"
	Request  string     `json:"request"`
	// Answer is what the cluster says of it, such as when it would start; empty when it was not asked.
	Answer string `json:"answer,omitempty"`
	// With is the block of the same gang whose request holds this job, too, which has no request of its own then.
	With *addr.Block `json:"with,omitempty"`
	// Staged are the files of the recipe's folder that reach the machine; nil: it shares the folder.
	Staged *Staged `json:"staged,omitempty"`
}

// Staged are files that reach a machine before a block starts.
type Staged struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"` // of them together
}

// Dependency is one edge of the start order.
type Dependency struct {
	Address   addr.Block       `json:"address"`
	Condition schema.Condition `json:"condition"`
	Attribute string           `json:"attribute"`
}

// Reason is one reason for an action. Attribute is empty when the cause is not an attribute.
type Reason struct {
	Attribute string          `json:"attribute,omitempty"`
	Change    spec.Change     `json:"change,omitempty"`
	Before    json.RawMessage `json:"before,omitempty"`
	After     json.RawMessage `json:"after,omitempty"`
	// Parts are the changed values inside a nested block, or a change of a file's content.
	Parts []Part `json:"parts,omitempty"`
	Text  string `json:"text"`
}

// Output is an output of the recipe as far as it is known.
type Output struct {
	Name      string          `json:"name"`
	Known     bool            `json:"known"`
	Sensitive bool            `json:"sensitive,omitempty"`
	Value     json.RawMessage `json:"value,omitempty"`
}

// Finding is a result of the sizing of a plan, or an answer of a policy.
type Finding struct {
	Severity string     `json:"severity"`         // error, warning, info
	Address  addr.Block `json:"address,omitzero"` // zero: it is about the run, or a policy's answer about no block
	Summary  string     `json:"summary"`
	Detail   string     `json:"detail,omitempty"` // the sum, and what to change
	Policy   string     `json:"policy,omitempty"` // the executable whose answer it is
	// Range is what it is about, in the recipe; nil: nothing in particular.
	Range *diagnostic.Range `json:"range,omitempty"`
}

// Subject is what a finding is about, for people: a block, or a policy and the block that it names.
func (f Finding) Subject() string {
	switch {
	case f.Policy == "" && f.Address == addr.Block{}:
		return "the run"
	case f.Policy == "":
		return f.Address.String()
	case f.Address == addr.Block{}:
		return "policy " + f.Policy
	}
	return "policy " + f.Policy + ": " + f.Address.String()
}

// Observed is the current state of a block's process.
type Observed struct {
	Alive bool
	PID   int
	Phase string
	// Moved is the path of its directory when its process was started, if the project was moved since: the process
	// still uses the old paths.
	Moved string `json:",omitempty"`
}

// Input is everything that a plan depends on.
type Input struct {
	Recipe   *schema.Recipe
	Recorded *state.Run
	Observed map[addr.Block]Observed
	Dir      state.Dir // only for the fingerprints of secrets
	Targets  []addr.Block
	Findings []Finding
	Devices  map[addr.Block][]string // the GPUs of each block that has some

	Nondeterminism map[addr.Block][]string // why equal seeds may not give equal weights

	OnDisk      map[addr.Block]state.OnDisk // what the disk has of recorded checkpoints
	Moves       map[addr.Block]addr.Block   // see Moves; Recorded and what is by address here has the new ones
	Live        bool                        // an engine works on the run
	FromScratch bool                        // trainers whose checkpoints are all gone start at step 0
	// Missing returns what a tracker lacks on this machine, empty when it lacks nothing; nil: it cannot be found out.
	Missing func(decode.Tracking) string
}

// Changes reports whether apply would do anything.
func (p *Plan) Changes() bool { return slices.ContainsFunc(p.Operations, (*Operation).Changes) }

// Changes reports whether apply would do anything with the block.
func (op *Operation) Changes() bool { return op.Action != Nothing || op.MovedFrom != addr.Block{} }

// Operation returns the operation on a block, or nil.
func (p *Plan) Operation(a addr.Block) *Operation {
	for _, op := range p.Operations {
		if op.Address == a {
			return op
		}
	}
	return nil
}

// Errors are the findings that prevent an apply.
func (p *Plan) Errors() []Finding {
	var out []Finding
	for _, f := range p.Findings {
		if f.Severity == "error" {
			out = append(out, f)
		}
	}
	return out
}

// Denied reports that policies, and nothing else, prevent an apply.
func (p *Plan) Denied() bool {
	errs := p.Errors()
	return len(errs) > 0 && !slices.ContainsFunc(errs, func(f Finding) bool { return f.Policy == "" })
}
