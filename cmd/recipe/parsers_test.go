package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// hcl's parsers have no limits: what a stranger has written goes through parse.File and its like.
func TestParsersHaveLimits(t *testing.T) {
	t.Parallel()
	bare := regexp.MustCompile(`(hclsyntax|hclwrite|hclparse|hcljson)\.(New)?Pars\w*\(|hclsimple\.\w+\(`)
	behind := []string{ // each asks for the limits itself
		"schema/parse/parse.go", "schema/parse/parts.go", "schema/parse/template.go", "schema/parse/format.go",
		"schema/input/variables.go", "schema/runtime.go",
		"schema/set.go",            // of the command line
		"schema/function/files.go", // where no recipe's limits are given
	}
	var seen []string
	files(t, func(path string) {
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return
		}
		text, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(path)))
		if err != nil {
			t.Fatal(err)
		}
		if at := bare.Find(text); at != nil {
			if seen = append(seen, path); !slices.Contains(behind, path) {
				t.Errorf("%s says %s: use parse.File, Expression or Constant, which have limits", path, at)
			}
		}
	})
	if len(seen) < 4 {
		t.Errorf("parsers were found in %v alone", seen)
	}
}
