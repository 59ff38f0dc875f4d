package worker

import (
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// trained is the configuration of a trainer that has settings of its own, in a block and in another project's names.
type trained struct {
	Common

	Lora *struct {
		Targets []string `recipe:"target_modules" worker:"lora.target_modules"`
	} `recipe:"lora,block"`
	Config map[string]any `recipe:"config"`
}

func TestASettingIsFoundInTheBlock(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"model.path": "model", "data.timeout": "data.timeout", "lora.target_modules": "lora.target_modules",
		"config.fsdp_config.version": "config.fsdp_config.version", "config": "", "lora": "", "nothing": "", "": "",
	} {
		if got := spec.PathString(pathOf(reflect.TypeFor[trained](), name)); got != want {
			t.Errorf("%q is at %q, want %q", name, got, want)
		}
	}
}

// A failure points to the setting that it is about, and to none where several can be meant.
func TestWhatAFailureIsAbout(t *testing.T) {
	t.Parallel()
	missing := []Symptom{{Settings: []string{Interpreter}, Summary: "no package",
		Pattern: regexp.MustCompile("No module named 'trl'")}, {Settings: []string{"config.lora_target_modules",
		"config.peft_config.target_modules"}, Summary: "no layer", Remedy: "correct them",
		Pattern: regexp.MustCompile(TargetModules)}}
	trainer := Trainer[trained]{req: sdk.Request[trained]{Block: sdk.Block{Runtime: sdk.Runtime{Python: "/opt/python"}}},
		program: Program{Symptoms: missing, Settings: map[string]any{
			"model": map[string]any{"path": "/models/a"}, "reference": map[string]any{"path": "/models/b"},
			"config": map[string]any{"peft_config": map[string]any{"target_modules": []any{"q", "nope_proj"}}, "optim": "x"},
		}}}
	for name, c := range map[string]struct {
		problem      problem
		log          string // of a program that reported nothing
		path, detail string
		places       string // of several mistakes
	}{
		"a setting that the program names": {problem: problem{Code: "model", Setting: "lora.target_modules"},
			path: "lora.target_modules", detail: "code model"},
		"an older program": {problem: problem{Code: "model", Message: "no such layer"}, detail: "code model"},
		"a name that the block does not have": {problem: problem{Code: "model", Setting: "reference.path"},
			detail: "code model"},
		"one that the recipe gives, of two": {problem: problem{Code: "internal",
			Message: "Target modules {'nope_proj'} not found in the base model", Checks: []string{"There is q."}},
			path:   "config.peft_config.target_modules",
			detail: "Target modules {'nope_proj'} not found in the base model"},
		"one that the recipe gives, of two, and is not quoted": {problem: problem{Code: "internal",
			Message: "Target modules {'o'} not found in the base model"},
			path: "config.peft_config.target_modules", detail: "Target modules {'o'} not found in the base model"},
		"one that is quoted, of two": {problem: problem{Code: "internal",
			Message: "/models/a does not appear to have a file named config.json"}, path: "model",
			detail: "/models/a does not appear to have a file named config.json"},
		"none that is quoted, of two": {problem: problem{Code: "internal",
			Message: "couldn't connect to 'https://hub' to load the files"},
			detail: "couldn't connect to 'https://hub' to load the files"},
		"a package": {log: "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n" +
			"    import trl\nModuleNotFoundError: No module named 'trl'\n", path: "runtime.python",
			detail: "ModuleNotFoundError: No module named 'trl'"},
		"mistakes that a program lists": {log: "a warning\nthe configuration is wrong:\n  data.timeout: expected a number\n" +
			"  config.optim: expected another\ngoodbye\n", path: "data.timeout", detail: "the configuration is wrong:\n  " +
			"data.timeout: expected a number\n  config.optim: expected another",
			places: "config.optim at config.optim, data.timeout at data.timeout"},
		"mistakes that it reports": {problem: problem{Code: "config", Message: "the configuration is wrong:\n" +
			"  model.path: required\n  nothing: unknown setting\n  lora.target_modules: expected a list"}, path: "model",
			detail: "code config", places: "lora.target_modules at lora.target_modules, model.path at model"},
		"a package that it reports": {problem: problem{Code: "missing_package", Message: "ImportError: x"},
			path: "runtime.python", detail: "code missing_package"},
		"what nobody knows": {problem: problem{Code: "internal", Message: "KeyError: 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, settings := explain(c.problem, missing)
			said := c.problem.Message
			if c.log != "" {
				e, settings = diagnose(errors.New("exit status 1"), c.log, missing)
				said = e.Detail
			}
			trainer.locate(e, settings, said)
			if got := spec.PathString(e.Path); got != c.path {
				t.Errorf("points to %q, want %q", got, c.path)
			}
			var places []string
			for name, path := range e.Places {
				places = append(places, name+" at "+spec.PathString(path))
			}
			slices.Sort(places)
			if got := strings.Join(places, ", "); got != c.places {
				t.Errorf("its lines point to %q, want %q", got, c.places)
			}
			if e.Detail != c.detail {
				t.Errorf("says %q, want %q", e.Detail, c.detail)
			}
			if len(c.problem.Checks) > 0 && e.Remedy != "correct them\nThere is q." {
				t.Errorf("remedy %q", e.Remedy)
			}
			if strings.Contains(e.Error(), "exit status") {
				t.Errorf("%v: the exit status explains nothing", e)
			}
		})
	}
}
