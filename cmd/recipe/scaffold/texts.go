package scaffold

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/recipe-rl/recipe/sdk/kind"
)

// What the README and the CI file of a module say. The templates ask for these by name.

// IsGo reports whether the module is a Go module: a trainer in Python has a Go program that starts it.
func (p Plugin) IsGo() bool { return !(p.Kind == kind.Environment && p.Language == "python") }

// Released reports whether the module requires a released version of recipe.
func (p Plugin) Released() bool { return p.Version != "" && p.SDK == "" }

// Build are the commands that build the plugin, a line each.
func (p Plugin) Build() string {
	if !p.IsGo() {
		return ""
	}
	lines := "go mod tidy\n"
	if p.Version == "" {
		lines = "go get github.com/recipe-rl/recipe@latest\n" + lines
	}
	lines += fmt.Sprintf("go build -o bin/%s .\n", p.Name)
	if p.Kind == kind.Trainer && p.Language == "python" {
		lines += fmt.Sprintf("recipe init %s.hcl\n", p.Name)
	}
	return lines
}

// Test is the command that runs the plugin's own tests.
func (p Plugin) Test() string {
	if p.IsGo() {
		return "go test ./..."
	}
	return "python3 -m pytest"
}

// Comply is the command that runs the compliance suite.
func (p Plugin) Comply() string {
	path := "bin/" + p.Name
	if !p.IsGo() {
		path = p.Identifier() + ".py"
	}
	return fmt.Sprintf("recipe plugin test %s -r %s.hcl", path, p.Name)
}

// Source is the file in which authors write.
func (p Plugin) Source() string {
	switch {
	case !p.IsGo():
		return "`" + p.Identifier() + ".py`"
	case p.Language == "python":
		return "`trainer.py`"
	case p.Kind == kind.Inference:
		return "`main.go` and `server.go`"
	}
	return "`main.go`"
}

// Repository is where recipe's sources are.
const Repository = "https://github.com/recipe-rl/recipe"

// PythonSDK is what pip installs to have recipe_sdk outside of recipe, in tests and editors.
func (p Plugin) PythonSDK() string {
	switch {
	case p.SDK != "":
		return filepath.Join(p.SDK, "sdk", "python")
	case p.Released():
		return `"recipe-sdk @ git+` + Repository + "@" + p.Version + `#subdirectory=sdk/python"`
	}
	return `"recipe-sdk @ git+` + Repository + `#subdirectory=sdk/python"`
}

// CI are the commands that CI runs. Without a released version it builds recipe from its sources.
func (p Plugin) CI() []string {
	const sources = `"$RUNNER_TEMP/recipe"`
	var lines []string
	if p.Released() {
		lines = append(lines, "go install github.com/recipe-rl/recipe/cmd/recipe@"+p.Version)
	} else {
		lines = append(lines, "git clone --depth 1 "+Repository+" "+sources,
			"make -C "+sources+` build && echo "$RUNNER_TEMP/recipe/bin" >> "$GITHUB_PATH"`)
	}
	switch {
	case !p.IsGo() && p.Released():
		lines = append(lines, "pip install pytest "+p.PythonSDK())
	case !p.IsGo():
		lines = append(lines, `pip install pytest "$RUNNER_TEMP/recipe/sdk/python"`)
	default:
		if p.Language == "python" {
			lines = append(lines, "pip install -r requirements.txt")
		}
		if !p.Released() {
			lines = append(lines, "go mod edit -require github.com/recipe-rl/recipe@v0.0.0 "+
				"-replace github.com/recipe-rl/recipe="+sources)
		}
		lines = append(lines, "go mod tidy", "go build -o bin/"+p.Name+" .")
	}
	return append(lines, p.Test(), p.Comply()+" --junit report.xml")
}

// Needs is what the recipe needs beyond the program; empty: nothing.
func (p Plugin) Needs() string {
	if p.Kind == kind.Trainer && p.Language == "python" {
		return "The recipe serves and trains a small Hugging Face model, so it needs a Python with the packages of\n" +
			"`requirements.txt` and one with vLLM: `recipe init " + p.Name + ".hcl` makes both. The plugin's test needs the first\n" +
			"alone: `pip install -r requirements.txt`."
	}
	return ""
}

// File is a row of the README's table.
type File struct{ Name, Text string }

// Files are the files that a reader asks about.
func (p Plugin) Files() []File {
	list := []File{{p.Name + ".hcl", "a recipe that trains with the plugin"}}
	switch {
	case !p.IsGo():
		list = append(list, File{p.Identifier() + ".py", "the environment"},
			File{"test_" + p.Identifier() + ".py", "its tests"})
	case p.Language == "python":
		list = append(list, File{"trainer.py", "the learning, on `recipe_sdk`"},
			File{"main.go", "the block: its attributes, and the start of `trainer.py`, which is embedded in the program"},
			File{"main_test.go", "the compliance suite, with a small random model"},
			File{"requirements.in", "Python packages that `trainer.py` imports"},
			File{"requirements.txt", "the same, locked before the plugin is published; embedded in the program"})
	default:
		list = append(list, File{"main.go", "the plugin"}, File{"main_test.go", "its tests"})
	}
	if p.Kind == kind.Inference {
		list = append(list, File{"server.go", "a server program that serves a tiny model: put yours in its place"})
	}
	if p.Kind == kind.Trajectories {
		list = append(list, File{"store.go", "the groups that wait, in memory: put your own store there"})
	}
	if p.Kind == kind.Environment {
		list = append(list, File{"tasks.tsv", "the tasks: prompt, tab, right answer"})
	}
	return append(list, File{".github/workflows/test.yml", "CI: build, tests, compliance suite"})
}

// Camel is the name as a class is called.
func (p Plugin) Camel() string {
	parts := strings.FieldsFunc(p.Name, func(r rune) bool { return r == '-' || r == '_' })
	for i, part := range parts {
		parts[i] = strings.ToUpper(part[:1]) + part[1:]
	}
	return strings.Join(parts, "")
}
