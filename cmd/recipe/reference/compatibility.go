package reference

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/sizing"
	"github.com/recipe-rl/recipe/plugins/agent"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// Tested are whole runs of a combination, with real programs on both sides.
type Tested struct {
	Engine, Trainer string
	Environments    []string // kinds of them
	Transports      []string
	Test            string   // a Go test of this repository
	With            string   // how it is run
	Pending         []string // further transports of the test, which has not been run with them yet
}

// Kinds of environment.
const inGo, inPython, atropos, programs = "Go", "Python", "Atropos", "agent"

// external stands for a server that recipe has not started, which takes no weights.
const external = "external"

// Tests are the runs that are recorded. A test checks that each exists.
func Tests() []Tested {
	one, own, all := []string{atropos}, []string{inGo, inPython}, []string{inGo, inPython, atropos}
	list := []Tested{
		{"tiny", "tiny", []string{inGo}, []string{"reload"}, "TestQuickstartBlocksLearn", "make test", nil},
		{"tiny", "tiny", one, []string{"reload"}, "TestTinyWithAnAtroposEnvironment", "make test", nil},
		{"tiny", "tiny", []string{inPython}, []string{"reload"}, "TestTinyWithAPythonEnvironment", "make test", nil},
		{"tiny", "tiny", []string{programs}, []string{"reload"}, "TestTinyWithAnAgent", "make test", nil},
		{"vllm", "grpo", one, []string{"reload"}, "TestAddition", "make e2e", nil},
		{"vllm", "grpo", []string{programs}, []string{"live"}, "TestAgentTools", "make e2e-all", nil},
		{"vllm", "grpo", one, []string{"live"}, "TestReasoningGym", "make e2e-all", nil},
		{"vllm", "grpo", one, []string{"ipc"}, "TestMemory", "make e2e-all", nil},
		{"vllm", "grpo", one, []string{"nccl"}, "TestCollective", "make e2e-all", nil},
		{"vllm", "grpo", one, []string{"lora"}, "TestAdapter", "make e2e-all", nil},
		{"sglang", "grpo", one, []string{"reload"}, "TestSGLang", "make e2e-sglang", nil},
		{"sglang", "grpo", one, []string{"live", "ipc", "nccl", "restart"}, "TestSGLangTransports", "make e2e-sglang", nil},
		{"sglang", "grpo", one, []string{"lora"}, "TestSGLangAdapter", "make e2e-sglang", nil},
		{"sglang", "grpo", []string{programs}, []string{"live"}, "TestSGLangAgent", "make e2e-sglang", nil},
		{"vllm", "trl", one, []string{"reload"}, "TestTRL", "make e2e-trl", nil},
		{"vllm", "verl", one, []string{"reload"}, "TestVerl", "make e2e-verl", nil},
		{"vllm", "axolotl", one, []string{"reload"}, "TestAxolotl", "make e2e-axolotl", nil},
		{"sglang", "trl", one, []string{"reload"}, "TestLearns", "make e2e-learning", nil},
		{"sglang", "verl", one, []string{"reload"}, "TestLearns", "make e2e-learning", nil},
		{"sglang", "axolotl", one, []string{"reload"}, "TestLearns", "make e2e-learning", nil},
	}
	for _, m := range []struct {
		engine, trainer string
		environments    []string
		transports      string
	}{
		{"vllm", "grpo", all, "restart"},
		{"vllm", "trl", one, "live ipc nccl lora"},
		{"vllm", "trl", all, "restart"},
		{"vllm", "verl", one, "live ipc nccl"},
		{"vllm", "verl", all, "restart"},
		{"vllm", "axolotl", all, "live ipc nccl lora restart"},
		{"sglang", "grpo", all, "live"},
		{"sglang", "trl", all, "live ipc nccl lora reload restart"},
		{"sglang", "verl", all, "live ipc nccl reload restart"},
		{"sglang", "axolotl", all, "live ipc nccl lora reload restart"},
	} {
		list = append(list, Tested{m.engine, m.trainer, m.environments, strings.Fields(m.transports), "TestMatrix",
			"make e2e-pairs PAIR=" + m.engine + "/" + m.trainer, nil})
	}
	return append(list, []Tested{
		{external, "grpo", own, nil, "TestAnExternalEngine", "make e2e-external", nil},
		{external, "grpo", one, nil, "TestAnExternalEngine", "make e2e-external", nil},
		{external, "trl", own, nil, "TestAnExternalEngine", "make e2e-external", nil},
		{external, "verl", own, nil, "TestAnExternalEngine", "make e2e-external", nil},
		{external, "axolotl", own, nil, "TestAnExternalEngine", "make e2e-external", nil},
	}...)
}

// adapters are attributes with which a block trains or serves adapters, which transport lora needs.
func adapters() map[string]map[string]cty.Value {
	object := func(name string, v cty.Value) cty.Value { return cty.ObjectVal(map[string]cty.Value{name: v}) }
	return map[string]map[string]cty.Value{
		"inference/vllm":   {"enable_lora": cty.True},
		"inference/sglang": {"enable_lora": cty.True},
		"trainer/grpo":     {"lora": object("rank", cty.NumberIntVal(8))},
		"trainer/trl":      {"config": object("use_peft", cty.True)},
		"trainer/axolotl":  {"config": object("adapter", cty.StringVal("lora"))},
		"trainer/verl":     {"config": object("model", object("lora_rank", cty.NumberIntVal(8)))},
	}
}

const introduction = "Engines (`inference`), trainers and the transports between them, on a GPU, from what the " +
	"plugins tell a plan;\n`recipe plan` refuses the rest before anything starts. **Bold**: a whole run with real " +
	"programs is a test (below); when each\nwas last run, on what, is in [benchmarks/e2e.md](benchmarks/e2e.md). Plain: " +
	"both sides support it, and no test has run\nit yet. `lora` needs adapters. Which transport is possible for one " +
	"recipe depends on " +
	"its machines and settings,\ntoo ([weights.md](weights.md))."

const environments = `
Environments in Go, in Python and of Atropos, and programs of ` + "`environment \"agent\"`" + `, speak with any engine
through its gateway, and with any trainer through the trajectory API: nothing of a pair of engine and trainer depends
on them. Packages of others that were tried as environments are in
[environments/packages.md](environments/packages.md). The engines with which a whole run of a trainer and a kind of
environment is a test:

`

const runs = `
An external server that speaks OpenAI's API keeps its weights: a recipe with one has no sync block. Environments in Go
and in Python train on its answers if they have token ids and log-probabilities, as those of vLLM have. Environments of
Atropos get these from ` + "`/generate`" + `, which SGLang has (` + "`server_type = \"sglang\"`" + `) and a gateway
of recipe; with another server, or without its tokenizer, the plan is refused.

A reference that is served (` + "`trainer \"grpo\"`" + `, ` + "`reference { inference = … }`" + `) is an ` + "`inference \"vllm\"`" + `, tested by
` + "`TestAServedReference` and `TestDistillation`" + `, or an external server that answers as vLLM does. SGLang is refused: its
/v1/completions has no prompt_logprobs ([distillation.md](distillation.md)).

## Whole runs that are tests
| engine | trainer | environments | transport | test | run by |
|---|---|---|---|---|---|
`

const unmodified = `
## Programs that know nothing of training
What ` + "`environment \"agent\"`" + ` was tested with. An engine and a trainer do not know the program: a session has
the same form for each.

| program | dialect | engine | trainer | test | run by |
|---|---|---|---|---|---|
`

const chaos = "| random programs, while gateway and engine are killed | all three | scripted | none: the batches are " +
	"compared with what the engine did | `TestSessionsAreTrainedAsSampled` | `make chaos` |\n"

// Compatibility is the page of which engines, trainers and transports go together, as plugins report it to a plan.
func Compatibility(definitions []*sdk.Definition) (Pages, error) {
	engines, trainers := map[string]map[string]string{}, map[string]map[string]string{}
	for _, d := range definitions {
		if d.Kind != kind.Inference && d.Kind != kind.Trainer {
			continue
		}
		facts, err := factsOf(d)
		if err != nil {
			return nil, fmt.Errorf("ask %s what it can do: %w", d.ID(), err)
		}
		if d.Kind == kind.Inference {
			engines[d.Name] = facts
		} else {
			trainers[d.Name] = facts
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# What goes together\n%s\n%s\n\n", notice, introduction)
	names := ordered(engines, "tiny", "vllm", "sglang")
	fmt.Fprintf(&b, "| trainer | %s | external |\n|---|%s\n", strings.Join(names, " | "),
		strings.Repeat("---|", len(names)+1))
	reasons := map[string]bool{}
	var whys []string
	for _, t := range ordered(trainers, "tiny", "grpo") {
		fmt.Fprintf(&b, "| `%s`", t)
		for _, e := range names {
			transports, why := sizing.Fits(trainers[t], engines[e])
			fmt.Fprintf(&b, " | %s", cell(e, t, transports, why, reasons, &whys))
		}
		transports, why := sizing.External()
		fmt.Fprintf(&b, " | %s |\n", cell(external, t, transports, why, reasons, &whys))
	}
	b.WriteString("\n")
	for i, why := range whys {
		fmt.Fprintf(&b, "%d. %s.\n", i+1, why)
	}
	b.WriteString(environments)
	byEnvironment(&b, ordered(trainers, "tiny", "grpo"))
	b.WriteString(runs)
	for _, r := range Tests() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | `%s` | `%s` |\n", r.Engine, r.Trainer, strings.Join(r.Environments, ", "),
			r.transports(), r.Test, r.With)
	}
	b.WriteString(unmodified)
	for _, a := range agent.Agents() {
		fmt.Fprintf(&b, "| `%s` %s | %s | scripted | none: the groups are checked | `TestAgentsOfOthers` | "+
			"`make test-agents` |\n", a.Name, a.Tried, a.Dialect)
	}
	for _, r := range Tests() {
		if slices.Contains(r.Environments, programs) {
			fmt.Fprintf(&b, "| a loop of one's own | Chat Completions | %s | %s | `%s` | `%s` |\n", r.Engine, r.Trainer, r.Test,
				r.With)
		}
	}
	b.WriteString(chaos)
	return Pages{"compatibility.md": b.String()}, nil
}

// transports are those of the runs, for the page.
func (r Tested) transports() string {
	text := strings.Join(r.Transports, ", ")
	if len(r.Pending) == 0 {
		return cmp.Or(text, "none")
	}
	return strings.TrimPrefix(text+"; not run yet: "+strings.Join(r.Pending, ", "), "; ")
}

// ran reports whether it has been run at all. An external engine takes no weights by any transport.
func (r Tested) ran() bool { return len(r.Transports) > 0 || len(r.Pending) == 0 }

// byEnvironment writes a table of the engines with which a run of a trainer and a kind of environment is a test.
func byEnvironment(b *strings.Builder, trainers []string) {
	kinds := []string{inGo, inPython, atropos, programs}
	fmt.Fprintf(b, "| trainer | %s |\n|---|%s\n", strings.Join(kinds, " | "), strings.Repeat("---|", len(kinds)))
	for _, t := range trainers {
		fmt.Fprintf(b, "| `%s`", t)
		for _, kind := range kinds {
			var engines []string
			for _, r := range Tests() {
				if r.ran() && r.Trainer == t && slices.Contains(r.Environments, kind) && !slices.Contains(engines, r.Engine) {
					engines = append(engines, r.Engine)
				}
			}
			fmt.Fprintf(b, " | %s", cmp.Or(strings.Join(engines, ", "), "not run"))
		}
		b.WriteString(" |\n")
	}
}

// cell is the transports of a pair, or the number of the reason why there are none.
func cell(engine, trainer string, transports []transport.Name, why string, seen map[string]bool,
	whys *[]string) string {
	if why != "" {
		if !seen[why] {
			seen[why], *whys = true, append(*whys, why)
		}
		return fmt.Sprintf("no (%d)", slices.Index(*whys, why)+1)
	}
	var out []string
	for _, name := range transports {
		if slices.ContainsFunc(Tests(), func(r Tested) bool {
			return r.Engine == engine && r.Trainer == trainer && slices.Contains(r.Transports, string(name))
		}) {
			out = append(out, "**"+string(name)+"**")
			continue
		}
		out = append(out, string(name))
	}
	return strings.Join(out, ", ")
}

// factsOf asks a plugin for the facts of a block with a model and one GPU, and of one that trains adapters.
func factsOf(d *sdk.Definition) (map[string]string, error) {
	given := map[string]cty.Value{}
	if d.Schema.Attribute("model") != nil {
		given["model"] = cty.StringVal("Qwen/Qwen2.5-1.5B-Instruct")
	}
	if d.Name == "tiny" {
		given = map[string]cty.Value{}
	}
	plan := func(more map[string]cty.Value) (map[string]string, error) {
		values := map[string]cty.Value{}
		for _, m := range []map[string]cty.Value{given, more} {
			for name, v := range m {
				values[name] = v
			}
		}
		v, err := d.Schema.Conform(cty.ObjectVal(values))
		if err != nil {
			return nil, err
		}
		e, _, err := d.Plan(d.Schema.ApplyDefaults(v), sdk.Placement{GPUs: 1})
		return e.Facts, err
	}
	facts, err := plan(nil)
	if more := adapters()[d.ID()]; err == nil && more != nil {
		var adapted map[string]string
		if adapted, err = plan(more); err == nil {
			facts["transports"] = adapted["transports"]
		}
	}
	return facts, err
}

// ordered are the names, those that are given first.
func ordered(m map[string]map[string]string, first ...string) []string {
	out := slices.DeleteFunc(slices.Clone(first), func(n string) bool { return m[n] == nil })
	var rest []string
	for name := range m {
		if !slices.Contains(first, name) {
			rest = append(rest, name)
		}
	}
	slices.Sort(rest)
	return append(out, rest...)
}
