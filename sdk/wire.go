package sdk

import (
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/pluginpb"
)

// StartRequest is what an engine starts a block with: a Request whose configuration is a value still, and what only the
// SDK reads.
type StartRequest struct {
	Block
	Config     cty.Value // wholly known
	FirstEvent uint64    // number of the first event of this attempt; 0 means 1
	Sensitive  []string  // secrets in Config and Environment: they are blanked out of what the block reports
}

// Wire is the message of the start; config is Config as the plugin's schema encodes it.
func (r StartRequest) Wire(config []byte) *pluginpb.StartRequest {
	return &pluginpb.StartRequest{
		Address: r.Address, RunId: r.RunID, Recipe: r.Recipe, Config: config,
		Dir: r.Dir, RunDir: r.RunDir, RecipeDir: r.RecipeDir, CheckpointDir: r.CheckpointDir,
		Environment: r.Environment, Placement: r.Placement.Wire(),
		Runtime: &pluginpb.Runtime{Python: r.Runtime.Python, Requirements: r.Runtime.Requirements,
			Venv: r.Runtime.Venv},
		Token: r.Token, ControlToken: r.ControlToken, Listen: r.Listen,
		Policy:   &pluginpb.Policy{Version: r.Policy.Version, Weights: r.Policy.Weights, Format: r.Policy.Format},
		SyncedBy: r.SyncedBy, Handle: r.Handle, Resume: r.Resume, FirstEvent: r.FirstEvent, Sensitive: r.Sensitive,
		SharesDevices: r.SharesDevices,
	}
}

// startOf is the reverse of Wire.
func startOf(r *pluginpb.StartRequest, config cty.Value) StartRequest {
	return StartRequest{Config: config, FirstEvent: r.GetFirstEvent(), Sensitive: r.GetSensitive(), Block: Block{
		Address: r.GetAddress(), RunID: r.GetRunId(), Recipe: r.GetRecipe(),
		Dir: r.GetDir(), RunDir: r.GetRunDir(), RecipeDir: r.GetRecipeDir(), CheckpointDir: r.GetCheckpointDir(),
		Environment: r.GetEnvironment(), Placement: placementOf(r.GetPlacement()),
		Runtime: Runtime{
			Python: r.GetRuntime().GetPython(), Requirements: r.GetRuntime().GetRequirements(),
			Venv: r.GetRuntime().GetVenv(),
		},
		Token: r.GetToken(), ControlToken: r.GetControlToken(), Listen: r.GetListen(),
		Policy: Policy{Version: r.GetPolicy().GetVersion(), Weights: r.GetPolicy().GetWeights(),
			Format: r.GetPolicy().GetFormat()},
		SyncedBy: r.GetSyncedBy(), Handle: r.GetHandle(), Resume: r.GetResume(),
		SharesDevices: r.GetSharesDevices(),
	}}
}

// Wire is the placement as a message.
func (p Placement) Wire() *pluginpb.Placement {
	return &pluginpb.Placement{Gpus: int64(p.GPUs), Devices: p.Devices, Executor: p.Executor, Host: p.Host}
}

func placementOf(p *pluginpb.Placement) Placement {
	return Placement{GPUs: int(p.GetGpus()), Devices: p.GetDevices(), Executor: p.GetExecutor(), Host: p.GetHost()}
}
