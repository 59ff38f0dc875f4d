package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Python packages are pinned in one version, so that an advisory is mended in one place; scripts/python/several.md
// lists
// the others, with the reason.
func TestPinsAgree(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(repository, "scripts", "python")
	files, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	pin := regexp.MustCompile(`(?m)^\s*([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*==\s*([^\s;#,]+)`)
	versions := map[string]map[string][]string{} // by package and version: the files
	for _, file := range files {
		if strings.Contains(filepath.Base(file), "-oldest.") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range pin.FindAllStringSubmatch(string(text), -1) {
			name := regexp.MustCompile(`[._-]+`).ReplaceAllString(strings.ToLower(m[1]), "-")
			if versions[name] == nil {
				versions[name] = map[string][]string{}
			}
			versions[name][m[2]] = append(versions[name][m[2]], filepath.Base(file))
		}
	}
	text, err := os.ReadFile(filepath.Join(folder, "several.md"))
	if err != nil {
		t.Fatal(err)
	}
	several := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([a-z0-9-]+) \| \S.{20,} \|$`).FindAllStringSubmatch(string(text), -1) {
		several[m[1]] = true
	}
	if len(versions) < 10 {
		t.Errorf("only %d packages are pinned", len(versions))
	}
	for name, by := range versions {
		if len(by) > 1 && !several[name] {
			t.Errorf("%s is pinned in %v: %v; choose one, or say why in scripts/python/several.md", name,
				slices.Sorted(maps.Keys(by)), by)
		}
	}
	for name := range several {
		if len(versions[name]) < 2 {
			t.Errorf("scripts/python/several.md lists %s, which is pinned in one version", name)
		}
	}
}

// Workflows of this repository run actions by digest, with no permission that a job does not name, and tokens are not
// left behind in the checkout.
func TestPinsOfWorkflows(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(repository, ".github", "workflows", "*.yml"))
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	uses, pinned := regexp.MustCompile(`(?m)uses:\s*(\S+)`), regexp.MustCompile(`^[\w./-]+@[0-9a-f]{40}$`)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text, name := string(data), filepath.Base(file)
		for _, m := range uses.FindAllStringSubmatch(text, -1) {
			if !pinned.MatchString(m[1]) {
				t.Errorf("%s uses %s, which is not pinned by a digest", name, m[1])
			}
		}
		if !strings.Contains(text, "\npermissions: {}\n") {
			t.Errorf("%s does not take all permissions away first (permissions: {})", name)
		}
		if strings.Count(text, "actions/checkout@") != strings.Count(text, "persist-credentials: false") {
			t.Errorf("%s leaves its token in a checkout: set persist-credentials: false", name)
		}
	}
}
