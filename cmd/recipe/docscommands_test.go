package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// typed is a command line of recipe in a page.
type typed struct {
	page, line string
	words      []string // after recipe
	inText     bool     // not in a block
}

// typedIn finds the command lines in the blocks of a page that show commands, marked sh or not marked, and those that
// stand alone in a piece of code in its text.
func typedIn(page, text string) []typed {
	var out []typed
	add := func(line string, inText bool) {
		for _, command := range commandsOn(line) {
			out = append(out, typed{page, strings.TrimSpace(line), command, inText})
		}
	}
	span := regexp.MustCompile("`(recipe [a-z][^`]*)`")
	block, inside, before := "", false, ""
	for line := range strings.Lines(text) {
		bare := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(bare, "```"):
			block, inside = strings.TrimLeft(bare, "`"), !inside
		case !inside:
			for _, m := range span.FindAllStringSubmatch(line, -1) {
				add(m[1], true)
			}
		case slices.Contains([]string{"", "sh", "bash", "console"}, block):
			if begun, ok := strings.CutSuffix(bare, "\\"); ok {
				before += begun + " "
				continue
			}
			add(before+bare, false)
		}
		before = ""
	}
	return out
}

// commandsOn are the words of each call of recipe on a line, without what a shell does with its output.
func commandsOn(line string) [][]string {
	var out [][]string
	var words []string
	end := func() {
		for len(words) > 0 && (words[0] == "$" || regexp.MustCompile(`^[A-Za-z_]+=`).MatchString(words[0])) {
			words = words[1:]
		}
		if len(words) > 1 && (words[0] == "recipe" || strings.HasSuffix(words[0], "bin/recipe")) {
			out = append(out, words[1:])
		}
		words = nil
	}
	for _, word := range regexp.MustCompile(`"[^"]*"|'[^']*'|\S+`).FindAllString(line, -1) {
		bare, ends := strings.CutSuffix(word, ";")
		switch {
		case strings.HasPrefix(word, "#"):
			end()
			return out
		case word == "|" || word == "&&" || word == "||" || word == ";" || word == "&":
			end()
		case strings.HasPrefix(word, ">") || strings.HasPrefix(word, "2>") || strings.HasPrefix(word, "<"):
			end()
			return out
		default:
			words = append(words, strings.Trim(bare, `"'`))
			if ends {
				end()
			}
		}
	}
	end()
	return out
}

// placeholder matches errors about what a page leaves to the reader: `--tail N`, or `recipe evaluate --samples`.
var placeholder = regexp.MustCompile(`flag needs an argument|invalid argument "[A-Z]+"`)

// understood is nil where a program of this tree would take a command line.
func understood(root *cobra.Command, words []string) error {
	words = slices.DeleteFunc(slices.Clone(words),
		func(word string) bool { return strings.HasPrefix(word, "[") }) // [flags]
	c, rest, err := root.Find(words)
	if err != nil {
		return err
	}
	if c == root {
		return fmt.Errorf("there is no such command")
	}
	if c.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return fmt.Errorf("%s has no command %s", c.CommandPath(), rest[0])
	}
	c.InitDefaultHelpFlag()
	err = c.ParseFlags(rest)
	if err != nil && !placeholder.MatchString(err.Error()) {
		return err
	}
	return nil
}

// pagesOfUsers are the pages with commands that readers type.
func pagesOfUsers(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	files(t, func(path string) {
		if filepath.Ext(path) != ".md" || path == "CHANGELOG.md" || strings.Contains(path, "testdata") ||
			!slices.Contains([]string{".", "docs", "skills"}, strings.Split(filepath.ToSlash(filepath.Dir(path)), "/")[0]) {
			return
		}
		text, err := os.ReadFile(filepath.Join(repository, path))
		if err != nil {
			t.Fatal(err)
		}
		out[path] = string(text)
	})
	return out
}

// TestCommandsOfPagesExist: each command line of a page is a command with these flags, and the files of recipes/ that
// it names exist.
//
// docs:README.md every command line in a page is a command with these flags
func TestCommandsOfPagesExist(t *testing.T) {
	t.Parallel()
	a := newApp(nil, io.Discard, io.Discard, []string{"RECIPE_CONFIG=" + filepath.Join("testdata", "settings.hcl")})
	seen := 0
	for page, text := range pagesOfUsers(t) {
		for _, c := range typedIn(page, text) {
			seen++
			if err := understood(newRoot(a), c.words); err != nil {
				t.Errorf("%s: %s: %v", page, c.line, err)
			}
			for _, word := range c.words {
				if strings.HasPrefix(word, "recipes/") {
					if _, err := os.Stat(filepath.Join(repository, filepath.FromSlash(word))); err != nil {
						t.Errorf("%s: %s: there is no %s", page, c.line, word)
					}
				}
			}
		}
	}
	if seen < 300 {
		t.Errorf("only %d command lines were found", seen)
	}
}

// TestCheapCommandsOfPagesRun runs what pages call on a recipe of this tree, as far as it takes seconds and needs no
// run.
//
// docs:README.md what pages call on recipes/ without a run works
func TestCheapCommandsOfPagesRun(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("plans every recipe that a page names")
	}
	seen := map[string]bool{}
	for page, text := range pagesOfUsers(t) {
		for _, c := range typedIn(page, text) {
			line := strings.Join(c.words, " ")
			cheap := slices.Contains([]string{"validate", "plan", "graph", "test"}, c.words[0]) &&
				strings.Contains(line, " recipes/") ||
				line == "version" || strings.HasPrefix(line, "plugin docs") && !strings.Contains(line, ".hcl") ||
				line == "plugin list"
			open := strings.ContainsAny(line, "…[{") || regexp.MustCompile(`\b[A-Z]{3,}\b`).MatchString(line)
			if !cheap || open || seen[line] {
				continue
			}
			seen[line] = true
			t.Run(fmt.Sprintf("%s %d", page, len(seen)), func(t *testing.T) {
				t.Parallel()
				cmd := exec.CommandContext(t.Context(), "recipe", c.words...)
				cmd.Dir, cmd.Env = repository, append(os.Environ(), "RECIPE_TRUST=all")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", line, err, out)
				}
			})
		}
	}
	if len(seen) < 5 {
		t.Errorf("only %d commands were run", len(seen))
	}
}
