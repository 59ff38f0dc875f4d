package slurm

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// reserved are the options of sbatch on which this executor depends, with what to do instead.
var reserved = map[string]string{
	"comment":         "the comment is how a job is found again",
	"array":           "each replica of a block is a job of its own: use count or for_each in the block",
	"clusters":        "jobs are looked for in one cluster: name it by SLURM_CONF in the engine's environment",
	"wrap":            "the script of the job is the executor's",
	"test-only":       "nothing would be submitted",
	"help":            "nothing would be submitted",
	"usage":           "nothing would be submitted",
	"version":         "nothing would be submitted",
	"wait":            "sbatch would not return before the job is over",
	"requeue":         "the engine submits a new job for each attempt: see restart",
	"no-requeue":      "the executor sets it",
	"signal":          "the executor sets it from health { stop_timeout }",
	"chdir":           "the job starts in the folder of its block",
	"input":           "the executor sets it",
	"output":          "recipe logs reads the job's output where the executor has it written",
	"error":           "recipe logs reads the job's output where the executor has it written",
	"export":          "use setup",
	"export-file":     "use setup",
	"get-user-env":    "use setup",
	"nodes":           "use nodes in placement of the block",
	"ntasks":          "the executor starts one program on each machine: use nodes and cpus in placement of the block",
	"ntasks-per-node": "the executor starts one program on each machine: use nodes and cpus in placement of the block",
	"uid":             "jobs are looked for among the user's own",
	"gid":             "jobs are looked for among the user's own",
}

// quoted is a value in quotes, in which a word may begin with a dash.
var quoted = lazyregexp.New(`"[^"]*"|'[^']*'`)

// problemOf is what is wrong with an option; empty: nothing.
func problemOf(option string) (summary, detail string) {
	if !strings.HasPrefix(option, "--") || strings.ContainsAny(option, "\n\r") {
		return "Not an option of sbatch", fmt.Sprintf("Expected an option such as \"--exclusive\" or \"--nice=100\"; got %q.",
			option)
	}
	words := strings.Fields(quoted.ReplaceAllString(option, "_"))
	for _, w := range words[1:] {
		if strings.HasPrefix(w, "-") {
			return "Several options of sbatch in one element",
				fmt.Sprintf("Write %q as an element of its own; got %q.", w, option)
		}
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(words[0], "--"), "=")
	for _, full := range slices.Sorted(maps.Keys(reserved)) {
		if strings.HasPrefix(full, name) { // sbatch takes the beginning of a name, too
			return "An option that the executor sets itself",
				fmt.Sprintf("Remove %q: --%s is not allowed here; %s.", option, full, reserved[full])
		}
	}
	return "", ""
}

// Validate implements sdk.Validator.
func (Config) Validate(c Config) []spec.Problem {
	out := c.problems()
	for i, o := range c.Options {
		if summary, detail := problemOf(o); summary != "" {
			out = append(out, spec.Problem{Path: cty.GetAttrPath("options").IndexInt(i), Summary: summary, Detail: detail})
		}
	}
	return out
}
