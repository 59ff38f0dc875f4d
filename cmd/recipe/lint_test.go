package main

import (
	"go/build/constraint"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The linters see no file whose build tag they are not given, so `make lint` would say nothing of it.
func TestTheLintersSeeEveryBuildTag(t *testing.T) {
	t.Parallel()
	config, err := os.ReadFile(filepath.Join(repository, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var given []string
	if m := regexp.MustCompile(`(?m)^  build-tags: \[(.*?)\]`).FindSubmatch(config); m != nil {
		given = strings.Split(string(m[1]), ", ")
	}
	ofTheSystem := []string{"linux", "darwin", "amd64", "arm64", "race"} // the machine and the command choose them
	files(t, func(path string) {
		if filepath.Ext(path) != ".go" {
			return
		}
		content, err := os.ReadFile(filepath.Join(repository, path))
		if err != nil {
			t.Error(err)
			return
		}
		header, _, _ := strings.Cut(string(content), "\npackage ")
		for line := range strings.Lines(header) {
			if !constraint.IsGoBuild(line) {
				continue
			}
			expr, err := constraint.Parse(strings.TrimSpace(line))
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			expr.Eval(func(tag string) bool {
				if !slices.Contains(ofTheSystem, tag) && !slices.Contains(given, tag) {
					t.Errorf("%s has the build tag %q, which build-tags of .golangci.yml lacks: no linter sees the file",
						path, tag)
				}
				return true
			})
		}
	})
}
