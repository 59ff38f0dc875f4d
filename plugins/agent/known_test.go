package agent

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
)

var update = flag.Bool("update", false, "write the golden file anew")

const odd = `- fix "a" in $HOME; say {env:HOME}`

// Each known agent is started for a task as testdata/known.txt has it: arguments, variables, files.
func TestKnownAgents(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, k := range Agents() {
		dir := t.TempDir()
		p := &place{dir}
		l := launcher{argv: []string{"/bin/" + k.Program}, agent: &k, args: []string{"--more=${task.id}"},
			instruction: "${task.instruction}", model: `org/model "7b"`, env: map[string]string{"KEPT": "1", "HOME": "/own",
				"DISABLE_AUTOUPDATER": "0"}, own: map[string]string{"DISABLE_AUTOUPDATER": "0"}}
		one := &task{members: map[string]json.RawMessage{"id": json.RawMessage("7")}}
		one.members["instruction"], _ = json.Marshal(odd)
		argv, env, err := l.command(p, p, one, "http://127.0.0.1:1/v1", "the-key", nil)
		if err != nil {
			t.Fatal(err)
		}
		show := func(text string) string { return strings.ReplaceAll(text, dir, "DIR") }
		fmt.Fprintf(&b, "== %s\n", k.Name)
		for _, argument := range argv {
			fmt.Fprintf(&b, "argument %s\n", show(argument))
		}
		for _, name := range slices.Sorted(maps.Keys(env)) {
			fmt.Fprintf(&b, "%s=%s\n", name, show(env[name]))
		}
		for _, name := range walk(t, p.home()) {
			text, err := os.ReadFile(filepath.Join(p.home(), name))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "the-key") {
				t.Errorf("%s: the key is in the file %s", k.Name, name)
			}
			if strings.HasSuffix(name, ".py") {
				text = []byte("(embedded)\n")
			}
			fmt.Fprintf(&b, "file home/%s\n%s", name, show(string(text)))
		}
		if strings.Contains(strings.Join(argv, " "), "the-key") {
			t.Errorf("%s: the key is in an argument, where every user of the machine sees it", k.Name)
		}
		if _, read := env[k.BaseURL]; !read || env[k.Key] != "the-key" {
			t.Errorf("%s reads %s and %s, which it does not get", k.Name, k.BaseURL, k.Key)
		}
	}
	golden := filepath.Join("testdata", "known.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || string(want) != b.String() {
		t.Errorf("known agents are started otherwise than %s has it (%v); -update writes it anew:\n%s", golden, err,
			b.String())
	}
}

// walk lists the files of a folder.
func walk(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			name, _ := filepath.Rel(dir, path)
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// The schema names the agents of the table, and make test-agents installs the versions that the table has.
func TestTheTableIsWhatIsTested(t *testing.T) {
	t.Parallel()
	var names []string
	for _, k := range Agents() {
		names = append(names, k.Name)
		if older(k.Before, k.Tried) || older(k.Tried, k.From) || k.Prompt <= 0 {
			t.Errorf("%s: from %s, tried %s, before %s, prompt %d", k.Name, k.From, k.Tried, k.Before, k.Prompt)
		}
	}
	if has := Plugin().Schema.Attribute("agent").Enum; !slices.Equal(has, names) {
		t.Errorf("the attribute agent takes %q, the table has %q", has, names)
	}
	var node struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	text, err := os.ReadFile("../../scripts/node/agents/package.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &node); err != nil {
		t.Fatal(err)
	}
	pins, err := os.ReadFile("../../scripts/python/agents.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(pins), "\n")
	for _, k := range Agents() {
		if name, npm := strings.CutPrefix(k.Install, "npm install -g "); npm {
			if node.Dependencies[name] != k.Tried {
				t.Errorf("%s: the table has %s, scripts/node/agents/package.json %s %q", k.Name, k.Tried, name,
					node.Dependencies[name])
			}
			continue
		}
		_, requirement, _ := strings.Cut(k.Install, `"`)
		requirement, _, _ = strings.Cut(requirement, `"`)
		if !strings.HasSuffix(requirement, "=="+k.Tried) || !slices.Contains(lines, requirement) {
			t.Errorf("%s: %q with version %s is no line of scripts/python/agents.txt", k.Name, requirement, k.Tried)
		}
	}
}

func TestVersionsOfAgents(t *testing.T) {
	t.Parallel()
	k := Known{Name: "x", From: "2.4.6", Tried: "2.4.9", Before: "2.5"}
	for version, want := range map[string]string{"2.4.6": "", "2.4.10": "", "2.4.5": "older", "2.5.0": "newer",
		"2.5": "newer", "10.0": "newer", "1.99.1": "older"} {
		if got := k.Warning(version); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("version %s: %q, want %q", version, got, want)
		}
	}
}

// A program is asked for its version in an empty folder, with the variables of a rollout. One that fails, prints none
// or is not there is an error that tells what to do. Not parallel: it changes the folder of the process.
func TestFindAnAgent(t *testing.T) {
	k, ok := Program{Agent: new("claude-code")}.known()
	if !ok {
		t.Fatal("no claude-code")
	}
	missing := func(string) (string, error) { return "", exec.ErrNotFound }
	var explained *sdk.Error
	if _, err := k.Find(missing, ""); !errors.As(err, &explained) || explained.Remedy != "install it: "+k.Install {
		t.Errorf("%v, want how it is installed", err)
	}
	for script, want := range map[string]string{
		`[ "$1" = --version ] && [ -z "$(ls -A)" ] && [ "$HOME" = "$PWD" ] && echo "2.1.200 (Claude Code)"`: "2.1.200",
		"exit 3":   "read the version of",
		"echo hi":  `there is none in its output "hi"`,
		"exec yes": "more than 1048576 bytes",
		"sleep 60": "no answer",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "claude"), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		// Beside the block's interpreter, whose path is relative where the recipe's is.
		t.Chdir(filepath.Dir(dir))
		program, err := k.Find(missing, filepath.Join(filepath.Base(dir), "python"))
		if err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		if script == "sleep 60" {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 1)
			defer cancel()
		}
		version, err := k.Version(ctx, program, []string{"PATH=" + os.Getenv("PATH")})
		if version != want && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %q, %v; want %q", script, version, err, want)
		}
	}
}

// A block has one program: a known agent or a command.
func TestABlockHasOneProgram(t *testing.T) {
	t.Parallel()
	claude := "claude-code"
	for want, c := range map[string]Program{
		"agent and command are both set": {Agent: &claude, Command: []string{"x"}},
		"no program":                     {},
		"agent_args without agent":       {Command: []string{"x"}, AgentArgs: []string{"--bare"}},
		"instruction without agent":      {Command: []string{"x"}, Instruction: "${task.prompt}"},
		"":                               {Agent: &claude, AgentArgs: []string{"--bare"}, Instruction: "${task.prompt}"},
	} {
		var got []string
		for _, p := range c.problems(nil) {
			got = append(got, p.Summary)
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
	}
	if tokens, of := (Program{Agent: &claude}).LeastPrompt(); tokens < 10000 || of != claude {
		t.Errorf("least prompt %d of %q", tokens, of)
	}
	if tokens, _ := (Program{Command: []string{"x"}}).LeastPrompt(); tokens != 0 {
		t.Errorf("least prompt %d of a command, which is not known", tokens)
	}
}

// What an agent is asked must be in each task, and fit an argument.
func TestTasksOfAnAgent(t *testing.T) {
	t.Parallel()
	dir, claude := t.TempDir(), "claude-code"
	if err := os.WriteFile(filepath.Join(dir, "tasks.jsonl"), []byte(`{"prompt": "x"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]Program{
		`tasks.jsonl:1: no program can be started with it: instruction uses the member "instruction", which the task `: {},
		"": {Instruction: "Do: ${task.prompt}"},
		`element 2 of agent_args uses the member "id"`: {Instruction: "${task.prompt}",
			AgentArgs: []string{"--a", "${task.id}"}},
	} {
		c.Agent = &claude
		_, err := readTasks(Config{Program: c, Tasks: "tasks.jsonl"}, dir)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// The tool of the agents that are libraries: what a command prints, its exit code, and no wait for what it has left.
func TestTheShellOfAgents(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	const program = `import os, sys
import recipe_shell
recipe_shell.SECONDS = 1
assert recipe_shell.bash("echo a; echo b >&2; exit 3") == "a\nb\n\n[exit code 3]"
assert recipe_shell.bash("read x; echo $x") == "\n\n[exit code 0]"
assert recipe_shell.bash("setsid sleep 5 & echo c") == "c\n\n[exit code 0]"
assert recipe_shell.bash("echo d; sleep 30").endswith("d\n\n[ended after 1 seconds]")
text = recipe_shell.bash("yes | head -c 100000; printf '\\377'")
assert len(text) < 17000 and text.endswith("[cut]\n[exit code 0]"), text[-50:]
sys.argv = ["x", "--system", "s", "--", "-1 + 8"]
asked = recipe_shell.arguments()
assert (asked.system, asked.instruction) == ("s", "-1 + 8")
`
	cmd := exec.CommandContext(t.Context(), python, "-c", program)
	cmd.Env = append(os.Environ(), "PYTHONPATH=programs", "PYTHONDONTWRITEBYTECODE=1")
	cmd.WaitDelay = 1
	if out, err := cmd.CombinedOutput(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		t.Errorf("%v: %s", err, out)
	}
}
