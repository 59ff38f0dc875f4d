package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
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

// Every plugin in the binary is given a secret for each of its texts, one after another, as its estimates and notes
// name what they are about.
func TestNoPluginSaysASecretInAPlan(t *testing.T) {
	t.Parallel()
	for _, def := range builtins() {
		t.Run(string(def.Kind)+"."+def.Name, func(t *testing.T) {
			t.Parallel()
			v := newVault(t, "")
			ask := func(command string, secret ...string) {
				v.write("secret.hcl", withTexts(def, secret))
				var said bytes.Buffer
				a := newApp(strings.NewReader(""), &said, &said, append(os.Environ(), "RECIPE_VAR_token="+canaryVar))
				_ = execute(t.Context(), a, []string{command, filepath.Join(v.dir, "secret.hcl")})
				if strings.Contains(said.String(), "Unknown attribute") || said.Len() == 0 {
					t.Fatalf("recipe %s of %q: %s", command, secret, &said)
				}
				v.clean(fmt.Sprintf("what recipe %s says of %q", command, secret), said.Bytes())
			}
			all, required := textsOf(def.Schema)
			for _, name := range all {
				ask("plan", name)
			}
			ask("doctor", required...)
		})
	}
}

// textsOf are the attributes of a plugin that are texts or lists of texts.
func textsOf(s *spec.Schema) (all, required []string) {
	for _, a := range s.Attributes {
		if a.Type == cty.String || a.Type == cty.List(cty.String) {
			all = append(all, a.Name)
			if a.Required && len(a.Enum) == 0 {
				required = append(required, a.Name)
			}
		}
	}
	return all, required
}

// withTexts is a recipe with a block of a plugin, some of whose attributes have a secret. Others that are required have
// some text, or the block of another kind.
func withTexts(def *sdk.Definition, secret []string) string {
	var b strings.Builder
	b.WriteString(`variable "token" {
  type      = string
  sensitive = true
}
inference "tiny" "policy" {}
environment "arithmetic" "sums" { inference = inference.tiny.policy }
trainer "tiny" "policy" { environments = [environment.arithmetic.sums] }
`)
	others := map[kind.Kind]string{kind.Inference: "inference.tiny.policy", kind.Trainer: "trainer.tiny.policy",
		kind.Environment: "environment.arithmetic.sums"}
	fmt.Fprintf(&b, "%s %q \"it\" {\n", def.Kind, def.Name)
	for _, a := range def.Schema.Attributes {
		value := `"x"`
		switch {
		case slices.Contains(secret, a.Name):
			value = "var.token"
		case !a.Required:
			continue
		case len(a.References) > 0:
			value = others[a.References[0]]
		case len(a.Enum) > 0:
			value = fmt.Sprintf("%q", a.Enum[0])
		case a.Type == cty.Number:
			value = "1"
		}
		if a.List || a.Type == cty.List(cty.String) {
			value = "[" + value + "]"
		}
		fmt.Fprintf(&b, "  %s = %s\n", a.Name, value)
	}
	b.WriteString("}\n")
	return b.String()
}
