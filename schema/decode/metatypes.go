package decode

import (
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
)

// Meta holds the meta-arguments that every kind takes, evaluated.
type Meta struct {
	Placement   *sdk.Placement
	Resources   Resources // of placement, for an executor
	Restart     *Restart
	Health      *Health
	Runtime     *sdk.Runtime
	Lifecycle   []Check
	StopWhen    []StopRule
	Environment map[string]cty.Value // environment_variables; may be unknown or marked until start
	SecretNames bool                 // the names of environment_variables are sensitive, too
	External    *External
}

// Resources are what placement asks of an executor beside GPUs. Zero values leave it to the executor.
type Resources struct {
	Nodes       int // machines; CPUs and Memory are of each
	CPUs        int
	Memory      int64 // bytes
	TimeLimit   time.Duration
	Constraints []string // features that the machine must have
	Gang        string   // blocks with the same name start together
}

// Restart describes what happens when a block fails.
type Restart struct {
	Attempts int           // restarts allowed within Window; default 3
	Window   time.Duration // default 10m
	Delay    time.Duration // first wait; doubles up to MaxDelay, with jitter
	MaxDelay time.Duration
	Mode     string // "fail": the run fails when attempts are used up; "ignore": the run continues without the block
}

// Health describes how long to wait for a block and how it is watched.
type Health struct {
	StartTimeout time.Duration
	Interval     time.Duration
	Timeout      time.Duration
	Failures     int // consecutive failures before it counts as failed
	StopTimeout  time.Duration
	StallTimeout time.Duration // 0: none
}

// Check is a precondition or postcondition. Its condition is evaluated when the block is about to start, or has become
// ready.
type Check struct {
	Post         bool
	Condition    hcl.Expression
	ErrorMessage hcl.Expression
	Range        hcl.Range
}

// StopRule ends a trainer early. Exactly one of Metric, Tokens or Wall is set.
type StopRule struct {
	Metric string
	Since  string // from when the metric is reported (spec.Metric); empty: from the first report, or not known
	Op     string // ">=", "<=", ">", "<"
	Value  float64
	For    int // consecutive steps for which the comparison must hold; default 1
	Tokens int64
	Wall   time.Duration
	Range  hcl.Range
}

// External is a server that someone else runs: checked, never started or stopped.
type External struct {
	Endpoint cty.Value // string; becomes base_url (or url) of the outputs
	Values   map[string]cty.Value
}
