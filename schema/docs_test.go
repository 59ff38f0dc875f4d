package schema_test

import (
	"os"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema/function"
)

const languagePage = "../docs/language.md"

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
