// Package outputs says what a block of each kind gives to the blocks that refer to it. It stands apart from the
// packages of the kinds so that a block that reads another one's outputs does not link what runs that kind.
package outputs

// Inference is what every inference block gives.
type Inference struct {
	BaseURL      string `recipe:"base_url" doc:"OpenAI-compatible address, ending in /v1"`
	GenerateURL  string `recipe:"generate_url" doc:"token-in, token-out address"`
	Model        string `recipe:"model" doc:"name to send as model"`
	APIKey       string `recipe:"api_key" sensitive:"true" doc:"bearer token of base_url and generate_url"`
	Tokenizer    string `recipe:"tokenizer" doc:"name or path of the tokenizer"`
	MaxModelLen  int64  `recipe:"max_model_len" unit:"tokens" doc:"prompt and completion together"`
	ControlURL   string `recipe:"control_url" doc:"where a sync block holds, updates and resumes this server"`
	ControlToken string `recipe:"control_token" sensitive:"true" doc:"bearer token of control_url"`
}

// Trajectories is what every trajectories block gives.
type Trajectories struct {
	URL   string `recipe:"url" doc:"address of the Atropos-compatible API, without a trailing slash"`
	Token string `recipe:"token" sensitive:"true" doc:"bearer token of url"`
}

// TrajectoryLimits is what a trajectories block says of its own limits, when it has any.
type TrajectoryLimits struct {
	MaxStaleness *int64 `recipe:"max_staleness" unit:"policy versions" doc:"how old a group may be by this block's own setting; null: as old as it comes"`
}

// Environment is what every environment block gives.
type Environment struct {
	Name      string `recipe:"name" doc:"name under which it registers with the trajectory API"`
	GroupSize int64  `recipe:"group_size" unit:"completions" doc:"completions per prompt"`
}

// Trainer is what every trainer block gives.
type Trainer struct {
	Model        string `recipe:"model" doc:"what it trains"`
	Checkpoint   string `recipe:"checkpoint" doc:"newest complete checkpoint; empty before the first"`
	Best         string `recipe:"best_checkpoint" doc:"set by the engine: the checkpoint with the best result of the evaluation block by which checkpoints are kept; empty: none"`
	Step         int64  `recipe:"step" unit:"optimizer steps" doc:"steps done"`
	ControlURL   string `recipe:"control_url" doc:"where a sync block takes weights"`
	ControlToken string `recipe:"control_token" sensitive:"true" doc:"bearer token of control_url"`
}

// Sync is what every sync block gives.
type Sync struct {
	Version   int64  `recipe:"version" doc:"policy version that inference serves"`
	Transport string `recipe:"transport" doc:"how weights move, and what was chosen for auto"`
}
