package draft

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/plugins/verl"
	"github.com/recipe-rl/recipe/sdk"
)

// readShell takes over a script that starts verl.
func (p *parts) readShell(name, text string) error {
	described, err := describeShell(name, text)
	if err != nil {
		return err
	}
	settings := described.Settings
	for i, s := range settings {
		// Hydra's values are YAML's, as far as commands of verl use them, and so are those of TRL's flags.
		text := "[" + strings.Join(s.Texts, ", ") + "]"
		switch {
		case s.Text != nil:
			text = *s.Text
		case s.Texts == nil:
			continue
		case len(s.Texts) == 0:
			text = "true"
		case len(s.Texts) == 1:
			text = s.Texts[0]
		}
		value, err := yamlValue(text)
		if err != nil {
			return fmt.Errorf("%s, line %d: %s=%s: %w", name, s.Line, s.Name, text, err)
		}
		settings[i].Value = value
	}
	switch {
	case described.Program == "trl grpo":
		return p.fromTRLFile(name, settings)
	case described.Script != "":
		return p.fromCommand(name, described.Script, settings)
	case described.Program == "":
		return &sdk.Error{Summary: name + " starts no trainer of verl or TRL",
			Remedy: "it needs a line such as python3 -m verl.trainer.main_ppo data.train_files=… or accelerate launch " +
				"train.py --learning_rate 1e-6 …"}
	}
	return p.fromVerl(name, described.Program, settings)
}

// yamlValue is a value of YAML as JSON.
func yamlValue(text string) (json.RawMessage, error) {
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil {
		return nil, err
	}
	if len(root.Content) == 0 {
		return json.RawMessage("null"), nil
	}
	if nodes(&root, maxNodes) == 0 {
		return nil, errTooMany
	}
	return nodeValue(root.Content[0])
}

// maxNodes is how many values a file of settings may have, aliases counted each time. A long text counts as several.
const (
	maxNodes = 10_000
	longText = 400 // bytes that count as a value
)

var errTooMany = fmt.Errorf("it has more than %d values, or texts as long as these", maxNodes)

// readYAML takes over a file of settings: of trl, or of verl.
func (p *parts) readYAML(name, text string) error {
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil {
		return fmt.Errorf("--from %s: %w", name, err)
	}
	if len(root.Content) == 0 || root.Content[0].Kind != yaml.MappingNode {
		return &sdk.Error{Summary: "--from " + name + ": expected settings, NAME: VALUE"}
	}
	if nodes(&root, maxNodes) == 0 {
		return &sdk.Error{Summary: fmt.Sprintf("--from %s: %v", name, errTooMany)}
	}
	top := root.Content[0]
	var names []string
	for i := 0; i < len(top.Content); i += 2 {
		names = append(names, top.Content[i].Value)
	}
	if slices.ContainsFunc(names, func(n string) bool {
		return slices.Contains([]string{"actor_rollout_ref", "actor", "rollout", "algorithm", "critic"}, n)
	}) {
		settings, err := flat(top, "")
		if err != nil {
			return fmt.Errorf("--from %s: %w", name, err)
		}
		return p.fromVerl(name, "verl", settings)
	}
	if !slices.ContainsFunc(names, func(n string) bool {
		return slices.Contains([]string{"model_name_or_path", "reward_funcs", "num_generations", "dataset_name"}, n)
	}) {
		return &sdk.Error{Summary: "--from " + name + ": these are settings neither of trl nor of verl",
			Remedy: "a file of trl has model_name_or_path, a file of verl has actor_rollout_ref"}
	}
	var settings []setting
	for i := 0; i+1 < len(top.Content); i += 2 {
		value, err := nodeValue(top.Content[i+1])
		if err != nil {
			return fmt.Errorf("--from %s: %s: %w", name, top.Content[i].Value, err)
		}
		settings = append(settings, setting{Name: top.Content[i].Value, Line: top.Content[i].Line, Value: value})
	}
	return p.fromTRLFile(name, settings)
}

// nodes counts what a node stands for; 0: more than limit.
func nodes(n *yaml.Node, limit int) int {
	if limit <= 0 {
		return 0
	}
	if n.Kind == yaml.AliasNode {
		return nodes(n.Alias, limit)
	}
	count := 1 + len(n.Value)/longText
	for _, c := range n.Content {
		inner := nodes(c, limit-count)
		if inner == 0 {
			return 0
		}
		count += inner
	}
	if count > limit {
		return 0
	}
	return count
}

func nodeValue(n *yaml.Node) (json.RawMessage, error) {
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// flat is the settings of sections by their whole names.
func flat(n *yaml.Node, prefix string) ([]setting, error) {
	var out []setting
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := prefix+n.Content[i].Value, n.Content[i+1]
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 {
			inner, err := flat(value, name+".")
			if err != nil {
				return nil, err
			}
			out = append(out, inner...)
			continue
		}
		v, err := nodeValue(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, setting{Name: name, Line: n.Content[i].Line, Value: v})
	}
	return out, nil
}

// fromVerl takes over verl's settings: what its model engine reads goes into config, what recipe does itself into the
// block that does it.
func (p *parts) fromVerl(name, program string, settings []setting) error {
	p.about = fmt.Sprintf("the settings of %s in %s", program, name)
	p.kind, p.trainer, p.config = "reward", "verl", &section{}
	elsewhere := verl.Instead()
	given := map[string]setting{}
	for i, s := range settings {
		settings[i].Name = whole(s.Name)
	}
	settings = newest(settings)
	for _, s := range settings {
		given[s.Name] = s
	}
	if files, several := given["data.train_files"].literal().([]any); several && len(files) > 1 && p.Data == "" {
		p.leave(given["data.train_files"], "a dataset is one file or a folder: this is the first of them")
	}
	if p.Data == "" {
		p.Data = firstFile(given["data.train_files"])
	}
	if p.Data == "" {
		refusal := &sdk.Error{Summary: name + " has no data.train_files", Remedy: "add --data FILE"}
		if s := given["data.train_files"]; !s.known() {
			refusal.Summary = fmt.Sprintf("%s, line %d: data.train_files = %s is known only when the script runs", name, s.Line,
				s.shown())
		}
		return refusal
	}
	if err := p.dataset(p.Data); err != nil {
		return err
	}
	if err := p.verlReward(given); err != nil {
		return err
	}
	p.lines = linesOf(settings)
	for _, s := range settings {
		switch {
		case !s.known():
			p.leave(s, "its value is known only when the script runs")
		case s.literal() == nil || p.verlBlock(s):
		default:
			if why := instead(elsewhere, s.Name); why != "" {
				p.leave(s, p.managed(why))
				continue
			}
			p.config.set(strings.Split(strings.TrimPrefix(s.Name, "actor_rollout_ref."), "."), s.literal())
		}
	}
	prompts := given["data.train_batch_size"].whole(0)
	p.batch = prompts * p.group
	if p.engine == "sglang" {
		names := map[string]string{"gpu_memory_utilization": "mem_fraction_static", "tensor_parallel_size": "tp_size",
			"max_model_len": "context_length", "max_num_seqs": "max_running_requests"}
		for _, name := range []string{"max_num_batched_tokens", "enforce_eager"} {
			names[name] = ""
			if s, set := given["actor_rollout_ref.rollout."+name]; set {
				p.leave(s, "SGLang has no such setting")
			}
		}
		p.inference = renamed(p.inference, names)
	}
	return nil
}

// whole is the name of a setting with the section that verl's files leave out at times.
func whole(name string) string {
	for _, part := range []string{"actor.", "rollout.", "ref.", "model.", "hybrid_engine"} {
		if strings.HasPrefix(name, part) {
			return "actor_rollout_ref." + name
		}
	}
	return name
}

// instead is what to write in place of a setting, by the name of the setting or of its section.
func instead(table map[string]string, name string) string {
	for {
		if why := table[name]; why != "" {
			return why
		}
		at := strings.LastIndex(name, ".")
		if at < 0 {
			return ""
		}
		name = name[:at]
	}
}

// renamed gives attributes other names; one whose new name is empty goes.
func renamed(attributes []attribute, names map[string]string) []attribute {
	var out []attribute
	for _, a := range attributes {
		if to, ok := names[a.name]; ok {
			a.name = to
		}
		if a.name != "" {
			out = append(out, a)
		}
	}
	return out
}

// firstFile is the file of data.train_files, which may be a list.
func firstFile(s setting) string {
	switch v := s.literal().(type) {
	case string:
		return v
	case []any:
		if len(v) > 0 {
			text, _ := v[0].(string)
			return text
		}
	}
	return ""
}

// verlBlock takes over a setting that a block of the recipe has under another name.
func (p *parts) verlBlock(s setting) bool {
	number := func() int { return s.whole(0) }
	sampling := func(name string) {
		if f, ok := s.literal().(json.Number); ok {
			if v, err := f.Float64(); err == nil && v > 0 && !math.IsInf(v, 0) { // verl's top_k = -1 means all
				p.settings = append(p.settings, attribute{name: name, value: s.literal()})
			}
		}
	}
	switch strings.TrimPrefix(s.Name, "actor_rollout_ref.") {
	case "data.train_files", "data.train_batch_size", "custom_reward_function.path", "custom_reward_function.name":
	case "data.val_files":
		p.leave(s, "eval_rows of the environment rows are held out; recipe evaluate asks them")
	case "data.prompt_key":
		p.settings = append(p.settings, attribute{name: "prompt_column", value: s.literal()})
	case "data.max_prompt_length":
		p.training = append(p.training, attribute{name: "max_prompt_length", value: number()})
		p.length += number()
	case "data.max_response_length":
		p.settings = append(p.settings, attribute{name: "max_tokens", value: number()})
		p.length += number()
	case "data.seed":
		p.settings = append(p.settings, attribute{name: "seed", value: number()})
	case "model.path":
		p.takeModel(s)
	case "rollout.n":
		p.group = s.whole(p.group)
	case "rollout.name":
		p.engine, _ = s.literal().(string)
		if p.engine != "sglang" {
			p.engine = "vllm"
		}
	case "rollout.temperature", "rollout.top_p", "rollout.top_k":
		sampling(strings.TrimPrefix(s.Name, "actor_rollout_ref.rollout."))
	case "rollout.gpu_memory_utilization", "rollout.max_model_len", "rollout.max_num_seqs",
		"rollout.max_num_batched_tokens", "rollout.enforce_eager":
		p.inference = append(p.inference, attribute{name: strings.TrimPrefix(s.Name, "actor_rollout_ref.rollout."),
			value: s.literal()})
	case "rollout.tensor_model_parallel_size":
		p.inference = append(p.inference, attribute{name: "tensor_parallel_size", value: s.literal()})
	case "trainer.n_gpus_per_node":
		p.gpus = number()
	case "trainer.nnodes":
		return number() == 1
	case "trainer.project_name", "trainer.experiment_name":
		name := map[string]string{"project_name": "wandb_project", "experiment_name": "wandb_group"}
		p.training = append(p.training, attribute{name: name[strings.TrimPrefix(s.Name, "trainer.")], value: s.literal()})
	case "trainer.total_training_steps":
		p.steps = s.whole(p.steps)
	case "trainer.save_freq":
		if number() > 0 {
			p.saves = []attribute{{name: "every", value: number()}}
		}
	default:
		return false
	}
	return true
}

// verlReward writes a function in the signature of environment "reward" that calls verl's: the user's own, or the one
// that verl chooses by the row's data_source.
func (p *parts) verlReward(given map[string]setting) error {
	file := p.Name + "_rewards.py"
	path, _ := given["custom_reward_function.path"].literal().(string)
	name, _ := given["custom_reward_function.name"].literal().(string)
	if name == "" {
		name = "compute_score"
	}
	if !moduleName.MatchString(name) {
		return &sdk.Error{Summary: fmt.Sprintf("custom_reward_function.name: %q is no name of a function", name)}
	}
	load := "from verl.utils.reward_score import default_compute_score as compute_score"
	if path == "" {
		p.require("verl")
	} else {
		if !isHere(path) {
			return &sdk.Error{Summary: "custom_reward_function.path: there is no file " + path,
				Remedy: "run recipe new in the folder from which the script is started"}
		}
		if path, err := p.beside(path); err != nil {
			return err
		} else if module := strings.ReplaceAll(strings.TrimSuffix(path, ".py"), "/", "."); moduleName.MatchString(module) {
			load = "from " + module + " import " + name + " as compute_score"
		} else {
			load = fmt.Sprintf(verlLoad, path, name)
		}
	}
	p.functions = []function{{name: file + ":score"}}
	p.files = append(p.files, File{Path: file, Text: verlScore(load)})
	return nil
}

// moduleName is a module that Python imports from the recipe's folder.
var moduleName = lazyregexp.New(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$`)

// verlLoad loads the file of a reward function that lies elsewhere.
const verlLoad = `import importlib.util
from pathlib import Path

_spec = importlib.util.spec_from_file_location("verl_reward", Path(__file__).parent / %q)
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
compute_score = _module.%s`

// verlScore is the file around the statements that define compute_score.
func verlScore(load string) string {
	return `"""verl's reward function in the signature of environment "reward". Written by ` + "`recipe new`" + `."""

` + load + `


def score(completions, data_source, reward_model, extra_info=None, **columns):
    """The score of each completion, by the columns that verl's rows have."""
    scores = []
    for i, completion in enumerate(completions):
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        result = compute_score(data_source=data_source[i], solution_str=text,
                               ground_truth=reward_model[i]["ground_truth"],
                               extra_info=extra_info[i] if extra_info else None)
        scores.append(float(result["score"] if isinstance(result, dict) else result))
    return scores
`
}
