package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPagesNameRealTests checks that every test which a page names exists.
func TestPagesNameRealTests(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{}
	subtests := map[string]bool{} // strings in a test file, for names after the slash
	var pages []string
	declared := regexp.MustCompile(`(?m)^(?:func|def|async def|    def) ((?:Test|Fuzz|test_)\w+)`)
	quoted := regexp.MustCompile(`"([^"\n]+)"`)
	files(t, func(path string) {
		if strings.HasSuffix(path, ".md") {
			pages = append(pages, path)
		}
		if strings.Contains(path, "testdata/script/") {
			subtests[strings.TrimSuffix(filepath.Base(path), ".txtar")] = true
		}
		test := strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/conformance/") ||
			strings.HasSuffix(path, ".py")
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
	named := regexp.MustCompile("`((?:Test[A-Z]|Fuzz[A-Z]|test_)[^`.{]+)`")
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(repository, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range named.FindAllStringSubmatch(string(text), -1) {
			found++
			test, sub, nested := strings.Cut(name[1], "/")
			first, _, _ := strings.Cut(sub, "/") // names of subtests may have a slash, and subtests may be nested
			if !tests[test] || nested && !subtests[sub] && !subtests[first] {
				t.Errorf("%s names the test %s, which does not exist", page, name[1])
			}
		}
	}
	if found == 0 {
		t.Error("no page names a test: the expression that finds them is wrong")
	}
}
