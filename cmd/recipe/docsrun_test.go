package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// call is a command of recipe and the flags that it was given.
type call struct {
	command string
	flags   []string
}

// calledAs finds the command in the words of a line. Flags in brackets are choices that a page offers.
func calledAs(root *cobra.Command, words []string) (call, bool) {
	c, rest, err := root.Find(words)
	if err != nil || c == root {
		return call{}, false
	}
	out := call{command: c.CommandPath()}
	for _, word := range rest {
		name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
		flag := c.Flag(name)
		if len(name) == 1 {
			flag = c.Flags().ShorthandLookup(name)
		}
		if strings.HasPrefix(word, "-") && flag != nil {
			out.flags = append(out.flags, flag.Name)
		}
	}
	return out, true
}

// unrun are the commands in blocks of pages that no test runs with these flags, and why.
var unrun = map[string]string{
	"plugin build . --platform linux/amd64,linux/arm64,darwin/arm64 -o dist": "no test compiles for other platforms",
	"run-api --host 127.0.0.1 --port 8000 --dir .recipe/run-api":             "no test binds a fixed port",
	"ui -r quickstart.hcl --port 8080":                                       "no test binds a fixed port",
}

// TestCommandsOfPagesAreRun: a script, a Go test or a page that is run calls each command that a block of a page shows,
// with at least its flags. Blocks of docs/authors and docs/tutorials are run themselves, by the tests of scaffold.
//
// docs:README.md a test runs every command that a block of a page shows, with its flags
func TestCommandsOfPagesAreRun(t *testing.T) {
	t.Parallel()
	root := newRoot(newApp(nil, nil, nil, nil))
	var ran []call
	add := func(words []string) {
		if c, ok := calledAs(root, words); ok {
			ran = append(ran, c)
		}
	}
	quoted := regexp.MustCompile(`"([^"\s]+)"|(?:^|[("\x60\s])recipe ([^"\x60]+)`)
	files(t, func(path string) {
		script := strings.HasSuffix(path, ".txtar")
		test := script || strings.HasSuffix(path, "_test.go")
		if !test || !strings.HasPrefix(path, "cmd/") && !strings.HasPrefix(path, "e2e/") {
			return
		}
		text, err := os.ReadFile(filepath.Join(repository, path))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if script {
				_, line, _ = strings.Cut(line, "exec ")
				for _, words := range commandsOn(line) {
					add(words)
				}
				continue
			}
			var words []string
			for _, m := range quoted.FindAllStringSubmatch(line, -1) {
				if m[2] != "" {
					add(strings.Fields(m[2]))
				} else if m[1] != "recipe" {
					words = append(words, m[1])
				}
			}
			for i := range words {
				add(words[i:])
			}
		}
	})
	shown := map[string]bool{}
	for page, text := range pagesOfUsers(t) {
		if strings.HasPrefix(page, "docs/cli/") || strings.HasPrefix(page, "docs/blocks/") {
			continue
		}
		itself := strings.HasPrefix(page, "docs/authors/") || strings.HasPrefix(page, "docs/tutorials/")
		for _, c := range typedIn(page, text) {
			if c.inText || itself {
				continue
			}
			wanted, ok := calledAs(root, c.words)
			line := strings.Join(c.words, " ")
			shown[line] = true
			if !ok || unrun[line] != "" {
				continue
			}
			if !slices.ContainsFunc(ran, func(r call) bool {
				return r.command == wanted.command &&
					!slices.ContainsFunc(wanted.flags, func(flag string) bool { return !slices.Contains(r.flags, flag) })
			}) {
				t.Errorf("%s: no test runs %s with %v", page, c.line, wanted.flags)
			}
		}
	}
	for line, reason := range unrun {
		if !shown[line] {
			t.Errorf("no page shows recipe %s any more (%s)", line, reason)
		}
	}
}
