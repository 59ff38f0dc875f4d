package scaffold_test

import (
	"cmp"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/recipe-rl/recipe/cmd/recipe/scaffold"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// notRun are the commands of docs/authors that no test runs, and why.
var notRun = map[string]string{
	"recipe init mine.hcl":  "installs vLLM, several GB",
	"recipe apply mine.hcl": "needs it",
	"uv pip compile --universal --generate-hashes requirements.in -o requirements.txt": "asks PyPI, and " +
		"TestATrainerInPythonIsAPackage does it",
	"recipe plugin build . --version 1.0.0 -o ../mine.dist": "needs it",
}

// TestThePagesOfAuthorsAreRun runs the commands of each page of docs/authors, those in blocks marked sh, in one shell
// and an empty folder. With each plugin that they create it does what its README and its CI file say. The pages create
// plugins of every kind in every language.
func TestThePagesOfAuthorsAreRun(t *testing.T) {
	t.Parallel()
	created := map[string]bool{}
	for name, page := range pages(t) {
		commands := runnable(commandsOf(t, page))
		for _, m := range regexp.MustCompile(`(?m)^recipe plugin new (\S+) \S+(?: --lang (\S+))?$`).FindAllStringSubmatch(
			commands, -1) {
			created[m[1]+" "+cmp.Or(m[2], "go")] = true
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needsPython(t)
			a := newAuthor(t)
			rises := name == "python-environment.md" || name == "go-environment.md"
			if !rises {
				a.environ = append(a.environ, "RECIPE_VAR_steps=8")
			}
			if strings.Contains(commands, "$REGISTRY") {
				server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
				t.Cleanup(server.Close)
				a.environ = append(a.environ, "REGISTRY="+strings.TrimPrefix(server.URL, "http://")+"/you")
			}
			if !strings.Contains(commands, "git clone") { // the reader has done it on another page
				if err := os.Symlink(sources, filepath.Join(a.dir, "recipe")); err != nil {
					t.Fatal(err)
				}
			}
			if out := a.follow(a.dir, commands); rises {
				a.rises(out)
			}
			files, err := filepath.Glob(filepath.Join(a.dir, "*", ".github"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if module := filepath.Dir(file); filepath.Base(module) != "recipe" { // the clone of this repository
					a.checkModule(module)
				}
			}
		})
	}
	for _, k := range kind.All() {
		for _, language := range scaffold.Languages(k) {
			if !created[string(k)+" "+language] {
				t.Errorf("no page creates a %s plugin in %s, so none is tested", k, language)
			}
		}
	}
}

// runnable is commands without those that are not run.
func runnable(commands string) string {
	for command, reason := range notRun {
		commands = strings.ReplaceAll(commands, command, ": not run, it "+reason)
	}
	return commands
}

// checkModule does what the README and the CI file of a plugin say, and looks at how its files are laid out.
func (a *author) checkModule(folder string) {
	a.t.Helper()
	name := filepath.Base(folder)
	readme, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		a.t.Fatal(err)
	}
	a.follow(folder, runnable(commandsOf(a.t, string(readme))))
	a.run(folder, "recipe", "fmt", "--check", name+".hcl")
	if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
		if out := a.run(folder, "gofmt", "-l", "."); out != "" {
			a.t.Errorf("gofmt would change %s of %s", out, name)
		}
		a.run(folder, "go", "vet", "./...")
	}
	if _, err := os.Stat(filepath.Join(folder, "trainer.py")); err == nil {
		return // needs PyTorch: TestThePythonTrainerScaffoldTrains
	}
	checkpoints, err := filepath.Glob(filepath.Join(folder, ".recipe", name, "checkpoints", "*", "step-*"))
	if err != nil || len(checkpoints) == 0 {
		a.t.Errorf("%s has trained nothing: no checkpoint, %v", name, err)
	}
	if out := a.follow(folder, ci(a.t, folder)); !strings.Contains(out, "complies") {
		a.t.Errorf("the compliance suite says of %s\n%s", name, out)
	}
	if _, err := os.Stat(filepath.Join(folder, "report.xml")); err != nil {
		a.t.Errorf("the CI of %s left no report: %v", name, err)
	}
}

// ci are the commands of a module's CI file.
func ci(t *testing.T, folder string) string {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(folder, ".github", "workflows", "test.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, m := range regexp.MustCompile(`(?m)^ +- run: (.+)$`).FindAllSubmatch(file, -1) {
		lines = append(lines, string(m[1]))
	}
	if len(lines) == 0 {
		t.Errorf("its CI file runs nothing:\n%s", file)
	}
	return strings.Join(lines, "\n")
}

// Other commands that a page names exist, with these flags.
func TestThePagesOfAuthorsNameCommandsThatExist(t *testing.T) {
	t.Parallel()
	a := newAuthor(t)
	span := regexp.MustCompile("`(recipe [^`]+)`")
	flags := regexp.MustCompile(`--[a-z-]+|\s-[a-z]\b`)
	helps := map[string]string{}
	for name, page := range pages(t) {
		for _, m := range span.FindAllStringSubmatch(page, -1) {
			command := subcommand(m[1])
			if _, ok := helps[command]; !ok {
				helps[command] = a.run(a.dir, append(strings.Fields(command), "--help")...)
			}
			if !strings.Contains(helps[command], "Usage:\n  "+command) {
				t.Errorf("%s names %q, which is not a command", name, m[1])
			}
			for _, flag := range flags.FindAllString(m[1], -1) {
				if !strings.Contains(helps[command], strings.TrimSpace(flag)) {
					t.Errorf("%s: %q: %s has no flag %s", name, m[1], command, flag)
				}
			}
		}
	}
	if len(helps) < 5 {
		t.Errorf("the pages name %d commands; expected more", len(helps))
	}
}

// subcommand is a command line without arguments and flags: the names of commands have lower-case letters only, and no
// command with an argument is a group of commands.
func subcommand(line string) string {
	words := strings.Fields(line)
	n := 1
	groups := map[string]bool{"recipe": true, "plugin": true, "module": true, "env": true}
	for n < len(words) && groups[words[n-1]] && !strings.HasPrefix(words[n], "-") {
		n++
	}
	return strings.Join(words[:n], " ")
}

// pages are the texts of docs/authors by name.
func pages(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(repository, "docs", "authors", "*.md"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("pages: %v, %v", paths, err)
	}
	found := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found[filepath.Base(path)] = string(text)
	}
	return found
}

// commandsOf are the commands in a text's blocks that are marked sh. A block without a mark must not begin with one:
// it would not be run.
func commandsOf(t *testing.T, text string) string {
	t.Helper()
	var commands []string
	block, inside := "", false
	for _, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			block, inside = strings.TrimPrefix(line, "```"), !inside
		case inside && block == "sh":
			commands = append(commands, line)
		case inside && regexp.MustCompile(`^(\$ )?(recipe|go|cd|make|git) [a-z]`).MatchString(line) && block != "text":
			t.Errorf("a command outside of a block that is marked sh: %s", line)
		}
	}
	return strings.Join(commands, "\n")
}
