package sdk

import "github.com/recipe-rl/recipe/sdk/transport"

// Phase is where a block stands.
type Phase string

// The phases of a block.
const (
	Pending   Phase = "pending"
	Preparing Phase = "preparing" // it does what it can before what it refers to is ready
	Prepared  Phase = "prepared"  // nothing more can be done before that
	Starting  Phase = "starting"
	Loading   Phase = "loading"
	Ready     Phase = "ready"
	Degraded  Phase = "degraded"
	Draining  Phase = "draining"
	Completed Phase = "completed" // a job that has done its work
	Stopped   Phase = "stopped"
	Failed    Phase = "failed"
)

// Over reports that this phase is the last one of an attempt.
func (p Phase) Over() bool { return p == Completed || p == Stopped || p == Failed }

// CheckpointInfo is a checkpoint that is complete on disk.
type CheckpointInfo struct {
	Path    string
	Step    int64
	Version int64 // policy version of its weights
}

// Sample is one scored completion, for people.
type Sample struct {
	Environment string
	Prompt      string
	Completion  string
	Score       float64
	Version     int64
}

// WeightsInfo is one completed weight update of one inference block.
type WeightsInfo struct {
	Version              int64
	Path, Format         string // where the weights can be loaded from again; empty when they never touched a disk
	Transport            transport.Name
	Inference            string // address
	Seconds              float64
	Phases               map[string]float64 // seconds per phase: publish, hold, update, repair, resume
	MaxLogprobDifference float64            // server against trainer on the fixed text
}

// Weights is what a trainer has published for inference to load.
type Weights struct {
	Version   int64          `json:"version"`
	Path      string         `json:"path,omitempty"` // a file or folder, complete
	Format    string         `json:"format"`         // "tiny", "hf", "lora"
	Transport transport.Name `json:"transport"`
	Precision string         `json:"precision"` // "float32", "bfloat16", …: what was written, after any rounding
	// Handles say how to reach weights that are in memory instead of files (transports live, ipc and nccl): the text of a
	// JSON object that the trainer's side writes and the inference engine's side reads, with its own form number; nothing
	// in between reads it. It holds no secret, and is invalid once the trainer that wrote it has ended.
	Handles string `json:"handles,omitempty"`
}
