package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRequirementsNameRealTests checks docs/requirements.md: a test that it names exists, a line that is called met
// names one (or a document), and every id occurs once.
func TestRequirementsNameRealTests(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{}
	subtests := map[string]bool{} // strings in a test file, for names after the slash
	declared := regexp.MustCompile(`(?m)^(?:func|def|async def|    def) ((?:Test|Fuzz|test_)\w+)`)
	quoted := regexp.MustCompile(`"([^"\n]+)"`)
	files(t, func(path string) {
		test := strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/conformance/") ||
			strings.HasSuffix(path, ".py")
		if strings.Contains(path, "testdata/script/") {
			subtests[strings.TrimSuffix(filepath.Base(path), ".txtar")] = true
		}
		if !test {
			return
		}
		content, err := os.ReadFile(filepath.Join(repository, path))
		if err != nil {
			t.Error(err)
			return
		}
		for _, m := range declared.FindAllStringSubmatch(string(content), -1) {
			tests[m[1]] = true
		}
		for _, m := range quoted.FindAllStringSubmatch(string(content), -1) {
			subtests[m[1]] = true
		}
	})
	named := regexp.MustCompile("`((?:Test|test_)[^`]+)`")
	check := func(where, text string) {
		for _, name := range named.FindAllStringSubmatch(text, -1) {
			test, sub, nested := strings.Cut(name[1], "/")
			if !tests[test] || nested && !subtests[sub] {
				t.Errorf("%s names the test %s, which does not exist", where, name[1])
			}
		}
	}
	for _, name := range []string{"docs/architecture.md", "docs/survival.md", "docs/troubleshooting.md", "SECURITY.md"} {
		text, err := os.ReadFile(filepath.Join(repository, name))
		if err != nil {
			t.Fatal(err)
		}
		check(name, string(text))
	}
	page, err := os.ReadFile(filepath.Join(repository, "docs", "requirements.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\| ([A-Z]\d+) \| (.+) \| (met|part|open) \| (.*) \| (.*) \|$`)
	seen := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		id, state, where, names := m[1], m[3], m[4], m[5]
		if seen[id] {
			t.Errorf("%s stands twice", id)
		}
		seen[id] = true
		if state == "met" && named.FindString(names) == "" && !strings.Contains(where, ".md") &&
			!strings.Contains(where, "scripts/") {
			t.Errorf("%s says that it is met and names no test", id)
		}
		check(id, names)
	}
	counts := map[string]int{}
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		counts[m[3]]++
	}
	if want := fmt.Sprintf("Now %d met, %d in part, %d open.", counts["met"], counts["part"],
		counts["open"]); !strings.Contains(string(page), want) {
		t.Errorf("the page counts wrongly; it should say: %s", want)
	}
	if len(seen) != 130 {
		t.Errorf("%d requirements stand in the table, of 130", len(seen))
	}
}
