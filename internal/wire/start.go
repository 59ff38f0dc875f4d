// Package wire converts between the messages of the protocol (package pluginpb) and the types that engine and plugins
// use. It is the only place that does: a test fails for a field that is added to one side alone.
package wire

import (
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
)

// Start is what an engine starts a block with: a Request whose configuration is a value still, and what only the SDK
// reads.
type Start struct {
	sdk.Block
	Config     cty.Value // wholly known
	FirstEvent uint64    // number of the first event of this attempt; 0 means 1
	Sensitive  []string  // secrets in Config and Environment: they are blanked out of what the block reports
	// Grace is how long the block may take to end in order where nobody says it, as after SIGTERM; 0: sdk's own.
	Grace time.Duration
}

// EncodeStart makes the message of a start; config is r.Config as the plugin's schema encodes it.
func EncodeStart(r Start, config []byte) *pluginpb.StartRequest {
	return &pluginpb.StartRequest{
		Address: r.Address, RunId: r.RunID, Recipe: r.Recipe, Config: config,
		Dir: r.Dir, RunDir: r.RunDir, RecipeDir: r.RecipeDir, CheckpointDir: r.CheckpointDir,
		Environment: r.Environment, Placement: EncodePlacement(r.Placement),
		Runtime: &pluginpb.Runtime{Python: r.Runtime.Python, Requirements: r.Runtime.Requirements,
			Venv: r.Runtime.Venv},
		Token: r.Token, ControlToken: r.ControlToken, Listen: r.Listen,
		Policy:   &pluginpb.Policy{Version: r.Policy.Version, Weights: r.Policy.Weights, Format: r.Policy.Format},
		SyncedBy: r.SyncedBy, Handle: r.Handle, Resume: r.Resume, FirstEvent: r.FirstEvent, Sensitive: r.Sensitive,
		SharesDevices: r.SharesDevices, GraceMs: r.Grace.Milliseconds(), RecordedStep: r.RecordedStep,
	}
}

// DecodeStart reads the message of a start; config is its configuration, decoded.
func DecodeStart(m *pluginpb.StartRequest, config cty.Value) Start {
	return Start{Config: config, FirstEvent: m.GetFirstEvent(), Sensitive: m.GetSensitive(),
		Grace: time.Duration(m.GetGraceMs()) * time.Millisecond, Block: sdk.Block{
			Address: m.GetAddress(), RunID: m.GetRunId(), Recipe: m.GetRecipe(),
			Dir: m.GetDir(), RunDir: m.GetRunDir(), RecipeDir: m.GetRecipeDir(), CheckpointDir: m.GetCheckpointDir(),
			Environment: m.GetEnvironment(), Placement: DecodePlacement(m.GetPlacement()),
			Runtime: sdk.Runtime{
				Python: m.GetRuntime().GetPython(), Requirements: m.GetRuntime().GetRequirements(),
				Venv: m.GetRuntime().GetVenv(),
			},
			Token: m.GetToken(), ControlToken: m.GetControlToken(), Listen: m.GetListen(),
			Policy: sdk.Policy{Version: m.GetPolicy().GetVersion(), Weights: m.GetPolicy().GetWeights(),
				Format: m.GetPolicy().GetFormat()},
			SyncedBy: m.GetSyncedBy(), Handle: m.GetHandle(), Resume: m.GetResume(),
			SharesDevices: m.GetSharesDevices(), RecordedStep: m.GetRecordedStep(),
		}}
}

// EncodePlacement makes the message of a placement.
func EncodePlacement(p sdk.Placement) *pluginpb.Placement {
	return &pluginpb.Placement{Gpus: int64(p.GPUs), Devices: p.Devices, Executor: p.Executor, Host: p.Host,
		Python: p.Python, Nodes: int64(p.Nodes)}
}

// DecodePlacement reads the message of a placement.
func DecodePlacement(m *pluginpb.Placement) sdk.Placement {
	return sdk.Placement{GPUs: int(m.GetGpus()), Devices: m.GetDevices(), Executor: m.GetExecutor(), Host: m.GetHost(),
		Python: m.GetPython(), Nodes: int(m.GetNodes())}
}
