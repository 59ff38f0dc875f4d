package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// claim is what a page of docs states, and a test that holds it.
type claim struct{ page, text, test, file string }

// TestIndexOfTests compares docs/tests.md with the lines `//docs:PAGE what the page states` above tests in Go, and
// `# docs: PAGE …` above those in Python and in scripts. -update writes it.
func TestIndexOfTests(t *testing.T) {
	t.Parallel()
	line := regexp.MustCompile(`^\s*(?://docs:|# docs: )(\S+\.md) (.+)$`)
	name := regexp.MustCompile(`^\s*(?:func|(?:async )?def) ((?:Test|Fuzz|test_)\w+)`)
	var claims []claim
	files(t, func(path string) {
		script := strings.HasPrefix(path, "cmd/recipe/testdata/script/")
		if !script && !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(path, ".py") &&
			!strings.Contains(path, "/conformance/") {
			return
		}
		content, err := os.ReadFile(filepath.Join(repository, path))
		if err != nil {
			t.Fatal(err)
		}
		open := len(claims) // those whose test has not been read yet
		for _, l := range strings.Split(string(content), "\n") {
			if m := line.FindStringSubmatch(l); m != nil {
				claims = append(claims, claim{page: m[1], text: m[2], file: path})
				if script {
					claims[len(claims)-1].test, open = "TestScripts/"+strings.TrimSuffix(filepath.Base(path), ".txtar"), len(claims)
				}
			} else if m := name.FindStringSubmatch(l); m != nil {
				for ; open < len(claims); open++ {
					claims[open].test = m[1]
				}
			}
		}
		if open < len(claims) {
			t.Errorf("%s: no test follows the line about %s", path, claims[open].page)
		}
	})
	slices.SortStableFunc(claims, func(a, b claim) int {
		return strings.Compare(a.page+"\x00"+a.text+"\x00"+a.test, b.page+"\x00"+b.text+"\x00"+b.test)
	})
	page := testIndex(claims)
	for _, c := range claims {
		if _, err := os.Stat(filepath.Join(repository, "docs", filepath.FromSlash(c.page))); err != nil {
			t.Errorf("%s: %s names docs/%s, which does not exist", c.file, c.test, c.page)
		}
	}
	path := filepath.Join(repository, "docs", "tests.md")
	if *update {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != page {
		t.Errorf("docs/tests.md is not what the tests state (%v): "+
			"run go test ./cmd/recipe -run TestIndexOfTests -update", err)
	}
}

func testIndex(claims []claim) string {
	var b strings.Builder
	b.WriteString("# Tests of what the pages state\n\nGenerated from lines above the tests (`//docs:PAGE what it states`). " +
		"[SECURITY.md](../SECURITY.md) and [compatibility.md](compatibility.md) name their tests themselves.\n")
	for i := 0; i < len(claims); {
		c := claims[i]
		if i == 0 || claims[i-1].page != c.page {
			fmt.Fprintf(&b, "\n## [%s](%s)\n| it states | tests |\n|---|---|\n", c.page, c.page)
		}
		var tests []string
		for ; i < len(claims) && claims[i].page == c.page && claims[i].text == c.text; i++ {
			if test := "`" + claims[i].test + "`"; !slices.Contains(tests, test) {
				tests = append(tests, test)
			}
		}
		fmt.Fprintf(&b, "| %s | %s |\n", strings.ReplaceAll(c.text, "|", `\|`), strings.Join(tests, ", "))
	}
	return b.String()
}
