package scaffold_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// needsMore are the commands of tutorials that no test runs here, by page, and why. TestCommandsOfPagesExist still
// reads their flags.
var needsMore = map[string]map[string]string{
	"gpu.md": {
		"recipe init sums.hcl":                    "installs vLLM, several GB",
		"recipe doctor sums.hcl":                  "fails without a GPU",
		"recipe apply --detach sums.hcl":          "needs a GPU",
		"recipe status --watch":                   "needs the run",
		"recipe output checkpoint":                "needs the run",
		"recipe evaluate environment.reward.sums": "needs the run",
	},
	"trl.md": {
		"recipe init words.hcl":  "installs TRL and vLLM, several GB",
		"recipe apply words.hcl": "needs a GPU",
	},
}

// TestTutorialsAreRun runs the commands of README and of each page of docs/tutorials, in one shell and an empty folder.
// The cluster of slurm.md is a stand-in that runs jobs on this machine; TestSlurmQuickstart of e2e does the same on a
// real one.
//
//docs:tutorials/cpu.md every command works as the page has it
//docs:tutorials/environment.md every command works, and the reward rises
//docs:tutorials/gpu.md what needs no GPU works as the page has it
//docs:tutorials/slurm.md every command works, on a stand-in for Slurm's commands
//docs:tutorials/trl.md what needs no GPU works as the page has it
func TestTutorialsAreRun(t *testing.T) {
	t.Parallel()
	needsPython(t)
	paths, err := filepath.Glob(filepath.Join(repository, "docs", "tutorials", "*.md"))
	if err != nil || len(paths) < 5 {
		t.Fatal(paths, err)
	}
	for _, path := range append(paths, filepath.Join(repository, "README.md")) {
		name := filepath.Base(path)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text := string(page)
			if name == "README.md" {
				_, text, _ = strings.Cut(text, "**Install**") // before it are make demo and make test
			}
			commands := commandsOf(t, text)
			for command, reason := range needsMore[name] {
				line := "\n" + command + "\n"
				if !strings.Contains("\n"+commands+"\n", line) {
					t.Errorf("%s does not have the command %q any more", name, command)
				}
				commands = strings.Replace("\n"+commands+"\n", line, "\n: not run, it "+reason+"\n", 1)
			}
			a := newAuthor(t)
			if name == "slurm.md" {
				a.onSlurm()
			}
			out := a.follow(a.dir, commands)
			if name == "environment.md" {
				a.rises(out)
			}
		})
	}
}

// onSlurm puts the stand-in for Slurm's commands of a script into PATH.
func (a *author) onSlurm() {
	a.t.Helper()
	script, err := txtar.ParseFile(filepath.Join(repository, "cmd", "recipe", "testdata", "script", "slurm.txtar"))
	if err != nil {
		a.t.Fatal(err)
	}
	bin, queue := a.t.TempDir(), a.t.TempDir()
	for _, f := range script.Files {
		if name, ok := strings.CutPrefix(f.Name, "bin/"); ok {
			if err := os.WriteFile(filepath.Join(bin, name), f.Data, 0o700); err != nil { //nolint:gosec // a program
				a.t.Fatal(err)
			}
		}
	}
	a.environ = append(a.environ, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "SLURM_QUEUE="+queue)
}
