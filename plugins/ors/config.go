package ors

import (
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kit/envserver"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Config is the body of `environment "ors" "name"`. What the standard calls by a name has that name here.
type Config struct {
	environment.Settings
	environment.EpisodeSettings
	envserver.Location

	EnvName     string            `recipe:"env_name" doc:"Which of the server's environments. Default: its first"`
	Deployment  string            `recipe:"deployment" doc:"Name of a hosted environment, owner/name, where several are behind one address (X-Deployment)"`
	APIKey      string            `recipe:"api_key" sensitive:"true" doc:"Key of a server that wants one (X-API-Key); from env(\"OPENREWARD_API_KEY\") for example"`
	Secrets     map[string]string `recipe:"secrets" sensitive:"true" doc:"Secrets that the environment gets when a session is created, by name (X-Secrets)"`
	ToolsetName string            `recipe:"toolset_name" doc:"Further tools of the SDK that each session gets"`

	Split     string `recipe:"split" default:"train" doc:"Tasks that are trained on"`
	EvalSplit string `recipe:"eval_split" default:"test" doc:"Tasks of the held-out set"`
	EvalTasks int64  `recipe:"eval_tasks" default:"64" min:"1" unit:"tasks" doc:"How many of the held-out set are used at most, from the first on"`
	Seed      int64  `recipe:"seed" default:"0" doc:"Order in which the tasks come; each comes once before any comes again"`

	SystemPrompt        string  `recipe:"system_prompt" doc:"Begins each conversation, before the description of the tools"`
	NoToolCall          string  `recipe:"no_tool_call" default:"end" enum:"end,continue" doc:"What an answer without a tool call means in an environment without a terminal tool. end: the episode is over; continue: the model is told to call a tool"`
	InvalidActionReward float64 `recipe:"invalid_action_reward" default:"0" doc:"Reward of a turn with a call that cannot be read, of a tool that does not exist, or with wrong arguments. The model reads what is wrong with it and goes on"`
	MaxObservationChars int64   `recipe:"max_observation_chars" default:"8192" min:"100" unit:"characters" doc:"Longest output of a tool that the model reads; of a longer one the middle is left out"`

	MaxSessions       int64         `recipe:"max_sessions" default:"0" min:"0" unit:"sessions" doc:"Sessions at once; 0: as many as there are episodes"`
	HeartbeatTimeout  time.Duration `recipe:"heartbeat_timeout" default:"30s" min:"1s" doc:"How long the server may be silent while a tool runs; it sends a sign of life every 10 seconds. Then the call is resumed"`
	ToolTimeout       time.Duration `recipe:"tool_timeout" default:"10m" min:"1s" doc:"How long a tool may run; then the episode is infra_failed"`
	StartingTimeout   time.Duration `recipe:"starting_timeout" default:"10m" min:"1s" doc:"How long a session may take until its setup is done (a sandbox that starts, for example)"`
	MaxResponseSizeMB float64       `recipe:"max_response_size_mb" default:"16" min:"0.001" unit:"MB" doc:"Largest answer of the server; a larger one is infra_failed"`
}

var (
	_ environment.Validator = Config{}
	_ environment.Seeded    = Config{}
)

// SamplingSeed implements environment.Seeded.
func (c Config) SamplingSeed() int64 { return c.Seed }

// Repeats implements environment.Seeded: what a server does is not known.
func (Config) Repeats() bool { return false }

// Validate finds what the schema cannot express.
func (c Config) Validate() []spec.Problem {
	problems := c.Problems()
	if c.Split != "" && c.Split == c.EvalSplit {
		problems = append(problems, spec.Problem{Warning: true, Path: cty.GetAttrPath("eval_split"),
			Summary: "evaluated on the tasks of training", Detail: "split and eval_split are the same."})
	}
	return problems
}
