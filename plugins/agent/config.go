package agent

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Config is the body of `environment "agent" "name"`.
type Config struct {
	environment.Settings
	environment.SessionSettings
	Program

	Tasks  string `recipe:"tasks" required:"true" file:"content" doc:"File of JSON lines, relative to the recipe: each is an object, and one task"`
	Reward string `recipe:"reward" required:"true" code:"callable" doc:"The reward function, reward.py:score of a file or mylib.rewards:score of a module. It may take task, folder, transcript, exit_code and metrics, by name"`
}

// Program is what a rollout runs, and where. The attribute tasks is beside it.
type Program struct {
	Agent       *string  `recipe:"agent" enum:"claude-code,codex,mini-swe-agent,openai,openai-agents,opencode,pydantic-ai,smolagents" doc:"A known agent, in place of command: recipe env agents lists them, and how each is installed"`
	AgentArgs   []string `recipe:"agent_args" per:"task" columns:"tasks" doc:"Further arguments of the agent"`
	Instruction string   `recipe:"instruction" per:"task" columns:"tasks" doc:"What the agent is asked. Default: task.instruction"`

	Command   []string `recipe:"command" per:"task" columns:"tasks" doc:"The program and its arguments, in place of agent; task.NAME in them is the member NAME of the task. An argument that names a file beside the recipe becomes its whole path, and python is the block's own"`
	Sandbox   Sandbox  `recipe:"sandbox,block" doc:"Where the program runs, what it sees and how much it may use"`
	EvalTasks int64    `recipe:"eval_tasks" columns:"tasks" default:"0" min:"0" unit:"tasks" doc:"How many of the last tasks are held out: recipe evaluate asks them, and they are not trained on"`
	Seed      int64    `recipe:"seed" default:"0" doc:"Order in which the tasks come; each comes once before any comes again"`
	Programs  int64    `recipe:"programs" default:"32" min:"1" max:"4096" unit:"programs" doc:"Programs at once"`
	Keep      string   `recipe:"keep" default:"none" enum:"none,failed,all" doc:"Which rollouts keep their folder, with the program's output in agent.log: those without a reward (failed), or all"`
}

// Sandbox is where programs run.
type Sandbox struct {
	Kind      string   `recipe:"kind" default:"auto" enum:"auto,bubblewrap,none" doc:"auto: bubblewrap where it works, else an error. bubblewrap: without your files, other processes and the network, with limits. none: as you, with all that you may do on this machine; a model steers the program, so use it only where nothing can be harmed"`
	Network   []string `recipe:"network" default:"[]" doc:"What the program may reach beside the model's gateway: nothing ([]), or all that this machine reaches ([\"*\"])"`
	Paths     []string `recipe:"paths" default:"[]" doc:"Further files and folders that the program may read, relative to the recipe. It has the system's folders, the block's Python, and its own installation"`
	Memory    float64  `recipe:"memory" default:"4" min:"0.0625" unit:"GiB" doc:"Memory of all processes of a rollout together, /tmp and /dev/shm included"`
	Tmp       float64  `recipe:"tmp" default:"1" min:"0.001" unit:"GiB" doc:"Size of /tmp, and of /dev/shm"`
	FileSize  float64  `recipe:"file_size" default:"1" min:"0.001" unit:"GiB" doc:"Largest file that a process may write"`
	Disk      float64  `recipe:"disk" default:"16" min:"0.01" unit:"GiB" doc:"Size of all files in the rollout's folders together"`
	Processes int64    `recipe:"processes" default:"512" min:"1" max:"100000" unit:"processes and threads" doc:"Processes of a rollout, threads included"`
	OpenFiles int64    `recipe:"open_files" default:"1024" min:"512" unit:"files" doc:"Open files of a process"`
	CPU       float64  `recipe:"cpu" default:"0" min:"0" unit:"seconds" doc:"Processor time of a process; 0: as much as it gets"`
}

var (
	_ environment.Validator     = Config{}
	_ environment.Seeded        = Config{}
	_ environment.RolloutConfig = Config{}
	_ environment.Prompted      = Config{}
)

// LeastPrompt implements environment.Prompted.
func (c Program) LeastPrompt() (int64, string) {
	k, _ := c.known()
	return int64(k.Prompt), k.Name
}

// known is the agent that the block names; false: it has a command.
func (c Program) known() (Known, bool) {
	if c.Agent == nil {
		return Known{}, false
	}
	all := Agents()
	i := slices.IndexFunc(all, func(k Known) bool { return k.Name == *c.Agent })
	if i < 0 { // the schema has the same names
		return Known{}, false
	}
	return all[i], true
}

// instruction is what a known agent is asked.
func (c Program) instruction() string { return cmp.Or(c.Instruction, spec.TaskMember("instruction")) }

// SamplingSeed implements environment.Seeded.
func (c Program) SamplingSeed() int64 { return c.Seed }

// Repeats implements environment.Seeded: what a program does is not known.
func (Program) Repeats() bool { return false }

// Validate finds what the schema cannot express.
func (c Config) Validate() []spec.Problem { return c.problems(c.Stop) }

// problems are those of the program of a block with these stop texts.
func (c Program) problems(stop []string) []spec.Problem {
	var problems []spec.Problem
	if len(stop) > 0 {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("stop"),
			Summary: "an agent sets its own stop texts",
			Detail: fmt.Sprintf("stop is %q, and each call of a program has the stop texts that the program sends. Leave "+
				"it out.", stop)})
	}
	problems = append(problems, c.oneProgram()...)
	problems = append(problems, c.Sandbox.network()...)
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

// opens is what a recipe lets a sandbox reach beside what each has; empty: nothing.
func (s Sandbox) opens() string {
	var all []string
	if len(s.Network) > 0 {
		all = append(all, "the network")
	}
	for _, path := range s.Paths {
		all = append(all, fmt.Sprintf("%q", path))
	}
	return strings.Join(all, " and ")
}

// network finds what a sandbox cannot let through.
func (s Sandbox) network() []spec.Problem {
	var problems []spec.Problem
	for i, name := range s.Network {
		if name != "*" {
			problems = append(problems, spec.Problem{Path: cty.GetAttrPath("sandbox").GetAttr("network").IndexInt(i),
				Summary: "a sandbox opens no single hosts", Detail: fmt.Sprintf("network has %q. Leave it out, and the program "+
					`reaches the model alone, or write ["*"], and it reaches all that the machine reaches.`, name)})
		}
	}
	return problems
}

// oneProgram finds a block without a program, or with more than one.
func (c Program) oneProgram() []spec.Problem {
	at, summary, detail := "", "", ""
	switch known := c.Agent != nil; {
	case known && len(c.Command) > 0:
		at, summary, detail = "agent", "agent and command are both set", fmt.Sprintf("Each of them is the program of a "+
			"rollout. Leave out agent = %q, or command.", *c.Agent)
	case !known && len(c.Command) == 0:
		summary, detail = "no program", `Write agent = "NAME" for an agent that recipe env agents lists, or `+
			`command = ["python", "my_loop.py", task.instruction] for a program of your own.`
	case !known && len(c.AgentArgs) > 0:
		at, summary, detail = "agent_args", "agent_args without agent", "It adds arguments to a known agent. Add them to "+
			"command."
	case !known && c.Instruction != "":
		at, summary, detail = "instruction", "instruction without agent", "It is what a known agent is asked. Write it "+
			"into command, where the program expects it."
	default:
		return nil
	}
	problem := spec.Problem{Summary: summary, Detail: detail}
	if at != "" {
		problem.Path = cty.GetAttrPath(at)
	}
	return []spec.Problem{problem}
}
