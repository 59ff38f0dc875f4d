package worker_test

import (
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/recipe-rl/recipe/sdk/kit/worker"
	"github.com/recipe-rl/recipe/sdk/spec"
)

func TestAProgramIsAskedAboutItsSettings(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 in PATH")
	}
	source := fstest.MapFS{"strict.py": {Mode: 0o600, Data: []byte(`import json, sys
given = json.load(open(sys.argv[2]))
if given.get("crash"): raise SystemExit("out of cheese")
if given.get("import"): import no_such_package
json.dump([{"path": ["config", name], "summary": name + " is unknown"} for name in given["config"]], sys.stdout)
`)}}
	problems, err := worker.Check(t.Context(), python, "strict", source, map[string]any{
		"config": map[string]any{"lr": 1}})
	if err != nil || len(problems) != 1 || spec.PathString(problems[0].Path) != "config.lr" ||
		problems[0].Summary != "lr is unknown" {
		t.Errorf("%+v, %v; want one problem of config.lr", problems, err)
	}
	_, err = worker.Check(t.Context(), python, "strict", source, map[string]any{"crash": true})
	if err == nil || !strings.Contains(err.Error(), "out of cheese") {
		t.Errorf("%v; want the program's last line", err)
	}
	_, err = worker.Check(t.Context(), python, "strict", source, map[string]any{"import": true})
	if err == nil || !strings.HasSuffix(err.Error(), "has no package no_such_package") {
		t.Errorf("%v; want the package that is missing", err)
	}
	if _, err = worker.Check(t.Context(), "", "strict", source, nil); err == nil {
		t.Error("without an interpreter nothing can be asked")
	}
}
