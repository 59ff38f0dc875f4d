package draft

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/plugins/trl"
	"github.com/recipe-rl/recipe/sdk"
)

// fromCommand takes over a script that calls GRPOTrainer, with the flags that a command gives to it.
func (p *parts) fromCommand(name, script string, flags []setting) error {
	text, err := sourceText(script)
	if err != nil {
		return fmt.Errorf("%s starts %s: %w", name, script, err)
	}
	described, err := describePython(script, text)
	if err != nil {
		return err
	}
	if described.TRL == nil {
		return &sdk.Error{Summary: fmt.Sprintf("%s starts %s, which has no GRPOTrainer", name, script),
			Remedy: "a recipe is made from a command that starts a script with TRL's GRPOTrainer, trl grpo or verl"}
	}
	if p.source, err = p.beside(script); err != nil {
		return err
	}
	return p.fromTRL(script, described, flags)
}

// fromTRL takes over a script that calls GRPOTrainer. Flags are settings of its command line.
func (p *parts) fromTRL(name string, described description, flags []setting) error {
	script := described.TRL
	p.about = fmt.Sprintf("GRPOTrainer of %s, line %d", name, script.Line)
	if script.Trainers > 1 {
		p.left = append(p.left, Left{Setting: "GRPOTrainer", Value: fmt.Sprint(script.Trainers) + " calls", Line: script.Line,
			Why: "a recipe has one training: this is the last"})
	}
	named := slices.ContainsFunc(flags, func(s setting) bool { return s.Name == "model_name_or_path" })
	if script.Model != nil && !named {
		p.takeModel(*script.Model)
	}
	for _, s := range script.Other {
		if s.Name == "environment_factory" || s.Name == "rollout_func" {
			return &sdk.Error{Summary: fmt.Sprintf("%s, line %d: %s plays the episodes, and no recipe can be made from it",
				name, s.Line, s.Name), Remedy: "write an environment of several turns (recipe plugin new environment NAME --lang " +
				"python), or name its server in environment \"openenv\""}
		}
	}
	if len(script.Rewards) == 0 {
		return &sdk.Error{Summary: fmt.Sprintf("%s, line %d: no reward_funcs can be read", name, script.Line),
			Remedy: "write them as a list of names, reward_funcs=[accuracy], or name one: --from " + name + ":FUNCTION"}
	}
	p.kind = "reward"
	for _, s := range flags {
		if s.Name == "dataset_name" && p.Data == "" && len(script.DatasetSource) == 0 {
			p.Data, _ = s.literal().(string)
		}
	}
	if err := p.rewards(script); err != nil {
		return err
	}
	if err := p.trlDataset(name, script); err != nil {
		return err
	}
	if len(script.RewardSource) > 0 || slices.Contains(p.python, "trl") {
		for _, d := range described.Dependencies {
			p.require(d)
		}
	}
	p.trlSettings(append(slices.Clone(script.Settings), flags...))
	if script.Config == "" && len(flags) == 0 {
		p.batch = 0 // it is set elsewhere
	}
	if len(script.Peft) > 0 {
		peft := &section{}
		for _, s := range script.Peft {
			if !s.known() {
				p.leave(s, "its value is known only when the program runs: write it into config.peft_config")
				continue
			}
			peft.set([]string{s.Name}, s.literal())
		}
		p.config.set([]string{"peft_config"}, peft)
	}
	for _, s := range script.Other {
		if s.known() && s.literal() == nil || s.Name == "args" && len(flags) > 0 {
			continue
		}
		p.leave(s, p.managed(cmp.Or(otherArguments[s.Name], "config has the trainer's settings")))
	}
	return nil
}

// otherArguments names what a recipe has in place of GRPOTrainer's other arguments.
var otherArguments = map[string]string{
	"args":         "they come from elsewhere: --from FILE.sh reads a command, --from FILE.yaml a file",
	"eval_dataset": "eval_rows of the environment rows are held out; recipe evaluate asks them",
	"callbacks":    "the trainer has no callbacks: see alerts, tracking and stop_when",
	"tools":        "an environment of several turns: recipe plugin new environment NAME --lang python",
	"optimizers":   "config has TRL's optim, lr_scheduler_type and their settings",
}

// rewards takes over the reward functions. Functions of the script are copied into a file, since importing the script
// would start its training.
func (p *parts) rewards(script *trlScript) error {
	file := p.Name + "_rewards.py"
	for place, one := range script.Rewards {
		switch {
		case one.Model != "":
			p.left = append(p.left, Left{Setting: "reward_funcs", Value: one.Model, Line: one.Line,
				Why: "a reward model is no function: write one that asks it"})
			continue
		case one.Module == "":
			p.functions = append(p.functions, function{name: file + ":" + one.Name, place: place})
			continue
		}
		p.functions = append(p.functions, function{name: one.Module + ":" + one.Name, place: place})
		if top, _, _ := strings.Cut(one.Module, "."); top == "trl" {
			p.require("trl")
		} else {
			p.left = append(p.left, Left{Setting: "reward_funcs", Value: one.Module + "." + one.Name, Line: one.Line,
				Why: "the module lies beside the recipe, or runtime { requirements = […] } of the environment names its package"})
		}
	}
	if len(p.functions) == 0 {
		return &sdk.Error{Summary: "all reward_funcs are reward models", Remedy: "write a reward function that asks them"}
	}
	if len(script.RewardSource) > 0 {
		p.files = append(p.files, File{Path: file, Text: pythonFile(
			"Reward functions, copied from "+quoted(p.source)+" by `recipe new`: importing that file would start its training.",
			script.RewardSource)})
	}
	return nil
}

// require adds a package to the environment's Python, unless it is there, maybe with extras or a version.
func (p *parts) require(name string) {
	project := func(requirement string) string { return projectName.FindString(requirement) }
	for i, other := range p.python {
		if project(other) == project(name) {
			p.python[i] = name
			return
		}
	}
	p.python = append(p.python, name)
}

// projectName is the name of a package at the beginning of a requirement.
var projectName = lazyregexp.New(`^[\w.-]+`)

// quoted is a file's name for a docstring.
func quoted(name string) string {
	return strings.NewReplacer(`"`, "'", `\`, "/").Replace(oneLine(name))
}

// pythonFile puts statements together as a module.
func pythonFile(doc string, statements []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\"\"\"%s\"\"\"\n", doc)
	last := "import"
	for _, s := range statements {
		kind := "other"
		switch first, _, _ := strings.Cut(s, " "); {
		case first == "import" || first == "from":
			kind = "import"
		case strings.HasPrefix(s, "def ") || strings.HasPrefix(s, "async def ") || strings.HasPrefix(s, "class ") ||
			strings.HasPrefix(s, "@"):
			kind = "definition"
		}
		switch {
		case kind == "definition" || last == "definition":
			b.WriteString("\n\n")
		case kind != last || strings.HasSuffix(b.String(), "\"\"\"\n"):
			b.WriteString("\n")
		}
		b.WriteString(strings.TrimRight(s, "\n") + "\n")
		last = kind
	}
	return b.String()
}

// addData is the remedy where a source names no dataset.
const addData = "add --data FILE, or --data NAME of the Hugging Face hub"

// trlDataset takes over train_dataset: a call of load_dataset as it is, and anything else as a program of a few lines
// that writes the rows into a file once.
func (p *parts) trlDataset(name string, script *trlScript) error {
	switch {
	case p.Data != "":
		return p.dataset(p.Data)
	case len(script.DatasetSource) > 0:
		p.rowsProgram(name, script)
		return nil
	case len(script.Dataset) == 0:
		return &sdk.Error{Summary: fmt.Sprintf("%s, line %d: no train_dataset can be read", name, script.Line),
			Remedy: addData}
	}
	values := map[string]any{}
	for _, s := range script.Dataset {
		if !s.known() {
			p.leave(s, "its value is known only when the program runs: set dataset")
			continue
		}
		values[s.Name] = s.literal()
	}
	path, _ := values["path"].(string)
	if files, ok := values["data_files"].(string); ok && slices.Contains([]string{"json", "csv", "parquet"}, path) {
		return p.dataset(files)
	}
	if path == "" || values["data_files"] != nil {
		return &sdk.Error{Summary: fmt.Sprintf("%s, line %d: load_dataset names no dataset", name, script.Line),
			Remedy: addData}
	}
	if err := p.dataset(path); err != nil {
		return err
	}
	if config, ok := values["name"].(string); ok {
		p.settings = append(p.settings, attribute{name: "dataset_config", value: config})
	}
	if split, ok := values["split"].(string); ok && split != "train" {
		p.settings = append(p.settings, attribute{name: "split", value: split})
	}
	return nil
}

// rowsProgram writes the script's statements that make train_dataset into a program, which the user runs once.
func (p *parts) rowsProgram(name string, script *trlScript) {
	program, rows := p.Name+"_rows.py", p.Name+"_train.jsonl"
	text := pythonFile("Writes the rows of train_dataset of "+quoted(p.source)+" into "+rows+". Copied by `recipe new`; run it once.",
		script.DatasetSource)
	text += fmt.Sprintf("\ntrain_dataset.to_json(%q)\n", rows)
	p.files = append(p.files, File{Path: program, Text: text})
	p.settings = append(p.settings, attribute{name: "dataset", value: rows, note: "python " + program + " writes it"})
	p.before = append(p.before, "python3 "+program+"    # needs the packages of "+name+"; writes "+rows)
}

// trlSettings takes over the fields of GRPOConfig: what TRL's trainer reads goes into config, what recipe does itself
// into the block that does it.
func (p *parts) trlSettings(settings []setting) {
	settings = newest(settings)
	p.trainer, p.config = "trl", &section{}
	elsewhere := trl.Managed().Managed
	given := map[string]setting{}
	for _, s := range settings {
		given[s.Name] = s
	}
	loss, _ := given["loss_type"].literal().(string)
	if _, set := given["max_completion_length"]; !set {
		settings = append(settings, setting{Name: "max_completion_length", Value: json.RawMessage("256")}) // TRL's default
	}
	p.lines = linesOf(settings)
	for _, s := range settings {
		if !s.known() {
			p.leave(s, "its value is known only when the program runs")
			continue
		}
		if s.literal() == nil { // None is TRL's way to leave a setting out
			continue
		}
		switch s.Name {
		case "num_generations":
			p.group = s.whole(p.group)
		case "max_completion_length":
			p.settings = append(p.settings, attribute{name: "max_tokens", value: s.whole(256)})
			p.length += s.whole(256)
			if loss == "dr_grpo" { // the one that divides by it
				p.config.set([]string{s.Name}, s.literal())
			}
		case "max_prompt_length":
			p.training = append(p.training, attribute{name: s.Name, value: s.whole(0)})
			p.length += s.whole(0)
		case "temperature":
			p.settings = append(p.settings, attribute{name: s.Name, value: s.literal()})
			p.config.set([]string{s.Name}, s.literal())
		case "top_p", "top_k", "min_p", "repetition_penalty":
			if n := s.whole(1); n > 0 {
				p.settings = append(p.settings, attribute{name: s.Name, value: s.literal()})
			}
		case "max_steps":
			if n := s.whole(-1); n > 0 {
				p.steps = n
			}
		case "seed":
			p.training = append(p.training, attribute{name: s.Name, value: s.literal()})
		case "reward_weights":
			weights, _ := s.literal().([]any)
			for i, f := range p.functions {
				if f.place < len(weights) {
					p.functions[i].weight = weights[f.place]
				}
			}
		case "generation_batch_size", "steps_per_generation", "gradient_accumulation_steps":
		case "save_steps", "save_total_limit", "save_strategy":
		case "vllm_gpu_memory_utilization":
			p.inference = append(p.inference, attribute{name: "gpu_memory_utilization", value: s.literal()})
		case "vllm_tensor_parallel_size":
			p.inference = append(p.inference, attribute{name: "tensor_parallel_size", value: s.literal()})
		case "vllm_max_model_length":
			p.inference = append(p.inference, attribute{name: "max_model_len", value: s.literal()})
			p.length = max(p.length, s.whole(0))
		case "model_name_or_path":
			p.takeModel(s)
		case "use_vllm":
			if on, _ := s.literal().(bool); !on {
				p.leave(s, "an inference block always samples")
			}
		case "chat_template_kwargs":
			p.leave(s, "a column of the dataset with this name goes to the chat template")
		case "num_train_epochs":
			p.leave(s, "the variable steps: environments repeat their rows as long as steps are left")
		default:
			why, managed := elsewhere[s.Name]
			if !managed && strings.HasPrefix(s.Name, "vllm_") && !strings.HasPrefix(s.Name, "vllm_importance_sampling_") {
				why, managed = "the inference block is the server, on GPUs of its placement", true
			}
			if managed {
				p.leave(s, p.managed(why))
				continue
			}
			p.config.set([]string{s.Name}, s.literal())
		}
	}
	p.trlBatch(given)
	p.trlCheckpoints(given)
}

// trlBatch is TRL's generation batch on one GPU.
func (p *parts) trlBatch(given map[string]setting) {
	each := given["per_device_train_batch_size"].whole(8)
	accumulated := given["gradient_accumulation_steps"].whole(1)
	turns := given["steps_per_generation"].whole(accumulated)
	p.batch = given["generation_batch_size"].whole(each * turns)
	if accumulated > 0 && p.batch != each*accumulated {
		p.config.set([]string{"gradient_accumulation_steps"}, accumulated)
	}
}

func (p *parts) trlCheckpoints(given map[string]setting) {
	var lines []attribute
	if n := given["save_steps"].whole(0); n > 0 {
		lines = append(lines, attribute{name: "every", value: n})
	}
	if n := given["save_total_limit"].whole(0); n > 0 {
		lines = append(lines, attribute{name: "keep_last", value: n})
	}
	if how, _ := given["save_strategy"].literal().(string); how == "no" {
		lines = []attribute{{name: "every", value: 0, note: "only at the end"}}
	}
	p.saves = lines
}

// fromTRLFile takes over a file of settings as `trl grpo --config` reads it.
func (p *parts) fromTRLFile(name string, settings []setting) error {
	p.about = "the settings of trl grpo in " + name
	p.kind = "reward"
	var rest []setting
	var weights *setting
	path := p.Data
	for _, s := range settings {
		text, _ := s.literal().(string)
		switch s.Name {
		case "dataset_name":
			if path == "" {
				path = text
			}
		case "dataset_config":
			p.settings = append(p.settings, attribute{name: "dataset_config", value: text})
		case "dataset_train_split":
			p.settings = append(p.settings, attribute{name: "split", value: text})
		case "reward_funcs":
			p.trlRewards(s)
		case "reward_weights":
			weights = &s
		default:
			rest = append(rest, s)
		}
	}
	if len(p.functions) == 0 {
		return &sdk.Error{Summary: name + " names no reward function", Remedy: "add reward_funcs, for example " +
			"reward_funcs: [accuracy_reward], or make the recipe from the function: --from rewards.py:FUNCTION"}
	}
	if path == "" {
		return &sdk.Error{Summary: name + " names no dataset", Remedy: addData}
	}
	if err := p.dataset(path); err != nil {
		return err
	}
	if weights != nil {
		rest = append(rest, *weights)
	}
	p.trlSettings(rest)
	return nil
}

// trlRewards takes over names of reward functions as trl's command line has them: its own, or of a module.
func (p *parts) trlRewards(s setting) {
	names, _ := s.literal().([]any)
	if one, ok := s.literal().(string); ok {
		names = []any{one}
	}
	for place, n := range names {
		name, _ := n.(string)
		switch module, attribute, found := cutLast(name, "."); {
		case found:
			p.functions = append(p.functions, function{name: module + ":" + attribute, place: place})
		case strings.HasSuffix(name, "_reward"):
			p.require("trl")
			p.functions = append(p.functions, function{name: "trl.rewards:" + name, place: place})
		default:
			p.leave(s, name+" is a reward model: write a function that asks it")
		}
	}
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
