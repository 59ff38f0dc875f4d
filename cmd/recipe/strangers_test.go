package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// strangersFolder is a recipe with all that a folder can bring: each program leaves a file in ran when it runs.
func strangersFolder(t *testing.T) (dir, ran string) {
	t.Helper()
	dir, ran = t.TempDir(), t.TempDir()
	asked := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		_ = os.WriteFile(filepath.Join(ran, "server"), nil, 0o600)
	}))
	t.Cleanup(asked.Close)
	leaves := func(name string) string { return "#!/bin/sh\nenv > " + filepath.Join(ran, name) + "\nexit 1\n" }
	python := "open(" + `"` + filepath.Join(ran, "python") + `"` + `, "w")
from recipe_sdk import Environment, Task
class Words(Environment):
    "Words."
    def next(self): return Task("a")
    def score(self, task, completion): return 0
`
	kubeconfig := `apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "` + asked.URL + `"}}]
users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./login}}}]
`
	for name, text := range map[string]string{
		"program": leaves("program"), "py": leaves("interpreter"), "login": leaves("login"), "cluster": leaves("executor"),
		"venv/bin/python": leaves("venv"), "venv/pyvenv.cfg": "", "words.py": python, "mod/inner.py": python,
		"kc.yaml": kubeconfig, "tokens.yaml": strings.Replace(kubeconfig,
			"exec: {apiVersion: client.authentication.k8s.io/v1, command: ./login}",
			"tokenFile: secret", 1), "secret": "canary", "uv.toml": `index-url = "` + asked.URL + `"`,
		"pkg/pyproject.toml": "[project]\nname = \"pkg\"\nversion = \"1\"\n", "pkg/setup.py": python,
		"sitecustomize.py": python, "recipe_sdk/__init__.py": python,
		"json.py": python, "ast.py": python, "traceback.py": python, "path/json.py": python, "path/sitecustomize.py": python,
		"score.py":   "import absent_module\n\n\ndef score(completions, **kwargs):\n    return [0.0]\n",
		"rows.jsonl": strings.Repeat(`{"prompt": "a", "answer": "b"}`+"\n", 2),
		"scores.hcl": `inference "tiny" "policy" {}
environment "reward" "r" {
  inference = inference.tiny.policy
  dataset   = "rows.jsonl"
  eval_rows = 1
  functions { function = "score.py:score" }
}
environment "reward" "path" {
  inference             = inference.tiny.policy
  dataset               = "rows.jsonl"
  eval_rows             = 1
  environment_variables = { PYTHONPATH = "` + dir + `/path" }
  functions { function = "score.py:score" }
}
`,
		"codex": leaves("agent"), "venv/bin/claude": leaves("agent beside python"),
		"bunfig.toml": `preload = ["./words.py"]`,
		"agents.hcl": `inference "tiny" "policy" {}
environment "agent" "a" {
  inference             = inference.tiny.policy
  agent                 = "codex"
  tasks                 = "rows.jsonl"
  reward                = "score.py:score"
  environment_variables = { PATH = "` + dir + `" }
  sandbox { kind = "none" }
}
environment "agent" "b" {
  inference = inference.tiny.policy
  agent     = "claude-code"
  tasks     = "rows.jsonl"
  reward    = "score.py:score"
  runtime { venv = "./venv" }
  sandbox { kind = "none" }
}
environment "agent" "c" {
  inference = inference.tiny.policy
  agent     = "openai"
  tasks     = "rows.jsonl"
  reward    = "score.py:score"
  runtime { python = "./py" }
  sandbox { kind = "none" }
}
`,
		"mod/main.hcl": "recipe {\n  required_plugins { inner = { source = \"./inner.py\" } }\n}\n",
		"train.hcl": `recipe {
  required_plugins {
    program = { source = "./program" }
    words   = { source = "./words.py" }
    cluster = { source = "./cluster" }
  }
}
module "m" { source = "./mod" }
executor "kubernetes" "gpu" {
  image      = "x"
  kubeconfig = "./kc.yaml"
  files      = "staged"
}
inference "tiny" "policy" {}
environment "program" "p" { inference = inference.tiny.policy }
environment "words" "w" { inference = inference.tiny.policy }
`,
		"known.hcl": `executor "kubernetes" "gpu" {
  image      = "x"
  kubeconfig = "./kc.yaml"
  files      = "staged"
}
executor "kubernetes" "token" {
  image      = "x"
  kubeconfig = "./tokens.yaml"
  files      = "staged"
}
inference "tiny" "policy" { placement { executor = executor.kubernetes.gpu } }
inference "tiny" "other" { placement { executor = executor.kubernetes.token } }
`,
		"python.hcl": `inference "vllm" "served" {
  model = "./model"
  runtime { python = "./py" }
}
trainer "verl" "t" {
  model        = "./model"
  environments = [environment.arithmetic.sums]
  steps        = 1
  runtime { venv = "./venv" }
}
environment "arithmetic" "sums" {
  inference             = inference.vllm.served
  environment_variables = { VIRTUAL_ENV = "venv" }
}
`,
		"packages.hcl": `inference "vllm" "served" {
  model = "./model"
  runtime { requirements = ["./pkg"] }
}
inference "vllm" "edited" {
  model = "./model"
  runtime { requirements = ["-e ./pkg"] }
}
inference "vllm" "made" {
  model = "./model"
  runtime {
    requirements = ["pkg"]
    python       = "./py"
  }
}
`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir, ran
}

// fresh is the environment of a person who has approved nothing and who has a secret.
func fresh(t *testing.T) []string {
	t.Helper()
	home := t.TempDir()
	return append(os.Environ(), "HOME="+home, "XDG_STATE_HOME="+home, "XDG_CACHE_HOME="+home, "RECIPE_TRUST=",
		"CI_TOKEN=canary")
}

// nothingRan checks that no program of the folder has left a file.
func nothingRan(t *testing.T, ran, after string) {
	t.Helper()
	files, err := os.ReadDir(ran)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		t.Errorf("%s: %s of the folder was used", after, f.Name())
		_ = os.Remove(filepath.Join(ran, f.Name()))
	}
}

func TestAStrangersFolderRunsNothing(t *testing.T) {
	t.Parallel()
	dir, ran := strangersFolder(t)
	environ := fresh(t)
	for _, line := range []string{
		"validate train.hcl", "plan train.hcl", "plan --json train.hcl", "graph train.hcl", "console train.hcl",
		"doctor train.hcl", "init train.hcl", "plugin list -r train.hcl", "plugin docs environment words -r train.hcl",
		"plugin schema environment program -r train.hcl", "apply train.hcl", "test -r train.hcl plan.test.hcl",
		"env try train.hcl environment.words.w", "trust digest words.py program", "trust lock -o ../lock.json train.hcl",
		"plan known.hcl", "doctor known.hcl", "doctor --executor kubernetes.gpu known.hcl",
		"doctor --executor kubernetes.token known.hcl", "plan python.hcl", "doctor python.hcl", "init --gpu no packages.hcl",
		"doctor packages.hcl", "plan packages.hcl", "plan scores.hcl", "doctor scores.hcl",
		"plan agents.hcl", "doctor agents.hcl", "env agents",
	} {
		test := "run \"p\" {\n  command = plan\n}\n"
		if err := os.WriteFile(filepath.Join(dir, "plan.test.hcl"), []byte(test), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "recipe", strings.Fields(line)...)
		cmd.Dir, cmd.Env = dir, environ
		out, err := cmd.CombinedOutput()
		nothingRan(t, ran, line)
		if strings.Contains(string(out), "canary") {
			t.Errorf("%s prints a secret:\n%s", line, out)
		}
		if strings.Contains(string(out), "unknown flag") || strings.Contains(string(out), "panic") {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
		if line == "doctor agents.hcl" && strings.Count(string(out), "not trusted") != 3 {
			t.Errorf("%s should ask about the agents of a, b and c:\n%s", line, out)
		}
	}
}

// The tools of an agent that say that they only read run nothing of the folder, also of what the person has approved.
//
//docs:agents.md Agents
func TestToolsThatOnlyReadRunNothing(t *testing.T) {
	t.Parallel()
	dir, ran := strangersFolder(t)
	environ := fresh(t)
	add := exec.CommandContext(t.Context(), "recipe", "trust", "add", "words.py", "program", "kc.yaml")
	add.Dir, add.Env = dir, environ
	if out, err := add.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command("recipe", "mcp", "--allow", strings.Join(writers(), ","))
	cmd.Dir, cmd.Env, cmd.Stderr = dir, environ, os.Stderr
	g := agentOf(t, cmd, nil)
	g.refused("docs", map[string]any{"recipe": "train.hcl", "block": "environment words"}, "not trusted")
	g.refused("docs", map[string]any{"recipe": "train.hcl", "block": "environment program"}, "not trusted")
	_, _ = g.call("docs", map[string]any{"recipe": "train.hcl"})
	g.refused("plan", map[string]any{"recipe": "train.hcl"}, "Not checked: not trusted")
	_, _ = g.call("plan", map[string]any{"recipe": "known.hcl"})
	for _, recipe := range []string{"train.hcl", "known.hcl"} {
		_, _ = g.call("validate", map[string]any{"recipe": recipe})
	}
	nothingRan(t, ran, "the tools docs, plan and validate")

	list, err := g.session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	reading := map[string]bool{"docs": true, "logs": true, "metrics": true, "runs": true, "samples": true, "status": true,
		"why": true, "plan": true, "validate": true}
	// may ask a cluster, or run what the recipe names
	open := map[string]bool{"plan": true, "status": true, "apply": true, "evaluate": true, "stop": true}
	for _, tool := range list.Tools {
		a := tool.Annotations
		if a.ReadOnlyHint != reading[tool.Name] {
			t.Errorf("%s: read-only %v", tool.Name, a.ReadOnlyHint)
		}
		if a.OpenWorldHint == nil || *a.OpenWorldHint != open[tool.Name] {
			t.Errorf("%s: open world %v, want %v", tool.Name, a.OpenWorldHint, open[tool.Name])
		}
		if !reading[tool.Name] && (a.DestructiveHint == nil ||
			*a.DestructiveHint != (tool.Name == "apply" || tool.Name == "stop")) {
			t.Errorf("%s: destructive %v", tool.Name, a.DestructiveHint)
		}
	}
}

// An editor that opens a stranger's folder shows what is not checked.
func TestAnEditorRunsNothingOfAFolder(t *testing.T) {
	dir, ran := strangersFolder(t)
	home := t.TempDir()
	for _, name := range []string{"HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"} {
		t.Setenv(name, home)
	}
	t.Setenv("RECIPE_TRUST", "")
	e := newEditor(t, dir)
	said := strings.Join(e.diagnostics(e.open(filepath.Join(dir, "train.hcl"))), "\n")
	if !strings.Contains(said, "not trusted") {
		t.Errorf("the editor is not told: %s", said)
	}
	nothingRan(t, ran, "opening the folder")
}
