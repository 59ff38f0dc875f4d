package policy_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/policy"
	"github.com/recipe-rl/recipe/schema/addr"
)

// conditions asks a file of conditions about a plan of two blocks.
func conditions(t *testing.T, text string) []plan.Finding {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.policy.hcl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var operations []*plan.Operation
	for _, address := range []string{"inference.tiny.policy", "trainer.tiny.policy"} {
		a, err := addr.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		operations = append(operations, &plan.Operation{Address: a, Kind: a.Kind, Plugin: a.Plugin, Action: plan.Create})
	}
	found, err := policy.Ask(t.Context(), []string{path}, time.Minute, &plan.Plan{FormatVersion: plan.FormatVersion,
		Recipe: "sums", Operations: operations})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Policy != path {
			t.Errorf("the finding %+v does not name its policy", f)
		}
	}
	return found
}

func TestConditions(t *testing.T) {
	t.Parallel()
	trainer, err := addr.Parse("trainer.tiny.policy")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text string
		want []plan.Finding
	}{
		"false": {`deny "a" {` + "\n condition = plan.recipe == \"other\"\n message = \"no\"\n}", nil},
		"true": {`warn "a" {` + "\n condition = length(plan.operations) == 2\n message = \"${plan.recipe} has two\"\n}",
			[]plan.Finding{{Severity: "warning", Summary: "sums has two"}}},
		"each": {`deny "a" {
  for_each  = plan.operations
  condition = each.value.kind == "trainer"
  message   = "operation ${each.key} is a trainer"
  address   = each.value.address
}`, []plan.Finding{{Severity: "error", Summary: "operation 1 is a trainer", Address: trainer}}},
		"a message is only made when it holds": {`deny "a" {` + "\n condition = false\n message = plan.nothing\n}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := short(conditions(t, c.text)); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestConditionsWithoutAnAnswerDeny: a mistake in the file, or a condition that has no value, denies and says where.
func TestConditionsWithoutAnAnswerDeny(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, detail string }{
		"empty":              {"", "at least one block deny"},
		"only comments":      {"# deny nothing\n", "at least one block deny"},
		"syntax":             {`deny "a" {`, "rules.policy.hcl:1"},
		"another block":      {`refuse "a" {}`, "refuse"},
		"no message":         {`deny "a" { condition = true }`, "message"},
		"unknown name":       {`deny "a" {` + "\n condition = plan.nothing == 1\n message = \"x\"\n}", "rules.policy.hcl:2"},
		"no condition":       {`deny "a" {` + "\n condition = null\n message = \"x\"\n}", "expected a bool"},
		"no list":            {`deny "a" {` + "\n for_each = 3\n condition = true\n message = \"x\"\n}", "for_each"},
		"no address":         {`deny "a" {` + "\n condition = true\n message = \"x\"\n address = \"trainer\"\n}", "address"},
		"message is no text": {`deny "a" {` + "\n condition = true\n message = [1]\n}", "expected a string"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := conditions(t, c.text)
			if len(got) != 1 || got[0].Severity != "error" || !strings.Contains(got[0].Detail, c.detail) {
				t.Errorf("got %+v, want an error with %q", got, c.detail)
			}
		})
	}
	got := ask(t, time.Minute, filepath.Join(t.TempDir(), "none.policy.hcl"))
	if len(got) != 1 || got[0].Severity != "error" || !strings.Contains(got[0].Summary, "cannot be read") {
		t.Errorf("a file that is missing: %+v", got)
	}
}
