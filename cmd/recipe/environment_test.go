package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// Two servers with a secret each, and blocks without one. The server's program is a script that only sleeps.
const environmentRecipe = `
variable "token" {
  type      = string
  sensitive = true
}
inference "vllm" "a" {
  model                 = "org/model"
  environment_variables = { A_SECRET = env("A_SECRET"), TOKEN = var.token }
  runtime { python = "./python" }
}
inference "vllm" "b" {
  model                 = "org/model"
  environment_variables = { B_SECRET = env("B_SECRET") }
  runtime { python = "./python" }
}
inference "tiny" "policy" {}
environment "arithmetic" "sums" { inference = inference.tiny.policy }
trainer "tiny" "policy" {
  environments = [environment.arithmetic.sums]
  steps        = 100000
}
`

// secretsGiven are the variables in the environment of the person who applies.
func secretsGiven() []string {
	var out []string
	for _, name := range []string{"A_SECRET", "B_SECRET", "NOBODYS_SECRET", "HF_TOKEN", "WANDB_API_KEY",
		"AWS_SECRET_ACCESS_KEY", "SLURM_JWT", "RECIPE_VAR_token", "CUDA_MODULE_LOADING", "SITE_MODULES"} {
		out = append(out, name+"=value of "+name)
	}
	return out
}

// pidOf is the process that a reattach.json records; 0: none.
func pidOf(path string) int {
	var record struct {
		Process struct {
			PID int `json:"pid"`
		} `json:"process"`
	}
	text, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(text, &record) != nil {
		return 0
	}
	return record.Process.PID
}

// inSession lists the processes of a session by pid, each with its environment.
func inSession(t *testing.T, leader int) map[int][]string {
	t.Helper()
	out := map[int][]string{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 4 || fields[3] != strconv.Itoa(leader) {
			continue
		}
		environ, err := os.ReadFile(filepath.Join(filepath.Dir(path), "environ"))
		if err != nil || len(environ) == 0 {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		out[pid] = strings.Split(string(environ), "\x00")
	}
	return out
}

// eventually waits for a condition on processes that have just been started.
func eventually(t *testing.T, what string, holds func() bool, more ...*string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			for _, m := range more {
				what += ": " + *m
			}
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// A process gets what every program needs, the variables that its plugin declares, and those of its own block: no
// secret of another block.
//
//docs:survival.md Files of a run
func TestAProcessGetsNoSecretOfAnother(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the environment of another process is read in /proc, which only Linux has")
	}
	dir := t.TempDir()
	for name, file := range map[string]struct {
		text string
		mode os.FileMode
	}{
		"r.hcl":        {environmentRecipe, 0o600},
		"python":       {"#!/bin/sh\nexec sleep 600\n", 0o700},
		"settings.hcl": {`pass_environment = ["SITE_*"]`, 0o600},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(file.text), file.mode); err != nil {
			t.Fatal(err)
		}
	}
	recipe := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "recipe", args...)
		cmd.Dir, cmd.Env = dir, append(append(os.Environ(), secretsGiven()...), "RECIPE_CONFIG="+
			filepath.Join(dir, "settings.hcl"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("recipe %v: %v\n%s", args, err, out)
		}
	}
	run := state.DirOf(dir, "r")
	leader := func(block string) int {
		return pidOf(filepath.Join(string(run), "blocks", block, "reattach.json"))
	}
	check := func(when string) {
		t.Helper()
		for block, want := range map[string]struct {
			everywhere, programs []string
			least                int // processes
		}{
			"inference.vllm.a":             {[]string{"HF_TOKEN"}, []string{"A_SECRET", "TOKEN"}, 2},
			"inference.vllm.b":             {[]string{"HF_TOKEN"}, []string{"B_SECRET"}, 2},
			"inference.tiny.policy":        {nil, nil, 1},
			"environment.arithmetic.sums":  {nil, nil, 1},
			"trainer.tiny.policy":          {nil, nil, 1},
			"trajectories.builtin.default": {nil, nil, 1},
		} {
			var lacking string
			eventually(t, fmt.Sprintf("%s: %s has %d processes", when, block, want.least), func() bool {
				pid := leader(block)
				processes := inSession(t, pid)
				lacking = ""
				for process, environ := range processes {
					allowed := append([]string{"PATH", "CUDA_MODULE_LOADING", "SITE_MODULES"}, want.everywhere...)
					if process != pid {
						allowed = append(allowed, want.programs...)
					}
					for _, given := range append(secretsGiven(), "PATH="+os.Getenv("PATH"),
						"TOKEN=value of RECIPE_VAR_token") {
						name, _, _ := strings.Cut(given, "=")
						switch has := slices.Contains(environ, given); {
						case has && !slices.Contains(allowed, name):
							t.Errorf("%s: process %d of %s (plugin %d) has %s", when, process, block, pid, name)
						case !has && slices.Contains(allowed, name):
							// a process that has not called exec yet has its parent's
							lacking = fmt.Sprintf("%s: process %d of %s (plugin %d) has no %s", when, process, block,
								pid, name)
						}
					}
				}
				return pid > 0 && len(processes) >= want.least && (lacking == "" || t.Failed())
			}, &lacking)
		}
	}
	recipe("apply", "-y", "--detach", "r.hcl")
	t.Cleanup(func() {
		cmd := exec.Command("recipe", "destroy", "-y", "--checkpoints")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("recipe destroy: %v\n%s", err, out)
		}
	})
	check("started")

	// The next engine adopts live processes, and gives a restarted block its variables by the same rule.
	engine := state.Holder(run)
	if engine == nil {
		t.Fatal("no engine is running on the run")
	}
	if p, err := os.FindProcess(engine.PID); err != nil || p.Kill() != nil {
		t.Fatal("the engine cannot be killed")
	}
	eventually(t, "the engine is gone", func() bool { return state.Holder(run) == nil })
	before := leader("inference.vllm.a")
	recipe("apply", "-y", "--detach", "r.hcl")
	check("adopted")
	if leader("inference.vllm.a") != before {
		t.Error("the process was not adopted")
	}
	recipe("restart", "inference.vllm.a")
	eventually(t, "the block is started again", func() bool {
		pid := leader("inference.vllm.a")
		return pid > 0 &&
			pid != before
	})
	check("restarted")
}

// The keys of a store go to the blocks that name one, and to no others.
func TestABlockWithAStoreGetsItsKeys(t *testing.T) {
	t.Parallel()
	a := newApp(nil, io.Discard, io.Discard, []string{"RECIPE_CONFIG=" + filepath.Join("testdata", "settings.hcl")})
	catalog, err := a.catalog()
	if err != nil {
		t.Fatal(err)
	}
	object := func(name string, v cty.Value) cty.Value { return cty.ObjectVal(map[string]cty.Value{name: v}) }
	stored := object("store", cty.StringVal("s3://bucket/runs"))
	for _, c := range []struct {
		plugin string
		body   cty.Value
		want   bool
	}{
		{"tiny", stored, true}, {"tiny", object("save_every", cty.NumberIntVal(1)), false},
		{"grpo", object("checkpoints", stored), true}, {"verl", object("checkpoints", stored), true},
		{"grpo", object("checkpoints", object("every", cty.NumberIntVal(1))), false},
	} {
		environ := catalog.Environment(kind.Trainer, c.plugin, c.body, secretsGiven())
		if got := slices.Contains(environ, "AWS_SECRET_ACCESS_KEY=value of AWS_SECRET_ACCESS_KEY"); got != c.want {
			t.Errorf("trainer %s with %#v: keys of the store: %v, want %v", c.plugin, c.body, got, c.want)
		}
	}
}
