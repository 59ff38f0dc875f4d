package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// secretPlaces has a secret wherever a recipe takes a value: as it is, computed from, as a name, and where a plugin
// repeats it in its outputs.
const secretPlaces = `
variable "token" {
  type      = string
  sensitive = true
}
variable "names" {
  type      = map(string)
  sensitive = true
}
variable "pin" {
  type      = number
  sensitive = true
  default   = 31415926
}
locals {
  model = "./checkpoint-${var.token}"
  loud  = upper("x-${var.token}")
}
inference "tiny" "policy" {
  model                 = local.model
  environment_variables = { (var.token) = "a", B = var.token }
}
environment "arithmetic" "sums" {
  inference             = inference.tiny.policy
  stop                  = [local.loud, "zz"]
  environment_variables = var.names
  lifecycle {
    precondition {
      condition     = var.pin > 0
      error_message = "the token is ${var.token}"
    }
  }
}
module "inner" {
  source    = "./inner"
  inference = inference.tiny.policy
  secret    = var.token
}
trainer "tiny" "policy" {
  environments          = [environment.arithmetic.sums, module.inner.block]
  steps                 = 3
  model                 = local.model
  environment_variables = { CODE = base64encode(var.token), MODEL = inference.tiny.policy.model }
}
sync "weights" "policy" {
  trainer   = trainer.tiny.policy
  inference = [inference.tiny.policy]
}
alert "told" {
  block   = "trainer.tiny.policy"
  metric  = "loss"
  above   = -1000000
  webhook = "http://127.0.0.1:1/${var.token}"
}
alert "run" {
  block   = "trainer.tiny.policy"
  metric  = "loss"
  above   = -1000000
  command = ["false", var.token]
}
tracking "tensorboard" "curves" {
  dir = "curves"
}
output "model" { value = inference.tiny.policy.model }
output "models" { value = { a = [trainer.tiny.policy.model, "x-${inference.tiny.policy.model}"] } }
output "token" {
  value     = { var = var.token, loud = local.loud, pin = var.pin }
  sensitive = true
}
`

const secretModule = `
variable "secret" { type = string }
variable "inference" {}
environment "arithmetic" "inner" {
  inference             = var.inference
  stop                  = [var.secret]
  environment_variables = { INNER = "x${var.secret}" }
}
output "block" { value = environment.arithmetic.inner }
`

func TestSecretsInEveryPlaceAreFoundNowhere(t *testing.T) {
	t.Parallel()
	v := newVault(t, secretPlaces)
	v.write("inner/main.hcl", secretModule)
	v.write("before.hcl", `
inference "tiny" "policy" {}
environment "arithmetic" "sums" { inference = inference.tiny.policy }
trainer "tiny" "policy" {
  environments = [environment.arithmetic.sums]
  steps        = 1
}
sync "weights" "policy" {
  trainer   = trainer.tiny.policy
  inference = [inference.tiny.policy]
}
`)
	v.recipe(true, "apply", "-y", "before.hcl")
	made, err := filepath.Glob(filepath.Join(v.dir, ".recipe/before/checkpoints/trainer.tiny.policy/*.tiny"))
	if err != nil || len(made) == 0 {
		t.Fatalf("no checkpoint was written: %v", err)
	}
	if err := os.Rename(made[0], filepath.Join(v.dir, "checkpoint-"+canaryVar)); err != nil {
		t.Fatal(err)
	}

	given := []string{"--var", fmt.Sprintf(`names={ %q = %q }`, canaryFlag, canaryFlag+"-value"), "secret.hcl"}
	with := func(args ...string) []string { return append(args, given...) }
	for _, args := range [][]string{{"validate"}, {"validate", "--json"}, {"plan"}, {"plan", "--json"},
		{"plan", "--out", "saved.json"}, {"graph", "--format", "json"}, {"doctor"}, {"doctor", "--json"}, {"apply", "-y"},
		{"plan"}, {"env", "try", "secret.hcl", "environment.arithmetic.sums"}} {
		if args[0] == "env" {
			v.recipe(true, append(args, given[:2]...)...)
			continue
		}
		v.recipe(true, with(args...)...)
	}
	v.search()
	for _, args := range [][]string{{"status"}, {"status", "--json"}, {"status", "--why"}, {"show"}, {"show", "--json"},
		{"show", "inference.tiny.policy"}, {"logs"}, {"logs", "--json"}, {"output"}, {"output", "--json"}} {
		v.recipe(true, append(args, "-r", "secret.hcl")...)
	}
	v.recipe(true, "lineage", "--json", "secret.hcl")
	v.recipe(true, "diff", "--json", "secret.hcl", "before.hcl")
	v.recipe(true, "report", "-o", "-", ".recipe/secret")
	v.page()
	v.recipe(true, with("apply", "-y", "--json", "--var", "pin=27182818")...)
	v.search()
}

func (v *vault) write(name, text string) {
	v.t.Helper()
	path := filepath.Join(v.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		v.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		v.t.Fatal(err)
	}
}
