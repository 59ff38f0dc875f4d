package draft

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/internal/nearest"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk"
)

// parts are what the recipe is put together from.
type parts struct {
	Request

	about     string // what the recipe was made from
	source    string // the source's file, relative to the recipe
	steps     int
	group     int
	batch     int // completions; 0: 16 groups
	engine    string
	inference []attribute
	kind      string // of environment
	settings  []attribute
	functions []function
	python    []string // requirements of the environment
	trainer   string
	training  []attribute
	config    *section       // the trainer's settings under its project's names
	saves     []attribute    // of a block checkpoints: every, keep_last
	lines     map[string]int // of the source's settings
	length    int            // tokens of a sequence; 0: not known
	gpus      int            // of the trainer; 0: one
	files     []File
	left      []Left
	before    []string // commands to run before plan
}

// function is a reward function of environment "reward".
type function struct {
	name   string // FILE.py:NAME or MODULE:NAME
	place  int    // among the source's rewards, by which weights are given
	weight any
}

// attribute is one line of a block. Expression is HCL; empty: value is written as a literal.
type attribute struct {
	name       string
	value      any
	expression string
	note       string
}

// newest are settings by name, in their order: the last value of a name counts, as of a flag behind a file.
func newest(settings []setting) []setting {
	var out []setting
	at := map[string]int{}
	for _, s := range settings {
		if i, known := at[s.Name]; known {
			out[i] = s
			continue
		}
		at[s.Name] = len(out)
		out = append(out, s)
	}
	return out
}

// leave notes a setting of the source that the recipe does not have.
func (p *parts) leave(s setting, why string) {
	p.left = append(p.left, Left{Setting: s.Name, Value: s.shown(), Line: s.Line, Why: why})
}

// beside is a path of a file as the recipe writes it: relative to its folder, or absolute.
func (p *parts) beside(path string) (string, error) {
	base, err := filepath.Abs(cmp.Or(p.Dir, "."))
	if err != nil {
		return "", err
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if rel, err := filepath.Rel(base, full); err == nil && filepath.IsLocal(rel) {
		return rel, nil
	}
	return full, nil // a recipe names code outside of its folder by an absolute path alone
}

// read finds out what the source is and takes over what it sets.
func (p *parts) read() error {
	name, symbol := p.From, ""
	if at := strings.LastIndex(name, ".py:"); at > 0 {
		name, symbol = name[:at+3], name[at+4:]
	}
	text, err := sourceText(name)
	if err != nil {
		return err
	}
	if p.source, err = p.beside(name); err != nil {
		return err
	}
	switch ext := strings.ToLower(filepath.Ext(name)); ext {
	case ".py":
		return p.readPython(name, symbol, text)
	case ".sh", ".bash":
		return p.readShell(name, text)
	case ".yaml", ".yml":
		return p.readYAML(name, text)
	default:
		return &sdk.Error{Summary: fmt.Sprintf("--from %s: files that end in %s cannot be read", name, ext),
			Remedy: "name a Python file (.py: a reward function, TRL's script, an environment of Atropos, a taskset of " +
				"verifiers), a script that starts verl (.sh), or a file of settings of TRL or verl (.yaml)"}
	}
}

// readPython takes over a Python file. A symbol names the function in it that gives the rewards.
func (p *parts) readPython(name, symbol, text string) error {
	described, err := describePython(name, text)
	if err != nil {
		return err
	}
	switch {
	case symbol != "":
		return p.fromFunction(name, symbol, described)
	case described.TRL != nil:
		return p.fromTRL(name, described, nil)
	case len(described.Atropos) > 0:
		return p.fromAtropos(name, described)
	case described.Taskset:
		return p.fromVerifiers(name)
	case described.LoadEnvironment:
		return &sdk.Error{Summary: name + " is an environment of verifiers before version 0.4 (load_environment)",
			Remedy: "write its tasks and rewards as a taskset of verifiers 0.4, or its reward as a function with TRL's " +
				"arguments: recipe new " + p.Name + " --from " + name + ":FUNCTION --data DATASET"}
	}
	var rewards []string
	for _, f := range described.Functions {
		if slices.Contains(f.Arguments, "completions") {
			rewards = append(rewards, f.Name)
		}
	}
	if len(rewards) == 1 {
		return p.fromFunction(name, rewards[0], described)
	}
	what := "has no function with an argument called completions, no GRPOTrainer, no environment of Atropos and no " +
		"taskset of verifiers"
	if len(rewards) > 1 {
		what = "has several functions with an argument called completions: " + strings.Join(rewards, ", ")
	}
	return &sdk.Error{Summary: name + " " + what,
		Remedy: "name the function that gives the rewards: --from " + name + ":FUNCTION"}
}

// fromFunction takes over a reward function in TRL's signature, and the dataset that Data names.
func (p *parts) fromFunction(name, symbol string, described description) error {
	if !slices.Contains(described.Names, symbol) {
		refusal := &sdk.Error{Summary: fmt.Sprintf("%s defines no %s", name, symbol)}
		if len(described.Names) > 0 {
			refusal.Remedy = "it defines " + strings.Join(described.Names, ", ")
			if meant := nearest.Name(symbol, described.Names); meant != "" {
				refusal.Remedy += "; did you mean " + meant + "?"
			}
		}
		return refusal
	}
	for _, f := range described.Functions {
		if f.Name == symbol && !f.Kwargs && !slices.Contains(f.Arguments, "completions") {
			return &sdk.Error{Summary: fmt.Sprintf("%s, line %d: %s takes no completions", name, f.Line, symbol),
				Remedy: "a reward function gets lists, by name: def " + symbol + "(completions, answer, **kwargs), with the " +
					"columns of the dataset, and returns a list of numbers"}
		}
	}
	if p.Data == "" {
		return &sdk.Error{Summary: "a reward function needs a dataset of prompts",
			Remedy: "add --data FILE (.jsonl, .json, .csv, .parquet, with a column called prompt), or --data NAME of the " +
				"Hugging Face hub"}
	}
	p.about = symbol + " of " + name
	p.kind, p.functions = "reward", []function{{name: p.source + ":" + symbol}}
	if columns, _ := decode.Rows(p.Data); len(columns) > 0 && !slices.Contains(columns, "prompt") {
		for _, usual := range []string{"question", "problem", "instruction", "query", "input", "text"} {
			if slices.Contains(columns, usual) {
				p.settings = append(p.settings, attribute{name: "prompt_column", value: usual})
				break
			}
		}
	}
	return p.dataset(p.Data)
}

// fewRows are so few that the default of eval_rows, 64, would leave little to train on.
const fewRows = 5 * 64

// dataset adds the dataset that the user or the source names.
func (p *parts) dataset(data string) error {
	given := data
	if isHere(data) {
		var err error
		if data, err = p.beside(data); err != nil {
			return err
		}
	}
	p.settings = append(p.settings, attribute{name: "dataset", value: data})
	if _, rows := decode.Rows(given); 1 < rows && rows < fewRows {
		p.settings = append(p.settings, attribute{name: "eval_rows", value: int(max(rows/5, 1)),
			note: "held out: a fifth of them"})
	}
	return nil
}

// checkData refuses a dataset that has the name of a file of rows and is not there.
func (r Request) checkData() error {
	if !decode.NamesRows(r.Data) || isHere(r.Data) {
		return nil
	}
	refusal := &sdk.Error{Summary: "--data " + r.Data + ": there is no such file",
		Remedy: "name a file of rows, a folder, or a name of the Hugging Face hub"}
	beside, _ := filepath.Glob(filepath.Join(filepath.Dir(r.Data), "*"+filepath.Ext(r.Data)))
	if meant := nearest.Name(r.Data, beside); meant != "" {
		refusal.Remedy = "did you mean " + meant + "?"
	}
	return refusal
}

// fromAtropos takes over an environment of Atropos, with what its config_init says.
func (p *parts) fromAtropos(name string, described description) error {
	env := described.Atropos[0]
	for _, one := range described.Atropos {
		if slices.Contains(described.CLI, one.Name) {
			env = one
		}
	}
	if !slices.Contains(described.CLI, env.Name) {
		return &sdk.Error{Summary: fmt.Sprintf("%s does not end in %s.cli(), so it cannot be started", name, env.Name),
			Remedy: fmt.Sprintf("add to its end: if __name__ == \"__main__\": %s.cli()", env.Name)}
	}
	p.about = fmt.Sprintf("%s of %s, line %d", env.Name, name, env.Line)
	p.kind = "atropos"
	p.settings = append(p.settings, attribute{name: "script", value: p.source})
	for _, s := range env.Settings {
		switch s.Name {
		case "group_size":
			p.group = s.whole(p.group)
		case "batch_size":
			p.batch = s.whole(0)
		case "total_steps":
			p.steps = s.whole(p.steps)
		case "tokenizer_name":
			p.takeServed(s)
		case "max_token_length":
			p.settings = append(p.settings, attribute{name: s.Name, value: s.whole(512)})
		case "steps_per_eval", "max_batches_offpolicy", "max_num_workers":
			p.settings = append(p.settings, attribute{name: s.Name, value: s.whole(1)})
		case "rollout_server_url":
			p.leave(s, "the engine injects the address")
		case "use_wandb", "wandb_name":
			p.leave(s, "wandb = true lets the environment log itself; tracking \"wandb\" logs the run")
		default:
			p.leave(s, "it holds as the class sets it; config = { … } of the block changes it")
		}
	}
	for _, s := range env.Servers {
		switch s.Name {
		case "model_name":
			p.takeServed(s)
		default:
			p.leave(s, "the inference block is the server: the engine injects its address, model and key")
		}
	}
	return nil
}

// takeModel takes the model that the source names, unless the user names one.
func (p *parts) takeModel(s setting) {
	if name, ok := s.literal().(string); ok && name != "" {
		if p.Model == "" {
			p.Model = name
		}
		return
	}
	p.leave(s, "its value is known only when the program runs: set the variable model")
}

// takeServed takes a model from the name under which a server has it, where that is a name of the hub or a folder.
func (p *parts) takeServed(s setting) {
	if name, ok := s.literal().(string); ok && !strings.Contains(name, "/") {
		p.leave(s, "it is the server's name for the model: --model names the model to train")
		return
	}
	p.takeModel(s)
}

// fromVerifiers takes over a taskset: a package that lies in a folder.
func (p *parts) fromVerifiers(name string) error {
	folder := filepath.Dir(p.source)
	module := strings.TrimSuffix(filepath.Base(p.source), ".py")
	if module == "__init__" || module == "taskset" {
		folder, module = filepath.Dir(folder), filepath.Base(folder)
	}
	p.about = "the taskset " + module + " of " + name
	p.kind = "verifiers"
	p.settings = append(p.settings, attribute{name: "taskset", value: module}, attribute{name: "path", value: folder})
	return nil
}
