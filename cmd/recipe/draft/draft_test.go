package draft

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/recipe-rl/recipe/plugins/trl"
	"github.com/recipe-rl/recipe/plugins/verl"
	"github.com/recipe-rl/recipe/sdk"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Without a GPU, and without a word of what machine it is for, the recipe for a CPU is named.
func TestARecipeForThisMachineIsNamed(t *testing.T) {
	t.Parallel()
	from := Request{Name: "words", From: "a b.py:f", Data: "rows.jsonl"}
	want := "recipe new words-cpu --from 'a b.py:f' --data rows.jsonl --on cpu"
	if got := from.OnCPU(false); !strings.HasSuffix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for name, c := range map[string]struct {
		r   Request
		gpu bool
	}{
		"a GPU":     {from, true},
		"asked for": {Request{Name: "x", From: "a.py", Machine: "gpu"}, false},
		"example":   {Request{Name: "x"}, false},
	} {
		if got := c.r.OnCPU(c.gpu); got != "" {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// What recipes are made of each source, word for word. The sources would end with an error if they were run.
//
//docs:new.md settings keep their names and values in config, the rest moves or is listed
func TestDrafts(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]Request{
		"example":       {},
		"example-gpu":   {Machine: "gpu", Model: "org/model"},
		"reward":        {From: "testdata/rewards.py", Data: "org/questions"},
		"reward-slurm":  {From: "testdata/rewards.py:exact", Data: "testdata/rewards.py", Machine: "slurm"},
		"reward-few":    {From: "testdata/rewards.py:exact", Data: "testdata/questions.jsonl", Machine: "cpu"},
		"trl":           {From: "testdata/trl.py"},
		"trl-cpu":       {From: "testdata/trl.py", Machine: "cpu"},
		"trl-plain":     {From: "testdata/plain.py"},
		"trl-settings":  {From: "testdata/trl.yaml", Machine: "gpus"},
		"trl-command":   {From: "testdata/launch.sh"},
		"trl-arguments": {From: "testdata/command.py"},
		"verl":          {From: "testdata/verl.sh"},
		"verl-settings": {From: "testdata/verl.yaml", Machine: "gpus", Model: "mine"},
		"atropos":       {From: "testdata/atropos.py"},
		"verifiers":     {From: "testdata/tasks/__init__.py"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r.Name = "sums"
			d, err := r.Make()
			if err != nil {
				t.Fatal(err)
			}
			var got txtar.Archive
			got.Comment = []byte(strings.Join(d.Next, "\n") + "\n")
			for _, f := range d.Files {
				if len(f.Text) > 8<<10 {
					f.Text = strings.Join(strings.SplitAfter(f.Text, "\n")[:3], "")
				}
				got.Files = append(got.Files, txtar.File{Name: f.Path, Data: []byte(f.Text)})
			}
			golden := filepath.Join("testdata", name+".txtar")
			if *update {
				if err := os.WriteFile(golden, txtar.Format(&got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(want, txtar.Format(&got)) {
				t.Errorf("not as in %s (-update writes it):\n%s", golden, txtar.Format(&got))
			}
			if _, problems := hclsyntax.ParseConfig([]byte(d.Files[0].Text), "sums.hcl", hcl.InitialPos); problems.HasErrors() {
				t.Error(problems)
			}
		})
	}
}

// Sources from which no recipe can be made, with what the error has to name.
func TestRefusals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	reward, other := "def a(completions, **kwargs): pass\n", "def b(completions, **kwargs): pass\n"
	env := "from atroposlib.envs.base import BaseEnv\nclass A(BaseEnv): pass"
	call := "from trl import GRPOTrainer\nGRPOTrainer(model='x')"
	file := "model_name_or_path: x\ndataset_name: y"
	for name, c := range map[string]struct {
		request Request
		want    string
	}{
		"no file":            {Request{From: "absent.py"}, "no such file"},
		"a name":             {Request{Name: "A b"}, "no name for a recipe"},
		"a machine":          {Request{Machine: "gpuss"}, "expected one of cpu, gpu"},
		"another ending":     {Request{From: source("x.ipynb", "{}")}, ".ipynb cannot be read"},
		"wrong syntax":       {Request{From: source("syntax.py", "x = 1\ndef (")}, "line 2"},
		"not UTF-8":          {Request{From: source("latin.py", "x = '\xff'")}, "cannot be read"},
		"no reward":          {Request{From: source("none.py", "x = 1")}, "no function with an argument called completions"},
		"several":            {Request{From: source("two.py", reward+other)}, "several functions"},
		"no such data":       {Request{From: source("one.py", reward), Data: "absent.jsonl"}, "there is no such file"},
		"another name":       {Request{From: source("one.py", reward) + ":b", Data: "x"}, "defines no b"},
		"no dataset":         {Request{From: source("data.py", reward)}, "needs a dataset"},
		"other arguments":    {Request{From: source("args.py", "def a(x): pass") + ":a", Data: "x"}, "takes no completions"},
		"old verifiers":      {Request{From: source("old.py", "def load_environment(): pass")}, "before version 0.4"},
		"no cli":             {Request{From: source("cli.py", env)}, "A.cli()"},
		"a script of none":   {Request{From: source("none.sh", "echo hello")}, "starts no trainer of verl"},
		"another script":     {Request{From: source("other.sh", "python "+source("x.py", "x = 1"))}, "has no GRPOTrainer"},
		"a variable":         {Request{From: source("v.sh", "verl.trainer.main_ppo data.train_files=$X")}, "$X is known"},
		"open quotes":        {Request{From: source("open.sh", "echo 'hello")}, "quotes"},
		"verl without files": {Request{From: source("files.sh", "python -m verl.trainer.main_ppo x=1")}, "data.train_files"},
		"verl's function": {Request{From: source("f.yaml", "actor: {x: 1}\ndata: {train_files: x}\n"+
			"custom_reward_function: {path: f.yaml, name: 'x; y'}")}, "no name of a function"},
		"other settings":   {Request{From: source("other.yaml", "a: 1")}, "neither of trl nor of verl"},
		"a list":           {Request{From: source("list.yaml", "- 1")}, "NAME: VALUE"},
		"aliases":          {Request{From: source("bomb.yaml", bomb())}, "values"},
		"no reward in trl": {Request{From: source("t.yaml", file)}, "names no reward function"},
		"episodes": {Request{From: source("e.py", call[:len(call)-1]+", environment_factory=x)")},
			"plays the episodes"},
		"unread rewards": {Request{From: source("u.py", call)}, "no reward_funcs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.request.Name == "" {
				c.request.Name = "x"
			}
			d, err := c.request.Make()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q; made %v", err, c.want, d.Files)
			}
		})
	}
}

// A name that a file does not define is refused with those that it does, without names inside of functions.
func TestNamesOfAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "near.py")
	const text = "import re\nif re:\n    limit = 1\ndef right(completions):\n    lift = 1\nclass Judge: pass\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Request{Name: "x", From: file + ":rigth", Data: "org/rows"}.Make()
	var e *sdk.Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	if want := "it defines Judge, limit, re, right; did you mean right?"; e.Remedy != want {
		t.Errorf("%q, want %q", e.Remedy, want)
	}
}

// bomb is a small file of settings whose aliases stand for very many values.
func bomb() string {
	text := "actor: {x: 1}\na0: &a0 [1, 1, 1, 1, 1, 1, 1, 1]\n"
	for i := 1; i < 12; i++ {
		text += fmt.Sprintf("a%d: &a%[1]d [%s]\n", i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 8))
	}
	return text
}

// A name of a setting with a line break adds no line to the recipe.
func TestNamesOfSettingsStayInComments(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x.yaml")
	text := "actor_rollout_ref: {model: {path: x}}\ndata: {train_files: y, \"a\\nvariable \\\"b\\\" {}\": 1}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := Request{Name: "x", From: file}.Make()
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Left) != 1 || strings.Contains(d.Files[0].Text, "\nvariable \"b\"") {
		t.Errorf("left %v in\n%s", d.Left, d.Files[0].Text)
	}
}

// A setting that comes twice is in the recipe once, with its last value; a weight stays with its function where another
// reward is left out; of several files, what is left out is listed.
func TestNothingIsMistakenOrLost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want, not, left string }{
		"twice.sh": {text: "verl.trainer.main_ppo data.train_files=x data.max_response_length=7 data.max_response_length=9",
			want: "max_tokens = 9", not: "max_tokens = 7"},
		"weights.yaml": {text: "model_name_or_path: x\ndataset_name: y\nreward_funcs: [a/model, m.f]\n" +
			"reward_weights: [3, 5]\n",
			want: "weight   = 5", not: "weight   = 3", left: "reward_funcs"},
		"files.sh": {text: "verl.trainer.main_ppo data.train_files=[x,y]", want: `dataset    = "x"`, left: "data.train_files"},
		"sglang.sh": {text: "verl.trainer.main_ppo data.train_files=x actor_rollout_ref.rollout.name=sglang " +
			"actor_rollout_ref.rollout.enforce_eager=true", not: "\n  enforce_eager",
			left: "actor_rollout_ref.rollout.enforce_eager"},
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := Request{Name: "x", From: file, Machine: "gpus"}.Make()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text := d.Files[0].Text
		if !strings.Contains(text, c.want) || c.not != "" && strings.Contains(text, c.not) {
			t.Errorf("%s: want %q, not %q, in\n%s", name, c.want, c.not, text)
		}
		if c.left != "" && !slices.ContainsFunc(d.Left, func(l Left) bool { return l.Setting == c.left }) {
			t.Errorf("%s: left is %v, want %s", name, d.Left, c.left)
		}
	}
}

// Every setting that trainer "trl" refuses is listed or moved, and every other one is in config.
func TestAllSettingsOfTRL(t *testing.T) {
	t.Parallel()
	table := trl.Managed()
	var settings []setting
	add := func(name string) {
		settings = append(settings, setting{Name: name, Value: json.RawMessage("1")})
	}
	for name := range table.Managed {
		add(name)
	}
	for name := range table.Known {
		if !strings.Contains(name, ".") {
			add(name)
		}
	}
	p := &parts{}
	p.trlSettings(settings)
	for _, name := range p.config.names {
		if why := table.Managed[name]; why != "" {
			t.Errorf("config has %s, which trainer \"trl\" refuses: %s", name, why)
		}
	}
	for name := range table.Known {
		moved := map[string]bool{"gradient_accumulation_steps": true, "max_completion_length": true}
		if _, has := p.config.values[name]; !has && !strings.Contains(name, ".") && !moved[name] {
			t.Errorf("config lacks %s", name)
		}
	}
}

// Every setting that trainer "verl" refuses is listed or moved.
func TestAllSettingsOfVerl(t *testing.T) {
	t.Parallel()
	for name, why := range verl.Instead() {
		p := &parts{}
		s := setting{Name: name, Value: json.RawMessage("1")}
		if !p.verlBlock(s) && instead(verl.Instead(), name) == "" {
			t.Errorf("%s is neither listed nor moved: %s", name, why)
		}
	}
	if why := instead(verl.Instead(), "actor_rollout_ref.actor.optim.lr"); why != "" {
		t.Errorf("the learning rate is not carried over: %s", why)
	}
}

// No file is overwritten, and where one exists none is written.
func TestNothingIsOverwritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kept := filepath.Join(dir, "sums_train.jsonl")
	if err := os.WriteFile(kept, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Request{Name: "sums", Dir: dir}.Write()
	if err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("error %v", err)
	}
	text, err := os.ReadFile(kept)
	if err != nil || string(text) != "mine" {
		t.Errorf("the file is %q, %v", text, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

// Values that name others, again and again, take neither much memory nor the disk.
func TestBombsOfASourceAreRefused(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	doubled, eightfold := "a0="+long[:1000]+"\n", "v0 = ["+strings.Repeat("1, ", 8)+"]\n"
	for i := range 39 {
		doubled += fmt.Sprintf("a%d=$a%d$a%[2]d\n", i+1, i)
		eightfold += fmt.Sprintf("v%d = [%s]\n", i+1, strings.Repeat(fmt.Sprintf("v%d, ", i), 8))
	}
	const trainer = "def r(completions): pass\nGRPOTrainer('m', [r], GRPOConfig(seed=%s), load_dataset('x'))\n"
	for name, c := range map[string]struct{ file, text, want string }{
		"shell": {"a.sh", doubled + "python3 -m verl.trainer.main_ppo data.train_files=$a39\n",
			"is known only when the script runs"},
		"words of a shell": {"a.sh", "a=" + long[:60_000] + "\npython3 -m verl.trainer.main_ppo data.train_files=" +
			strings.Repeat("$a", 4000) + "\n", "is known only when the script runs"},
		"lists": {"a.py", eightfold + fmt.Sprintf(trainer, "v39"), "seed = v39"},
		"texts": {"a.py", "a = '" + long[:100_000] + "'\n" + fmt.Sprintf(trainer, "["+strings.Repeat("a,", 2000)+"]"),
			"names no dataset"},
		"aliases": {"a.yaml", "dataset_name: &a " + long + "\nb: [" + strings.Repeat("*a, ", 9000) + "]\n",
			"more than 10000"},
		"aliases of a flag": {"a.sh", "trl grpo --dataset_name d --reward_funcs accuracy_reward --b '[&a " + long[:50_000] +
			", " + strings.Repeat("*a, ", 2000) + "]'\n", "more than 10000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			d, err := Request{Name: "a", From: filepath.Join(dir, c.file), Dir: dir}.Make()
			if text := fmt.Sprint(err, d.Left); !strings.Contains(text, c.want) {
				t.Errorf("want %q: %.300s", c.want, text)
			}
		})
	}
}

// TestSourcesOutsideOfTheFolder: a recipe in another folder names its code by a path that validate takes.
func TestSourcesOutsideOfTheFolder(t *testing.T) {
	t.Parallel()
	d, err := Request{Name: "a", From: "testdata/rewards.py:exact", Data: "testdata/questions.jsonl", Machine: "cpu",
		Dir: t.TempDir()}.Make()
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"` + here + `/rewards.py:exact"`, `"` + here + `/questions.jsonl"`} {
		if !strings.Contains(d.Files[0].Text, want) {
			t.Errorf("the recipe does not name %s:\n%s", want, d.Files[0].Text)
		}
	}
}
