package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/kind"
)

// placedTexts are texts that every block can have: where it runs, with what, and when it ends.
var placedTexts = []string{
	`placement {
    host     = var.token
    executor = EXECUTOR
  }`,
	`placement {
    gang        = var.token
    executor    = EXECUTOR
    constraints = ["a", var.token]
  }`,
	`placement {
    memory   = var.token
    executor = EXECUTOR
  }`,
	`placement {
    devices  = [var.token]
    executor = EXECUTOR
  }`,
	`environment_variables = { SECRET = var.token, (var.token) = "x" }
  placement {
    executor = EXECUTOR
    gpus     = 1
  }`,
	"runtime { python = var.token }\n  placement { executor = EXECUTOR }",
	"runtime { requirements = [\"x==1\", var.token] }\n  placement { executor = EXECUTOR }",
	"runtime { venv = var.token }\n  placement { executor = EXECUTOR }",
	"stop_when { \n  metric = var.token \n  above = 1\n  }\n  placement { executor = EXECUTOR }",
}

// Every executor in the binary, and this machine, is asked for a job whose description has a secret, and is itself
// described by one, as a plan shows what each job would be.
func TestNoExecutorSaysASecretInAPlan(t *testing.T) {
	t.Parallel()
	bodies := map[string][]string{"null": {""}}
	for _, def := range builtins() {
		if def.Kind != kind.Executor {
			continue
		}
		block := func(secret map[string]string) string {
			var b strings.Builder
			fmt.Fprintf(&b, "executor %q \"it\" {\n", def.Name)
			writeTexts(&b, def.Schema, "", secret)
			return b.String() + "}\n"
		}
		name := "executor." + def.Name + ".it"
		bodies[name] = []string{block(nil)}
		all, _ := textsOf(def.Schema, "")
		for place, values := range all {
			for _, value := range values {
				bodies[name] = append(bodies[name], block(map[string]string{place: value}))
			}
		}
	}
	for name, executors := range bodies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVault(t, "")
			ask := func(executor, placed string) {
				recipe := `variable "token" {
  type      = string
  sensitive = true
}
` + executor + `inference "tiny" "policy" {}
environment "arithmetic" "sums" { inference = inference.tiny.policy }
trainer "tiny" "policy" {
  environments = [environment.arithmetic.sums]
  ` + strings.ReplaceAll(placed, "EXECUTOR", name) + "\n}\n"
				v.write("secret.hcl", recipe)
				for _, command := range [][]string{{"plan"}, {"plan", "--json"}, {"doctor"}} {
					var said bytes.Buffer
					a := newApp(strings.NewReader(""), &said, &said, append(os.Environ(), "RECIPE_VAR_token="+canaryVar))
					_ = execute(t.Context(), a, append(command, filepath.Join(v.dir, "secret.hcl")))
					for _, unfit := range []string{"Unknown attribute", "Unknown block", "Invalid expression"} {
						if strings.Contains(said.String(), unfit) || said.Len() == 0 {
							t.Fatalf("recipe %s: %s of\n%s", command, &said, recipe)
						}
					}
					v.clean(fmt.Sprintf("what recipe %s says of %s", command, recipe), said.Bytes())
				}
			}
			for _, placed := range placedTexts {
				ask(executors[0], placed)
			}
			for _, executor := range executors[1:] {
				ask(executor, "placement { executor = EXECUTOR }")
			}
		})
	}
}
