package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Every plugin in the binary is given a secret for each of its texts, one after another, as its estimates and notes
// name what they are about.
func TestNoPluginSaysASecretInAPlan(t *testing.T) {
	t.Parallel()
	for _, def := range builtins() {
		t.Run(string(def.Kind)+"."+def.Name, func(t *testing.T) {
			t.Parallel()
			v := newVault(t, "")
			ask := func(command string, secret map[string]string) {
				v.write("secret.hcl", withTexts(def, secret))
				var said bytes.Buffer
				a := newApp(strings.NewReader(""), &said, &said, append(os.Environ(), "RECIPE_VAR_token="+canaryVar))
				_ = execute(t.Context(), a, []string{command, filepath.Join(v.dir, "secret.hcl")})
				for _, unfit := range []string{"Unknown attribute", "Unknown block", "Invalid expression", "Wrong type"} {
					if strings.Contains(said.String(), unfit) || said.Len() == 0 {
						t.Fatalf("recipe %s of %q: %s", command, secret, &said)
					}
				}
				v.clean(fmt.Sprintf("what recipe %s says of %q", command, secret), said.Bytes())
			}
			all, required := textsOf(def.Schema, "")
			all["config"] = append(all["config"], ofAnotherProject[def.Name]...)
			for place, values := range all {
				for _, value := range values {
					ask("plan", map[string]string{place: value})
				}
			}
			ask("doctor", required)
		})
	}
}

// ofAnotherProject are values of config that the plan of a trainer looks at.
var ofAnotherProject = map[string][]string{
	"trl": {"{ loss_type = var.token }", "{ lora_r = var.token }", "{ optim_args = var.token }",
		"{ model_init_kwargs = { dtype = var.token } }", "{ report_to = [var.token] }"},
	"axolotl": {"{ trl = { loss_type = var.token } }", "{ adapter = var.token }", "{ trl = { (var.token) = 1 } }"},
	"verl": {"{ actor = { optim = { optimizer = var.token, lr = var.token } } }",
		"{ algorithm = { rollout_correction = { rollout_is = var.token } } }", "{ actor = { (var.token) = 1 } }"},
}

// textsOf are the attributes of a body, and of the blocks within it, that hold text, with the values that have a secret
// in them, and the required ones of those.
func textsOf(s *spec.Schema, within string) (all map[string][]string, required map[string]string) {
	all, required = map[string][]string{}, map[string]string{}
	for _, a := range s.Attributes {
		switch {
		case a.Type == cty.String:
			all[within+a.Name] = []string{"var.token"}
		case a.Type == cty.List(cty.String):
			all[within+a.Name] = []string{"[var.token]"}
		case a.Type.IsMapType() && a.Type.ElementType() == cty.String:
			all[within+a.Name] = []string{"{ inner = var.token }", "{ (var.token) = \"x\" }"}
		case a.Type == cty.DynamicPseudoType && len(a.References) == 0 && a.Format != spec.FormatList:
			all[within+a.Name] = []string{"{ inner = var.token }", "{ (var.token) = \"x\" }",
				"{ actor = { inner = [\"x\", { deep = var.token }] } }"}
		}
		if a.Required && len(a.Enum) == 0 && a.Type == cty.String {
			required[within+a.Name] = "var.token"
		}
	}
	for _, b := range s.Blocks {
		inner, _ := textsOf(b.Schema, within+b.Name+".")
		for place, values := range inner {
			all[place] = values
		}
	}
	return all, required
}

// withTexts is a recipe with a block of a plugin, some of whose attributes have a secret.
func withTexts(def *sdk.Definition, secret map[string]string) string {
	var b strings.Builder
	b.WriteString(`variable "token" {
  type      = string
  sensitive = true
}
inference "tiny" "policy" {}
environment "arithmetic" "sums" { inference = inference.tiny.policy }
`)
	if def.Kind != kind.Trainer {
		b.WriteString("trainer \"tiny\" \"policy\" { environments = [environment.arithmetic.sums] }\n")
	}
	fmt.Fprintf(&b, "%s %q \"it\" {\n", def.Kind, def.Name)
	writeTexts(&b, def.Schema, "", secret)
	b.WriteString("}\n")
	return b.String()
}

// writeTexts writes a body with the secrets. Other attributes that are required have some text, or the block of another
// kind.
func writeTexts(b *strings.Builder, s *spec.Schema, within string, secret map[string]string) {
	others := map[kind.Kind]string{kind.Inference: "inference.tiny.policy", kind.Trainer: "trainer.tiny.policy",
		kind.Environment: "environment.arithmetic.sums"}
	for _, a := range s.Attributes {
		value := `"x"`
		switch {
		case secret[within+a.Name] != "":
			fmt.Fprintf(b, "  %s = %s\n", a.Name, secret[within+a.Name])
			continue
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
		fmt.Fprintf(b, "  %s = %s\n", a.Name, value)
	}
	for _, inner := range s.Blocks {
		written := inner.Required
		for place := range secret {
			written = written || strings.HasPrefix(place, within+inner.Name+".")
		}
		if written {
			fmt.Fprintf(b, "  %s {\n", inner.Name)
			writeTexts(b, inner.Schema, within+inner.Name+".", secret)
			b.WriteString("  }\n")
		}
	}
}
