package schema_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// readers is one environment plugin whose attributes name files.
type readers struct{ config *spec.Schema }

func (r readers) Lookup(k kind.Kind, name string) (*schema.PluginSchema, error) {
	if k != kind.Environment {
		return nil, nil //nolint:nilnil // as the interface requires
	}
	return &schema.PluginSchema{Kind: k, Name: name, Config: r.config, Outputs: &spec.Schema{}}, nil
}

func (r readers) Names(kind.Kind) []string { return []string{"mine"} }

func contentRecipe(t *testing.T, dir, body string) (*schema.Recipe, string) {
	t.Helper()
	config, err := spec.Of(struct {
		Data   string `recipe:"data" file:"content"`
		Script string `recipe:"script" file:"content" within:"path"`
		Path   string `recipe:"path"`
		Code   string `recipe:"code" code:"python"`
		Call   string `recipe:"call" code:"callable"`

		Command []string `recipe:"command" per:"task" columns:"data"`
		Asked   string   `recipe:"asked" per:"task" columns:"data"`
	}{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "r.hcl")
	if err := os.WriteFile(file, []byte("environment \"mine\" \"e\" {\n"+body+"\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, diags := schema.Load(file, schema.Options{Plugins: readers{config}})
	var text []string
	for _, d := range diags {
		if d.Severity != hcl.DiagError {
			continue
		}
		text = append(text, d.Summary+": "+d.Detail)
	}
	return r, strings.Join(text, "\n")
}

// write makes files below a folder.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestContentsOfABlock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body    string
		change  map[string]string
		changed string // the file whose digest is another; "": none
	}{
		"a file":              {body: `data = "rows.jsonl"`, change: map[string]string{"rows.jsonl": "{}"}, changed: "rows.jsonl"},
		"a folder":            {body: `data = "rows"`, change: map[string]string{"rows/a.json": "1"}, changed: "rows"},
		"a cache in a folder": {body: `data = "rows"`, change: map[string]string{"rows/__pycache__/a.pyc": "1"}},
		"another file":        {body: `data = "rows.jsonl"`, change: map[string]string{"other.jsonl": "{}"}},
		"within a folder": {body: "path = \"sub\"\n script = \"run.py\"",
			change: map[string]string{"sub/run.py": "2"}, changed: "sub/run.py"},
		"an imported module":      {body: `code = "mine.py:f"`, change: map[string]string{"helper.py": "x = 2"}, changed: "helper.py"},
		"imported by a module":    {body: `code = "mine.py:f"`, change: map[string]string{"inner.py": "x = 2"}, changed: "inner.py"},
		"an imported package":     {body: `code = "mine.py:f"`, change: map[string]string{"pack/of.py": "x = 2"}, changed: "pack"},
		"a function in a package": {body: `call = "pack.of:f"`, change: map[string]string{"pack/of.py": "x = 2"}, changed: "pack"},
		"a function in a module":  {body: `call = "helper:f"`, change: map[string]string{"inner.py": "x = 2"}, changed: "inner.py"},
		"an installed module":     {body: `call = "mylib.of:f"`, change: map[string]string{"pack/of.py": "x = 2"}},
		"a module beside it":      {body: `code = "mine.py:f"`, change: map[string]string{"beside.py": "x = 2"}},
		"a program": {body: `command = ["python", "mine.py", task.a]`, change: map[string]string{"mine.py": "f()"},
			changed: "mine.py"},
		"what a program imports": {body: `command = ["python", "mine.py"]`, change: map[string]string{"inner.py": "x = 2"},
			changed: "inner.py"},
		"no program": {body: `command = ["python", "mine", "../mine.py", "mine.py ${task.a}"]`,
			change: map[string]string{"mine.py": "f()"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, map[string]string{"rows.jsonl": "{\"a\": 1}", "rows/a.json": "[]", "sub/run.py": "1",
				"mine.py":   "import os, helper as h\ndef f():\n    from pack.of import x\n",
				"helper.py": "from inner import x\n", "inner.py": "x = 1", "pack/__init__.py": "", "pack/of.py": "x = 1"})
			before, problems := contentRecipe(t, dir, c.body)
			if problems != "" {
				t.Fatal(problems)
			}
			write(t, dir, c.change)
			after, _ := contentRecipe(t, dir, c.body)
			was := map[string]string{}
			for _, one := range before.Blocks[0].Contents {
				was[one.File] = one.Digest
			}
			changed := ""
			for _, one := range after.Blocks[0].Contents {
				if was[one.File] != one.Digest {
					changed += one.File
				}
			}
			if changed != c.changed || (changed == "") != (before.Digest == after.Digest) {
				t.Errorf("changed: %q, want %q; digests of the recipe %s, %s", changed, c.changed, before.Digest, after.Digest)
			}
		})
	}
}

func TestAFileThatIsNotThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, map[string]string{"train.jsonl": "{}"})
	for body, want := range map[string]string{
		`data = "trian.jsonl"`:                             `there is no file trian.jsonl`,
		`data = "train.jsonk"`:                             "",
		`data = "/not-on-this-machine/train.jsonl"`:        "",
		`data = "./train"`:                                 "there is no file ./train",
		`data = ""`:                                        "",
		`data = "openai/gsm8k"`:                            "",
		`data = "{% for m in messages %}{{ m }}.jinja"`:    "",
		"data = \"trian.jsonl\"\nplacement {\ncpus = 1\n}": "",
	} {
		if _, problems := contentRecipe(t, dir, body); (want == "") != (problems == "") || !strings.Contains(problems, want) {
			t.Errorf("%s: %q, want %q", body, problems, want)
		}
	}
	if _, problems := contentRecipe(t, dir, `data = "trian.jsonl"`); !strings.Contains(problems, `Did you mean "train.jsonl"?`) {
		t.Errorf("%q names no file that exists", problems)
	}
}

func TestFunctionsOfModules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, map[string]string{"mine.py": "from lib import right, wrong as left\nscore = right\n"})
	for body, want := range map[string]string{
		`call = "mine.py:left"`:  "",
		`call = "mine.py:score"`: "",
		`call = "mylib.r:score"`: "",
		`call = "mine.py:wrong"`: "mine.py defines no wrong at its top level. It has left, right, score.",
		`call = "mylib/r:score"`: `or in a module like "mylib.rewards:accuracy"`,
		`code = "mylib.r:score"`: `expects a function in a Python file like "my_loss.py:my_loss"; got "mylib.r:score"`,
	} {
		if _, problems := contentRecipe(t, dir, body); (want == "") != (problems == "") || !strings.Contains(problems, want) {
			t.Errorf("%s: %q, want %q", body, problems, want)
		}
	}
}

func TestMembersThatATaskLacks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, map[string]string{"tasks.jsonl": "{\"text\": \"1\", \"n\": 2}\n{\"text\": \"2\", \"n\": null}\n",
		"few.jsonl": "{\"text\": \"1\", \"n\": 2}\n\n{\"n\": 3}\n"})
	for body, want := range map[string]string{
		"command = [task.text, \"${task.n}\"]\ndata = \"tasks.jsonl\"": "",
		"command = [\"a\", \"--x=${task.txt}\"]\ndata = \"tasks.jsonl\"": "Member not found: \"command\" in " +
			"environment.mine.e: the first task of tasks.jsonl has no member \"txt\". It has text, n. Did you mean \"text\"?",
		"asked = task.text\ndata = \"tasks.jsonl\"":          "",
		"asked = \"Add ${task.n}.\"\ndata = \"tasks.jsonl\"": "",
		"asked = \"Go.\"\ndata = \"tasks.jsonl\"":            "",
		"asked = task.txt\ndata = \"tasks.jsonl\"": "Member not found: \"asked\" in environment.mine.e: the first task of " +
			"tasks.jsonl has no member \"txt\". It has text, n. Did you mean \"text\"?",
		"command = [task.text]\ndata = \"few.jsonl\"": "Member not found: \"command\" in environment.mine.e: the task at " +
			"few.jsonl:3 has no member \"text\". Add it, or remove the task.",
		"command = [task.txt]":                       "",
		"command = [task.txt]\ndata = \"other/hub\"": "",
	} {
		if _, problems := contentRecipe(t, dir, body); problems != want {
			t.Errorf("%s: %q, want %q", body, problems, want)
		}
	}
}

func TestDataThatAVariableNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, map[string]string{"rows.jsonl": "{}\n", "sub/inner.csv": "a\n"})
	for variables, want := range map[string]string{
		`{ DATASET_PATH = "cases.jsonl" }`: `"environment_variables.DATASET_PATH" in environment.mine.e: there is no file ` +
			`cases.jsonl`,
		`{ DATASET_PATH = "rows.jsonl", OTHER = "s3://b/a.jsonl", NAME = "org/data", LIST = "*.csv" }`: "",
		`{ A = "sub/inner.csv", B = "sub/outer.csv" }`:                                                 "there is no file sub/outer.csv",
	} {
		source := "environment \"mine\" \"e\" {\n environment_variables = " + variables + "\n}\n"
		config, err := spec.Of(struct {
			Data string `recipe:"data" file:"content"`
		}{})
		if err != nil {
			t.Fatal(err)
		}
		_, diags := schema.LoadSource(filepath.Join(dir, "r.hcl"), []byte(source), schema.Options{Plugins: readers{config}})
		got := ""
		for _, d := range diags {
			switch {
			case d.Severity != hcl.DiagWarning:
				t.Errorf("an error: %s", d.Detail)
			case d.Summary == "File not found":
				got += d.Detail
			}
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", variables, got, want)
		}
	}
}
