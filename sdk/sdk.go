// Package sdk is what the author of a plugin imports.
//
// A plugin implements the small interface of its kind (packages inference, trainer, environment, trajectories, sync,
// executor). All kinds share Run. Other abilities are optional interfaces, found by assertion. The life of a block:
//
//  1. The engine reads the plugin's [Definition] (name, schema, outputs, abilities) without running its code on a
//     configuration.
//  2. For a plan it decodes the block's body into the configuration and calls Validate ([Validator]) and Plan
//     ([Planner]), which touch nothing but local files that the configuration names.
//  3. For an apply it starts one process for the block; while the blocks that it refers to are still starting it calls
//     Prepare ([Preparer]).
//  4. It calls Run once, with the decoded configuration, the outputs of other blocks and what earlier attempts recorded
//     ([Request]); Run calls Host.Ready when dependents may start, and reports progress by its Host.
//  5. Meanwhile it may call Update, Evaluate and SaveCheckpoint ([Updater], [Evaluator], [Checkpointer]); a new engine
//     adopts the process and reads the events that it missed.
//  6. Run returns when the job is done or when its context ends: then the plugin has the block's stop_timeout to write
//     what must survive, and its programs are ended after it.
//
// The SDK has everything else: the process, TLS, leases and events; for inference the gateway; for trainers the control
// endpoint from which a sync block takes weights. Packages below sdk/kit do most of the work of a plugin that runs a
// server program or a trainer in Python.
package sdk

// Request is everything that a plugin is started with. C is its configuration struct.
type Request[C any] struct {
	Block
	Config C
	// Settled is for a block that is prepared and shares its accelerators: it is closed when no other block decides by
	// their free memory any more, so that what is left of it may be used before the start. Nil in Run.
	Settled <-chan struct{}
}

// Block describes the block that a plugin runs, apart from its configuration.
type Block struct {
	Address       string // inference.vllm.policy
	RunID         string
	Recipe        string
	Dir           string // the block's own directory, inside the run directory; exists, mode 0700
	RunDir        string
	RecipeDir     string // relative paths in a recipe are relative to this
	CheckpointDir string // of this block; exists
	Environment   map[string]string
	Placement     Placement
	Runtime       Runtime
	Token         string // bearer token that the block's data endpoint demands
	ControlToken  string // bearer token that its control endpoint demands
	// host:port of an earlier attempt; serve there again if it is free, so that dependents keep their address
	Listen   string
	Policy   Policy // what this run has reached; Version 0: nothing yet
	SyncedBy []string
	Handle   []byte // what Host.SetHandle recorded in an earlier attempt; nil: none
	Resume   bool   // continue from the newest checkpoint in CheckpointDir
	// RecordedStep is the step of the newest checkpoint that the run has recorded, when the block resumes; 0: none. A
	// trainer that has one, and finds no checkpoint, must fail rather than start at step 0.
	RecordedStep int64
	// SharesDevices says that another block of the run is on an accelerator of this one, or may be because one of them
	// does not name its own.
	SharesDevices bool
}

// Placement is where the block runs.
type Placement struct {
	GPUs     int
	Devices  []string
	Executor string
	Host     string
	Nodes    int // machines, each with the GPUs; 0: one
	// Python is the interpreter of the block's program, in a plan for this machine; empty: none is known. A block that
	// is started finds its own.
	Python string
}

// Count is how many GPUs the block has; 0: it runs on the CPU.
func (p Placement) Count() int { return max(p.GPUs, len(p.Devices)) }

// Ranks is how many processes a trainer has: one for each GPU of each machine, or one on each without GPUs.
func (p Placement) Ranks() int { return max(p.Count(), 1) * max(p.Nodes, 1) }

// Runtime is the Python that the block's program runs in.
type Runtime struct {
	Python       string
	Requirements []string
	Venv         string
}

// Policy is a version of the policy and where its weights can be loaded from.
type Policy struct {
	Version int64
	Weights string // path or URI; empty: only a sync block can bring them
	Format  string // "tiny", "hf", "lora", …
}
