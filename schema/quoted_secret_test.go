package schema_test

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema"
)

// Keys in PEM and credentials in JSON have quotes, backslashes and newlines, which errors of functions escape.
func TestASecretIsNotPrintedInItsQuotedForm(t *testing.T) {
	t.Parallel()
	source := "variable \"cred\" {\n type = string\n sensitive = true\n}\n" +
		"locals {\n x = parseint(var.cred, 10)\n}\n"
	for _, secret := range []string{"plainSECRET", `{"key": "SECRET"}`, `a\SECRET`, "-----\nSECRET\n-----"} {
		_, diags := schema.LoadSource("x.hcl", []byte(source), schema.Options{
			Environ: []string{"RECIPE_VAR_cred=" + secret}})
		said := diags.Error()
		if !diags.HasErrors() || !strings.Contains(said, "sensitive") || strings.Contains(said, "SECRET") {
			t.Errorf("%q: %v", secret, diags)
		}
	}
}

// Errors of functions quote a part of what they were given, or what was made of it; none of that is shown.
func TestNoPartOfASecretIsPrinted(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"[CANARY: xq: zq", "*xqCANARY", "{zq: "} {
		for _, call := range []string{"yamldecode(var.cred)", "jsondecode(var.cred)", "yamldecode(\"a: ${var.cred}\")",
			"parseint(lower(var.cred), 10)", "regex(var.cred, \"x\")", "base64decode(var.cred)", "tonumber(var.cred)",
			"formatdate(var.cred, \"2020-01-01T00:00:00Z\")", "lookup({ x = 1 }, substr(var.cred, 1, 6))"} {
			source := "variable \"cred\" {\n type = string\n sensitive = true\n}\nlocals {\n x = " + call + "\n}\n"
			_, diags := schema.LoadSource("x.hcl", []byte(source), schema.Options{
				Environ: []string{"RECIPE_VAR_cred=" + secret}})
			for _, d := range diags {
				said := strings.ToLower(d.Summary + d.Detail)
				if strings.Contains(said, "canary") || strings.Contains(said, "xq") || strings.Contains(said, "zq") {
					t.Errorf("%s of %q: %s", call, secret, said)
				}
			}
		}
	}
}
