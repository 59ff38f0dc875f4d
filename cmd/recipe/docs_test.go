package main

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/cmd/recipe/reference"
	known "github.com/recipe-rl/recipe/plugins/agent"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk"
)

var update = flag.Bool("update", false, "write golden parts anew")

// TestDocsAreUpToDate compares docs/cli and docs/blocks with the commands and the plugins of this tree.
func TestDocsAreUpToDate(t *testing.T) {
	t.Parallel()
	a := newApp(nil, io.Discard, io.Discard, []string{"RECIPE_CONFIG=" + filepath.Join("testdata", "settings.hcl")})
	plugins, err := a.everyPlugin("")
	if err != nil {
		t.Fatal(err)
	}
	schemas, err := reference.Schemas()
	if err != nil {
		t.Fatal(err)
	}
	for dir, pages := range map[string]reference.Pages{
		"cli":     reference.Commands(newRoot(a)),
		"blocks":  reference.Blocks(plugins),
		"schemas": schemas,
	} {
		wrong, err := pages.Differences(filepath.Join(repository, "docs", dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range wrong {
			t.Errorf("docs/%s/%s; run make docs", dir, w)
		}
	}
}

// TestTheIndexForLanguageModelsIsUpToDate compares docs/llms.txt with the guides, the commands and the plugins, and
// follows its links.
func TestTheIndexForLanguageModelsIsUpToDate(t *testing.T) {
	t.Parallel()
	a := newApp(nil, io.Discard, io.Discard, []string{"RECIPE_CONFIG=" + filepath.Join("testdata", "settings.hcl")})
	plugins, err := a.everyPlugin("")
	if err != nil {
		t.Fatal(err)
	}
	docs := filepath.Join(repository, "docs")
	pages, err := reference.LLMs(docs, newRoot(a), plugins)
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile(filepath.Join(docs, "llms.txt"))
	if err != nil || string(have) != pages["llms.txt"] {
		t.Errorf("docs/llms.txt is not up to date (%v); run make docs", err)
	}
	for _, m := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllSubmatch(have, -1) {
		if _, err := os.Stat(filepath.Join(docs, string(m[1]))); err != nil {
			t.Errorf("docs/llms.txt links to %s, which is not there", m[1])
		}
	}
}

// TestCompatibilityIsUpToDate compares the page of what goes together with the plugins, and looks for the tests that it
// names.
func TestCompatibilityIsUpToDate(t *testing.T) {
	t.Parallel()
	pages, err := reference.Compatibility(builtins())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range pages {
		have, err := os.ReadFile(filepath.Join(repository, "docs", name))
		if err != nil || string(have) != text {
			t.Errorf("docs/%s is not up to date (%v); run make docs", name, err)
		}
	}
	for _, r := range reference.Tests() {
		if !isTest(t, "e2e", r.Test) {
			t.Errorf("%s with %s names %s, which is no test in e2e", r.Engine, r.Trainer, r.Test)
		}
		for _, id := range []string{"inference/" + r.Engine, "trainer/" + r.Trainer} {
			if id != "inference/external" &&
				!slices.ContainsFunc(builtins(), func(d *sdk.Definition) bool { return d.ID() == id }) {
				t.Errorf("%s: there is no plugin %s", r.Test, id)
			}
		}
	}
}

// The table of agents names tests, too, and each known agent.
func TestCompatibilityNamesTheAgents(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(repository, "docs", "compatibility.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range known.Agents() {
		if !strings.Contains(string(page), "| `"+a.Name+"` "+a.Tried+" | "+a.Dialect+" |") {
			t.Errorf("docs/compatibility.md lacks %s %s", a.Name, a.Tried)
		}
	}
	for test, folder := range map[string]string{"TestAgentsOfOthers": "plugins/agent",
		"TestSessionsAreTrainedAsSampled": "plugins/trajectories/chaos"} {
		if !strings.Contains(string(page), "`"+test+"`") || !isTest(t, folder, test) {
			t.Errorf("%s is not in docs/compatibility.md, or no test of %s", test, folder)
		}
	}
}

// isTest reports whether a folder of the repository has this test.
func isTest(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repository, filepath.FromSlash(folder), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), "func "+name+"(t *testing.T)")
	})
}

// TestTheQuickReferenceIsComplete: it names every command that help shows and every plugin that is built in.
func TestTheQuickReferenceIsComplete(t *testing.T) {
	t.Parallel()
	checkPage(t, "docs/quick-reference.md")
	data, err := os.ReadFile(filepath.Join(repository, "docs", "quick-reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	for _, c := range newRoot(newApp(nil, io.Discard, io.Discard, nil)).Commands() {
		if c.IsAvailableCommand() && !regexp.MustCompile("`recipe "+c.Name()+"[ `]").MatchString(page) {
			t.Errorf("recipe %s is not there", c.Name())
		}
	}
	for _, d := range builtins() {
		row := regexp.MustCompile("(?m)^\\| `" + string(d.Kind) + "` \\|.*`" + d.Name + "`")
		if !row.MatchString(page) {
			t.Errorf("%s %q is not there", d.Kind, d.Name)
		}
	}
}

// checkPage loads every recipe that a page shows, and follows its links within the repository.
func checkPage(t *testing.T, name string) {
	t.Helper()
	path := filepath.Join(repository, filepath.FromSlash(name))
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	catalog, err := newApp(nil, io.Discard, io.Discard,
		[]string{"RECIPE_CONFIG=" + filepath.Join("testdata", "settings.hcl")}).catalog()
	if err != nil {
		t.Fatal(err)
	}
	recipes := regexp.MustCompile("(?s)```hcl\n(.*?)```").FindAllSubmatch(page, -1)
	if len(recipes) == 0 {
		t.Errorf("%s shows no recipe", name)
	}
	for _, m := range recipes {
		_, diags := schema.LoadSource(name, m[1], schema.Options{Plugins: catalog})
		// The reader has the data and the environment that a page names.
		diags = slices.DeleteFunc(diags, func(d *hcl.Diagnostic) bool { return d.Summary == "File not found" })
		if diags.HasErrors() {
			t.Errorf("a recipe of %s does not load: %v", name, diags)
		}
	}
	for _, m := range regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`).FindAllSubmatch(page, -1) {
		if link := string(m[1]); !strings.Contains(link, "://") {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), filepath.FromSlash(link))); err != nil {
				t.Errorf("%s links to %s, which is not there", name, link)
			}
		}
	}
}

// TestReadmeShowsARecipeThatLoads loads every recipe that the README shows, and follows its links within the
// repository.
func TestReadmeShowsARecipeThatLoads(t *testing.T) {
	t.Parallel()
	checkPage(t, "README.md")
}

// docs/README.md is the index of the pages and the navigation of the site.
func TestTheIndexOfPagesIsComplete(t *testing.T) {
	t.Parallel()
	docs := filepath.Join(repository, "docs")
	index, err := os.ReadFile(filepath.Join(docs, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	files(t, func(path string) {
		page, ok := strings.CutPrefix(path, "docs/")
		if !ok || filepath.Ext(page) != ".md" || page == "README.md" || strings.HasPrefix(page, "cli/recipe-") ||
			strings.HasPrefix(page, "blocks/") && page != "blocks/README.md" {
			return
		}
		if !strings.Contains(string(index), "]("+page+")") {
			t.Errorf("docs/README.md does not link to %s", page)
		}
	})
}

// mostWords is how many words a cell of a table may have: a longer one is a text in a narrow column, which is hard to
// read on a phone.
const mostWords = 40

// TestCellsOfTablesAreShort leaves out generated pages, whose cells are the help of flags and attributes.
func TestCellsOfTablesAreShort(t *testing.T) {
	t.Parallel()
	long := []string{"SECURITY.md"} // its long cells are still to become text
	cell := regexp.MustCompile(`(?:[^|\\]|\\.)+`)
	for page, text := range pagesOfUsers(t) {
		if strings.HasPrefix(page, "docs/blocks/") || slices.Contains(long, page) {
			continue
		}
		inside := false
		for i, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				inside = !inside
			}
			if inside || !strings.HasPrefix(line, "|") {
				continue
			}
			for _, c := range cell.FindAllString(line, -1) {
				if n := len(strings.Fields(c)); n > mostWords {
					t.Errorf("%s:%d: a cell of %d words, at most %d: put the rest below the table: %.60s…", page, i+1, n,
						mostWords, strings.TrimSpace(c))
				}
			}
		}
	}
}

// TestRecipesAreWell loads every recipe in recipes/ and checks its layout.
func TestRecipesAreWell(t *testing.T) {
	t.Parallel()
	catalog, err := newApp(nil, io.Discard, io.Discard,
		[]string{"RECIPE_CONFIG=" + filepath.Join("testdata", "settings.hcl"), "RECIPE_TRUST=all"}).catalog()
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(repository, "recipes", "*.hcl"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("recipes: %v, %v", paths, err)
	}
	for _, path := range paths {
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(src, parse.Format(src)) {
			t.Errorf("%s is not laid out as recipe fmt does it", path)
		}
		if !parse.IsRecipeFile(filepath.Base(path)) {
			continue
		}
		if _, diags := schema.Load(path, schema.Options{Plugins: catalog}); diags.HasErrors() {
			t.Errorf("%s does not load: %v", path, diags)
		}
	}
}
