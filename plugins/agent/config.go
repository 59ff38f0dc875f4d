package agent

import (
	"fmt"
	"slices"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Config is the body of `environment "agent" "name"`.
type Config struct {
	environment.Settings
	environment.SessionSettings

	Command   []string `recipe:"command" required:"true" per:"task" columns:"tasks" doc:"The program and its arguments; task.NAME in them is the member NAME of the task. An argument that names a file beside the recipe becomes its whole path, and python is the block's own"`
	Tasks     string   `recipe:"tasks" required:"true" file:"content" doc:"File of JSON lines, relative to the recipe: each is an object, and one task"`
	Reward    string   `recipe:"reward" required:"true" code:"callable" doc:"The reward function, reward.py:score of a file or mylib.rewards:score of a module. It may take task, folder, transcript, exit_code and metrics, by name"`
	Sandbox   Sandbox  `recipe:"sandbox,block" required:"true" doc:"Where the program runs"`
	EvalTasks int64    `recipe:"eval_tasks" columns:"tasks" default:"0" min:"0" unit:"tasks" doc:"How many of the last lines of tasks are held out: recipe evaluate asks them, and they are not trained on"`
	Seed      int64    `recipe:"seed" default:"0" doc:"Order in which the tasks come; each comes once before any comes again"`
	Programs  int64    `recipe:"programs" default:"32" min:"1" max:"4096" unit:"programs" doc:"Programs at once"`
	Keep      string   `recipe:"keep" default:"none" enum:"none,failed,all" doc:"Which rollouts keep their folder, with the program's output in agent.log: those without a reward (failed), or all"`
}

// Sandbox is where programs run.
type Sandbox struct {
	Kind string `recipe:"kind" required:"true" enum:"none" doc:"none: as you, with all that you may do on this machine. A model steers the program: use it only where nothing can be harmed"`
}

var (
	_ environment.Validator     = Config{}
	_ environment.Seeded        = Config{}
	_ environment.RolloutConfig = Config{}
)

// SamplingSeed implements environment.Seeded.
func (c Config) SamplingSeed() int64 { return c.Seed }

// Repeats implements environment.Seeded: what a program does is not known.
func (Config) Repeats() bool { return false }

// Validate finds what the schema cannot express.
func (c Config) Validate() []spec.Problem {
	var problems []spec.Problem
	if len(c.Stop) > 0 {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("stop"),
			Summary: "an agent sets its own stop texts",
			Detail: fmt.Sprintf("stop is %q, and each call of a program has the stop texts that the program sends. Leave "+
				"it out.", c.Stop)})
	}
	if len(c.Command) > 0 && len(spec.TaskMembers(c.Command[0])) > 0 {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("command").IndexInt(0),
			Summary: "the program depends on the task",
			Detail:  "The first element of command is the program; it is the same for all tasks."})
	}
	if slices.Contains(c.Command, "") {
		problems = append(problems, spec.Problem{Warning: true, Path: cty.GetAttrPath("command"),
			Summary: "an empty argument", Detail: "One element of command is an empty text."})
	}
	return problems
}
