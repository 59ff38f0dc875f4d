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
		if !diags.HasErrors() || !strings.Contains(said, "(sensitive)") || strings.Contains(said, "SECRET") {
			t.Errorf("%q: %v", secret, diags)
		}
	}
}
