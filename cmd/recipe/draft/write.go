package draft

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/recipe-rl/recipe/engine/printable"
)

// section is settings by name, in the order in which they were set. A value may be a section.
type section struct {
	names  []string
	values map[string]any
}

// set gives a setting below the sections of its path a value.
func (s *section) set(path []string, value any) {
	if s.values == nil {
		s.values = map[string]any{}
	}
	name := path[0]
	old, known := s.values[name]
	if !known {
		s.names = append(s.names, name)
	}
	if len(path) == 1 {
		s.values[name] = value
		return
	}
	inner, ok := old.(*section)
	if !ok {
		inner = &section{}
		s.values[name] = inner
	}
	inner.set(path[1:], value)
}

func (s *section) text() string {
	var b strings.Builder
	b.WriteString("{\n")
	for _, name := range s.names {
		value := s.values[name]
		text := ""
		if inner, ok := value.(*section); ok {
			text = inner.text()
		} else {
			text = literal(value)
		}
		b.WriteString(key(name) + " = " + text + "\n")
	}
	return b.String() + "}"
}

// key is a name in an object.
func key(name string) string {
	for i, r := range name {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return literal(name)
		}
	}
	return name
}

// literal is a value as HCL.
func literal(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "null"
	}
	if n, ok := v.(json.Number); ok {
		return n.String()
	}
	t, err := ctyjson.ImpliedType(text)
	if err != nil {
		return "null"
	}
	value, err := ctyjson.Unmarshal(text, t)
	if err != nil || value == cty.NilVal {
		return "null"
	}
	return string(hclwrite.TokensForValue(value).Bytes())
}

func (a attribute) text() string {
	text := a.expression
	if text == "" {
		text = literal(a.value)
	}
	text = a.name + " = " + text
	if a.note != "" {
		text += " # " + a.note
	}
	return text
}

// block is the source of a block.
func block(header string, lines ...attribute) string {
	var b strings.Builder
	b.WriteString(header + " {\n")
	for _, l := range lines {
		b.WriteString(l.text() + "\n")
	}
	return b.String() + "}"
}

// smallModel is what a recipe trains whose source names no model.
const smallModel = "Qwen/Qwen2.5-0.5B-Instruct"

// draft puts the parts together.
func (p *parts) draft() Draft {
	file := p.Name + ".hcl"
	if p.tiny() {
		p.leaveForTiny()
	}
	d := Draft{Left: p.left, About: p.about, Files: append([]File{{Path: file, Text: p.recipe()}}, p.files...)}
	at := printable.ShellWord(file)
	if p.Dir != "" && p.Dir != "." {
		d.Next = append(d.Next, "cd "+printable.ShellWord(p.Dir))
	}
	d.Next = append(d.Next, p.before...)
	if p.Machine != "cpu" || p.kind != "reward" || len(p.python) > 0 {
		d.Next = append(d.Next, "recipe init "+at+"    # makes the Python environments")
	}
	d.Next = append(d.Next, "recipe plan "+at,
		"recipe env try "+at+" "+p.address()+"    # without a trainer", "recipe apply "+at)
	return d
}

// address is the environment's.
func (p *parts) address() string { return "environment." + p.kind + "." + blockName(p.Name) }

// tiny reports whether the model that is built into the program is trained.
func (p *parts) tiny() bool { return p.Machine == "cpu" }

// recipe is the recipe's source.
func (p *parts) recipe() string {
	var b strings.Builder
	add := func(text string) { b.WriteString(text + "\n") }
	for _, line := range p.head() {
		add(strings.TrimRight("# "+line, " "))
	}
	add("")
	if !p.tiny() {
		add(block(`variable "model"`, attribute{name: "type", expression: "string"},
			attribute{name: "default", value: cmp.Or(p.Model, smallModel)}) + "\n")
	}
	add(block(`variable "steps"`, attribute{name: "type", expression: "number"},
		attribute{name: "default", value: p.steps}) + "\n")
	if p.Machine == "slurm" {
		add("executor \"slurm\" \"cluster\" {\n# partition = \"gpu\" # sinfo lists them\n}\n")
	}
	add(p.inferenceBlock() + "\n")
	add(p.environmentBlock() + "\n")
	add(p.trainerBlock() + "\n")
	kind, engine := p.kinds()
	add(block(`sync "weights" "policy"`, attribute{name: "trainer", expression: "trainer." + kind + ".policy"},
		attribute{name: "inference", expression: "[inference." + engine + ".policy]"},
		attribute{name: "max_staleness", value: 4, note: "older samples are not trained on"}) + "\n")
	add(`output "checkpoint" { value = trainer.` + kind + `.policy.checkpoint }`)
	return string(hclwrite.Format([]byte(b.String())))
}

// head is the comment at the top: where the recipe comes from, and what of it is not here.
func (p *parts) head() []string {
	lines := []string{"Written by `recipe new` from " + oneLine(p.about) + "."}
	if p.tiny() {
		lines = append(lines,
			"It trains the small model that is built into recipe, without a GPU: it shows that data and rewards work.",
			"With --on gpu, recipe new writes a recipe for a model of your choice.")
	}
	if len(p.left) > 0 {
		lines = append(lines, "", "What is not carried over:")
		for _, l := range p.left {
			lines = append(lines, "  "+l.String())
		}
	}
	return lines
}

// oneLine is text for a comment: a line break would end it.
func oneLine(text string) string { return printable.Text(strings.Join(strings.Fields(text), " ")) }

// String is one line about the setting.
func (l Left) String() string {
	text := l.Setting
	if l.Value != "" {
		text += " = " + l.Value
	}
	if l.Line > 0 {
		text += fmt.Sprintf(" (line %d)", l.Line)
	}
	if l.Why != "" {
		text += ": " + l.Why
	}
	return oneLine(text)
}

// kinds are the trainer and the engine of the recipe.
func (p *parts) kinds() (trainer, engine string) {
	if p.tiny() {
		return "tiny", "tiny"
	}
	return cmp.Or(p.trainer, "grpo"), cmp.Or(p.engine, "vllm")
}

func (p *parts) inferenceBlock() string {
	_, engine := p.kinds()
	if p.tiny() {
		return `inference "tiny" "policy" {}`
	}
	share, length := "gpu_memory_utilization", "max_model_len"
	if engine == "sglang" {
		share, length = "mem_fraction_static", "context_length"
	}
	lines := []attribute{{name: "model", expression: "var.model"}}
	has := map[string]bool{}
	tensor := 1
	for _, a := range p.inference {
		has[a.name] = true
		if a.name == "tensor_parallel_size" || a.name == "tp_size" {
			if n, ok := a.value.(json.Number); ok {
				if v, err := n.Int64(); err == nil {
					tensor = int(v)
				}
			}
		}
	}
	lines = append(lines, p.inference...)
	if !has[length] {
		lines = append(lines, attribute{name: length, value: p.sequence(), note: "tokens of prompt and answer"})
	}
	if p.Machine == "gpu" && !has[share] {
		lines = append(lines, attribute{name: share, value: 0.45, note: "the trainer needs the rest of the GPU"})
	}
	return nest(block(`inference "`+engine+`" "policy"`, lines...), p.placement(tensor))
}

// sequence is how many tokens a sequence may have.
func (p *parts) sequence() int {
	if p.length > 0 && slices.ContainsFunc(p.training, func(a attribute) bool { return a.name == "max_prompt_length" }) {
		return p.length
	}
	return max(2048, p.length+1024)
}

// placement is the block that says where a block runs.
func (p *parts) placement(gpus int) string {
	lines := []attribute{{name: "gpus", value: gpus}}
	switch p.Machine {
	case "gpu":
		devices := make([]string, gpus)
		for i := range devices {
			devices[i] = fmt.Sprint(i)
		}
		lines = append(lines, attribute{name: "devices", value: devices, note: "shared by inference and trainer"})
	case "slurm":
		lines = append(lines, attribute{name: "executor", expression: "executor.slurm.cluster"},
			attribute{name: "time_limit", value: "12h"})
	}
	return block("placement", lines...)
}

// nest puts blocks at the end of a block.
func nest(outer string, inner ...string) string {
	outer = strings.TrimSuffix(outer, "}")
	for _, one := range inner {
		outer += one + "\n"
	}
	return outer + "}"
}

func (p *parts) environmentBlock() string {
	_, engine := p.kinds()
	lines := []attribute{{name: "inference", expression: "inference." + engine + ".policy"}}
	lines = append(lines, p.settings...)
	lines = append(lines, attribute{name: "group_size", value: p.group,
		note: "answers to one prompt, compared with each other"})
	var inner []string
	switch {
	case len(p.functions) == 1 && p.functions[0].weight == nil:
		lines = append(lines, attribute{name: "function", value: p.functions[0].name})
	default:
		for _, f := range p.functions {
			one := []attribute{{name: "function", value: f.name}}
			if f.weight != nil {
				one = append(one, attribute{name: "weight", value: f.weight})
			}
			inner = append(inner, block("functions", one...))
		}
	}
	if len(p.python) > 0 {
		inner = append(inner, block("runtime", attribute{name: "requirements", value: p.python}))
	}
	return nest(block(fmt.Sprintf("environment %q %q", p.kind, blockName(p.Name)), lines...), inner...)
}

// blockName is the recipe's name in the form of a block's name.
func blockName(name string) string { return strings.ReplaceAll(name, "-", "_") }

func (p *parts) trainerBlock() string {
	kind, _ := p.kinds()
	batch := p.batch
	if batch < p.group {
		batch = 16 * p.group
	}
	batch = (batch + p.group - 1) / p.group * p.group
	lines := []attribute{{name: "environments", expression: "[" + p.address() + "]"},
		{name: "steps", expression: "var.steps"},
		{name: "batch_size", value: batch, note: fmt.Sprintf("answers: prompts × %d", p.group)}}
	if p.tiny() {
		lines = append(lines, attribute{name: "learning_rate", value: json.Number("3e-4")})
		for _, a := range p.saves {
			a.name = map[string]string{"every": "save_every", "keep_last": "keep"}[a.name]
			lines = append(lines, a)
		}
		return block(`trainer "tiny" "policy"`, lines...)
	}
	lines = append([]attribute{{name: "model", expression: "var.model"}}, lines...)
	lines = append(lines, attribute{name: "max_length", value: p.sequence()})
	lines = append(lines, p.training...)
	var inner []string
	if len(p.saves) > 0 {
		inner = append(inner, block("checkpoints", p.saves...))
	}
	switch {
	case p.config != nil && len(p.config.names) > 0:
		lines = append(lines, attribute{name: "config", expression: p.config.text()})
	case p.config == nil: // an adapter, so that the model fits beside inference
		lines = append(lines, attribute{name: "learning_rate", value: json.Number("3e-6")})
		lora := block("lora", attribute{name: "rank", value: 64}, attribute{name: "alpha", value: 32})
		inner = append([]string{lora}, inner...)
	}
	return nest(block(`trainer "`+kind+`" "policy"`, lines...), append(inner, p.placement(max(p.gpus, 1)))...)
}
