package schema_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/function"
)

const languagePage = "../docs/language.md"

// TestTheExamplesOfTheLanguagePageLoad: every example of the page is a valid recipe.
func TestTheExamplesOfTheLanguagePageLoad(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(languagePage)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	module := filepath.Join(dir, "modules", "eval")
	if err := os.MkdirAll(module, 0o700); err != nil {
		t.Fatal(err)
	}
	const eval = "variable \"model\" { type = string }\ninference \"vllm\" \"policy\" { model = var.model }\noutput " +
		"\"url\" { value = inference.vllm.policy.base_url }\n"
	if err := os.WriteFile(filepath.Join(module, "eval.hcl"), []byte(eval), 0o600); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(page), "```hcl\n")
	if len(parts) < 7 {
		t.Fatalf("only %d examples found", len(parts)-1)
	}
	for i, part := range parts[1:] {
		src, _, _ := strings.Cut(part, "```")
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			_, diags := schema.LoadSource(filepath.Join(dir, "example.hcl"), []byte(src),
				schema.Options{Plugins: fakePlugins(t)})
			if len(diags) > 0 {
				t.Errorf("%v\n%s", diags, src)
			}
			if formatted := schema.Format([]byte(src)); string(formatted) != src {
				t.Errorf("not formatted:\n%s", formatted)
			}
		})
	}
}

// TestTheLanguagePageListsEveryFunction, and no other.
func TestTheLanguagePageListsEveryFunction(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(languagePage)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "### Functions")
	section, _, _ = strings.Cut(section, "\nThey work")
	listed := map[string]bool{}
	for i, word := range strings.Split(section, "`") {
		if i%2 == 1 && !strings.Contains(word, "\"") {
			listed[word] = true
		}
	}
	all := function.All(function.Options{Files: &function.Files{}})
	for name := range all {
		if !listed[name] {
			t.Errorf("%s is not on the page", name)
		}
	}
	for name := range listed {
		if _, ok := all[name]; !ok {
			t.Errorf("%s is on the page but there is no such function", name)
		}
	}
}
