package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const secretAnswers = `
variable "token" {
  type      = string
  sensitive = true
}
variable "pin" {
  type      = number
  sensitive = true
  default   = 1
}
inference "tiny" "policy" { environment_variables = { A = var.token } }
environment "arithmetic" "sums" {
  inference             = inference.tiny.policy
  environment_variables = { B = "x-${var.token}", C = env("CANARY") }
}
trainer "tiny" "policy" {
  environments = [environment.arithmetic.sums]
  steps        = 1
}
sync "weights" "policy" {
  trainer   = trainer.tiny.policy
  inference = [inference.tiny.policy]
}
`

// An agent gets what a person would read, and has the same secrets kept from it, also where it gives them itself.
func TestAnAgentIsToldNoSecret(t *testing.T) {
	t.Parallel()
	v := newVault(t, secretAnswers)
	cmd := exec.Command("recipe", "mcp", "--allow", "apply,evaluate,checkpoint,pause,resume,stop", "-y")
	cmd.Dir, cmd.Env = v.dir, append(os.Environ(), "CANARY="+canaryEnv, "RECIPE_VAR_token="+canaryVar)
	g := agentOf(t, cmd, nil)
	call := func(name string, args map[string]any) string {
		t.Helper()
		text, _ := g.call(name, args)
		if text == "" {
			t.Errorf("%s of %v says nothing", name, args)
		}
		v.clean(fmt.Sprintf("what the tool %s says of %v", name, args), []byte(text))
		return text
	}
	file := map[string]any{"recipe": "secret.hcl"}
	with := func(more map[string]any) map[string]any {
		more["recipe"] = "secret.hcl"
		return more
	}
	for _, wrong := range []map[string]any{
		{"vars": map[string]any{"token": canaryFlag}},
		{"vars": map[string]any{"pin": canaryFlag}},
		{"vars": map[string]any{"token": "{" + canaryFlag}},
		{"vars": map[string]any{"pin": "1"}, "set": map[string]any{"trainer.tiny.policy.steps": `env("CANARY")`}},
		{"set": map[string]any{"trainer.tiny.policy.environment_variables.D": `env("CANARY")`}},
		{"set": map[string]any{"inference.tiny.policy.model": `env("CANARY")`}},
	} {
		call("plan", with(wrong))
	}
	planned := call("plan", file)
	id, _, _ := strings.Cut(strings.TrimPrefix(planned, "plan_id: "), "\n")
	call("apply", map[string]any{"plan_id": id})
	for end := time.Now().Add(2 * time.Minute); !strings.Contains(call("status", file), `"completed"`); {
		if time.Now().After(end) {
			t.Fatalf("the run has not ended:\n%s", call("status", file))
		}
		time.Sleep(200 * time.Millisecond)
	}
	for _, tool := range []string{"why", "logs", "metrics", "samples", "runs", "pause", "resume", "stop"} {
		call(tool, with(map[string]any{}))
	}
	call("logs", with(map[string]any{"level": "debug", "tail": 10000}))
	call("metrics", with(map[string]any{"names": []string{"trainer.tiny.policy loss"}}))
	call("evaluate", with(map[string]any{"environment": "environment.arithmetic.sums"}))
	call("checkpoint", with(map[string]any{"trainer": "trainer.tiny.policy"}))
	v.search()
}

// A policy has the environment of who plans, and may say what it reads there.
func TestAPolicysAnswerHoldsNoSecret(t *testing.T) {
	t.Parallel()
	v := newVault(t, secretAnswers)
	for name, script := range map[string]string{
		"denies": `echo "{\"deny\": [\"$RECIPE_VAR_token is denied\",
			{\"msg\": \"$CANARY\", \"address\": \"trainer.tiny.policy\"}]}"`,
		"warns":   `echo "{\"warn\": [\"$RECIPE_VAR_token of x\"]}"`,
		"notes":   `echo "using $CANARY"`,
		"lines":   `echo "no: $RECIPE_VAR_token"; exit 1`,
		"fails":   `echo "cannot log in with $CANARY" >&2; exit 3`,
		"unclear": `echo "{\"deny\": \"$RECIPE_VAR_token\""`,
		"says":    `cat >/dev/null; echo "{\"deny\": [{\"reason\": \"$RECIPE_VAR_token\"}]}"`,
	} {
		path := filepath.Join(v.dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"plan"}, {"plan", "--json"}, {"plan", "--out", "saved.json"}, {"apply", "-y"}} {
			if args[0] == "apply" && (name == "warns" || name == "notes") {
				continue
			}
			v.recipe(name == "warns" || name == "notes", append(args, "--policy", "./"+name, "secret.hcl")...)
		}
	}
	v.recipe(true, "apply", "-y", "--policy", "./warns", "--policy", "./notes", "secret.hcl")
	v.search()
}
