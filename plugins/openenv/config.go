package openenv

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kit/envserver"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Config is the body of `environment "openenv" "name"`. What OpenEnv's own client calls by a name has that name here.
type Config struct {
	environment.Settings
	environment.EpisodeSettings
	envserver.Location

	Transport         string            `recipe:"transport" default:"websocket" enum:"websocket,http" doc:"How episodes are played. Over http OpenEnv's servers make an environment anew for each request, so that only environments without a state of their own work"`
	ConnectTimeoutS   float64           `recipe:"connect_timeout_s" default:"10" min:"0.1" unit:"seconds" doc:"How long connecting may take"`
	MessageTimeoutS   float64           `recipe:"message_timeout_s" default:"60" min:"0.1" unit:"seconds" doc:"How long the server may take to answer a message; then the episode is infra_failed"`
	MaxMessageSizeMB  float64           `recipe:"max_message_size_mb" default:"16" min:"0.001" unit:"MB" doc:"Largest message of the server; a larger one is infra_failed. OpenEnv's own client allows 100, which many sessions at once have no memory for"`
	Headers           map[string]string `recipe:"headers" sensitive:"true" doc:"Further headers of each connection, for a server that wants a token"`
	MaxConcurrentEnvs int64             `recipe:"max_concurrent_envs" default:"0" min:"0" unit:"sessions" doc:"Sessions at once. 0: as many as there are episodes, or what the server allows once it has said so"`
	CapacityTimeout   time.Duration     `recipe:"capacity_timeout" default:"10m" min:"1s" doc:"How long an episode waits for a session while the server is full"`

	Reset     map[string]any `recipe:"reset" doc:"Parameters of each reset besides seed, as the environment's reset declares them"`
	Tasks     string         `recipe:"tasks" file:"content" doc:"File of JSON lines, relative to the recipe: each is an object of parameters of reset, and one task. Without it each task is another seed"`
	Seed      int64          `recipe:"seed" default:"0" min:"0" doc:"Seed of the first task; the next has the next. All episodes of a group have that of their task. With tasks: the order"`
	EvalTasks int64          `recipe:"eval_tasks" default:"64" min:"1" unit:"tasks" doc:"How many tasks the held-out set has: seeds that training does not reach, or the last lines of tasks, which are not trained on then"`

	SystemPrompt        string         `recipe:"system_prompt" doc:"Begins each conversation. What action_format says of actions follows it"`
	ActionFormat        string         `recipe:"action_format" default:"auto" enum:"auto,text,json,tools" doc:"How an answer becomes an action. text: the answer is the field action_field; json: it holds a JSON object that fits the action's schema; tools: it holds calls of the environment's MCP tools between <tool_call> tags. auto: what the server's /schema suggests"`
	ActionField         string         `recipe:"action_field" doc:"With text: which field of the action. Default: its only required one"`
	ActionPattern       string         `recipe:"action_pattern" doc:"With text: regular expression whose first group is the action, such as <answer>(.*?)</answer>; the last match counts. Default: the whole answer"`
	Action              map[string]any `recipe:"action" doc:"Further fields of each action"`
	ObservationFields   []string       `recipe:"observation_fields" doc:"Which fields of an observation the model reads, in this order. Default: its text when it has one field, else all of them as JSON"`
	MaxObservationChars int64          `recipe:"max_observation_chars" default:"8192" min:"100" unit:"characters" doc:"Longest observation that the model reads; of a longer one the middle is left out"`
	InvalidActionReward float64        `recipe:"invalid_action_reward" default:"0" doc:"Reward of a turn that is no action. The model reads what is wrong with it and goes on"`
	ExecutionError      string         `recipe:"execution_error" default:"infra_failed" enum:"infra_failed,invalid_action" doc:"What an exception of the environment's step means. Where an environment raises one for a move that is not allowed, say invalid_action"`
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
	problems = append(problems, spec.Idle(fmt.Sprintf("action_format = %q does not read it: it is for \"text\".",
		c.ActionFormat), map[string]bool{
		"action_field":   c.ActionField != "" && (c.ActionFormat == asJSON || c.ActionFormat == asTools),
		"action_pattern": c.ActionPattern != "" && (c.ActionFormat == asJSON || c.ActionFormat == asTools),
	})...)
	if c.ActionPattern != "" {
		pattern, err := regexp.Compile(c.ActionPattern)
		if err == nil && pattern.NumSubexp() < 1 {
			err = errors.New("it has no group, such as <answer>(.*?)</answer> has one")
		}
		if err != nil {
			problems = append(problems, spec.Problem{Path: cty.GetAttrPath("action_pattern"),
				Summary: "not a regular expression with a group", Detail: fmt.Sprintf("action_pattern: %v.", err)})
		}
	}
	return problems
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
