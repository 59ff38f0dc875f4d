package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const chosenRecipe = `
variable "steps" {
  type    = number
  default = 10
}
variable "script" {
  type    = string
  default = "env.py"
}
variable "token" {
  type      = string
  default   = "none"
  sensitive = true
}
inference "tiny" "policy" {}
environment "atropos" "sums" {
  script                = var.script
  inference             = inference.tiny.policy
  environment_variables = { TOKEN = var.token }
}
trainer "tiny" "policy" {
  environments = [environment.atropos.sums]
  steps        = var.steps
  batch_size   = 256
}
sync "weights" "policy" {
  trainer   = trainer.tiny.policy
  inference = [inference.tiny.policy]
}
`

// TestAPersonSeesWhatAnAgentChose: every value, override and file stands in the question.
//
//docs:agents.md Agents
func TestAPersonSeesWhatAnAgentChose(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"r.hcl": chosenRecipe, "env.py": "", "evil.py": "x = 1\n",
		"secrets.txt": "hunter2\n", "notes.hcl.txt": "hunter2\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link.hcl")); err != nil {
		t.Fatal(err)
	}
	asked := ""
	g := newAgent(t, dir, func(question string) string {
		asked = question
		return "decline"
	}, "--allow", "apply")
	for name, c := range map[string]struct {
		plan   map[string]any
		wants  []string
		hidden string
	}{
		"values": {map[string]any{"vars": map[string]any{"steps": "999999", "token": "hunter2"},
			"set": map[string]any{"trainer.tiny.policy.learning_rate": "50"}},
			[]string{"var.steps = 999999 (--var)", "--set trainer.tiny.policy.learning_rate = 50", "var.token = (sensitive)",
				"+ trainer.tiny.policy", "learning_rate = 50", "Plan: "}, "hunter2"},
		"another script": {map[string]any{"vars": map[string]any{"script": "evil.py"}},
			[]string{`var.script = "evil.py"`, "evil.py, named by script of environment.atropos.sums (sha256:"}, ""},
		"a terminal escape": {map[string]any{"vars": map[string]any{"script": "env.py\x1b[2J"}}, []string{"var.script"},
			"\x1b"},
	} {
		c.plan["recipe"] = "r.hcl"
		id, _, _ := strings.Cut(strings.TrimPrefix(g.must("plan", c.plan), "plan_id: "), "\n")
		g.refused("apply", map[string]any{"plan_id": id}, "not approved")
		for _, want := range c.wants {
			if !strings.Contains(asked, want) {
				t.Errorf("%s: %q is not in the question:\n%s", name, want, asked)
			}
		}
		if c.hidden != "" && strings.Contains(asked, c.hidden) {
			t.Errorf("%s: %q is in the question:\n%s", name, c.hidden, asked)
		}
	}
	for _, path := range []string{"/etc/passwd", "../r.hcl", "secrets.txt", "notes.hcl.txt", "link.hcl", "nowhere.hcl"} {
		for _, tool := range []string{"plan", "docs"} {
			text, failed := g.call(tool, map[string]any{"recipe": path})
			if !failed || !strings.Contains(text, "name a recipe, *.hcl") || strings.Contains(text, "hunter2") ||
				strings.Contains(text, "root:") {
				t.Errorf("%s of %s: %s", tool, path, text)
			}
		}
	}
	g.refused("plan", map[string]any{"recipe": "r.hcl", "set": map[string]any{
		"environment.atropos.sums.script": `file("secrets.txt")`,
		"trainer.tiny.policy.steps":       `length(file("secrets.txt"))`}},
		"the tool plan takes values only")
	for _, tool := range []string{"status", "logs", "why", "metrics", "samples"} {
		if text, failed := g.call(tool, map[string]any{"recipe": "/etc/passwd"}); !failed || strings.Contains(text, "root:") {
			t.Errorf("%s of /etc/passwd: %s", tool, text)
		}
	}
}

// The answer of a person counts for the files that the question showed: an agent, or what it has read, may write others
// while the person reads.
func TestAnAnswerCountsForWhatWasShown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Error(err)
		}
	}
	write("r.hcl", chosenRecipe)
	t.Cleanup(func() { // of a plan that was applied
		cmd := exec.Command("recipe", "stop", "--kill")
		cmd.Dir = dir
		_ = cmd.Run()
	})
	write("env.py", "import beside\n")
	var change func()
	g := newAgent(t, dir, func(string) string {
		change()
		return "accept"
	}, "--allow", "apply")
	for name, c := range map[string]func(){
		"the script":      func() { write("env.py", "import beside, os\n") },
		"what it imports": func() { write("beside.py", "import os\n") },
	} {
		write("env.py", "import beside\n")
		write("beside.py", "")
		change = c
		id, _, _ := strings.Cut(strings.TrimPrefix(g.must("plan", map[string]any{"recipe": "r.hcl"}), "plan_id: "), "\n")
		text, failed := g.call("apply", map[string]any{"plan_id": id})
		if !failed || !strings.Contains(text, "has changed since the question") {
			t.Errorf("%s: %s", name, text)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, ".recipe")); !os.IsNotExist(err) {
		t.Errorf("a run directory: %v", err)
	}
}
