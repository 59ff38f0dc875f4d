package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The flows in docs/architecture.md name files and functions; each exists. A file without a folder is in the folder of
// the file that the same line names before it.
func TestTheFlowsNameWhatIsThere(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "## Five flows")
	text, _, ended := strings.Cut(text, "## Who owns which fact")
	if !found || !ended {
		t.Fatal("docs/architecture.md has no section on the flows")
	}
	file, function := regexp.MustCompile(`^[\w/]+\.go$`), regexp.MustCompile(`^[A-Za-z]\w*$`)
	named := 0
	for _, line := range strings.Split(text, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		var folder, source string
		for i, cell := range cells[2:] {
			for _, word := range regexp.MustCompile("`[^`]+`").FindAllString(cell, -1) {
				word = strings.Trim(word, "`")
				switch {
				case file.MatchString(word):
					if strings.Contains(word, "/") {
						folder = filepath.Dir(word)
					}
					content, err := os.ReadFile(filepath.Join("../..", folder, filepath.Base(word)))
					if err != nil {
						t.Errorf("%s\n  %v", line, err)
					}
					source = string(content)
				case source != "" && function.MatchString(word) && i == 0:
					named++
					if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + word + `[\[(]`).MatchString(source) {
						t.Errorf("%s\n  there is no function %s in that file", line, word)
					}
				}
			}
		}
	}
	if named < 30 {
		t.Errorf("only %d functions are named; the walk cannot be read as it was", named)
	}
}
