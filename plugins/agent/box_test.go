package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/script/scripttest"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// looks is a program that looks for what it must not see. Its argument is the recipe's folder.
const looks = `
import helper
recipe, home = sys.argv[1:]
ask([{"role": "user", "content": "a"}])
seen = sorted(set(os.listdir(recipe)) - {"__pycache__"})  # Python's own, of the import above
assert seen == ["helper.py", "loop.py", "shown.txt"], seen
assert open(recipe + "/shown.txt").read() == "shown"
assert os.getcwd() == os.environ["PWD"] == "/rollout/work" and os.listdir() == [], (os.getcwd(), os.environ["PWD"])
assert os.path.expanduser("~") == "/rollout/home" and not os.path.exists(home + "/.bashrc")
assert json.load(open(os.environ["RECIPE_TASK"]))["turns"] == 3
assert sorted(os.listdir("/rollout")) == ["home", "task.json", "work"], os.listdir("/rollout")
assert len([n for n in os.listdir("/proc") if n.isdigit()]) < 5
keys = [n for n in os.listdir("/proc") if n.isdigit() and int(n) != os.getpid()]
for n in keys:
    try:
        assert b"API_KEY" not in open(f"/proc/{n}/environ", "rb").read()
    except PermissionError:
        pass
os.symlink(recipe + "/tasks.jsonl", "answer.txt")
import subprocess
subprocess.Popen(["env", "-i", "setsid", "sleep", "86398.5"], start_new_session=True)
with open("/tmp/x", "w") as out:
    out.write("x" * 1000)
`

// What a program in a sandbox sees is its own folder, its files and what the block shows; nothing of it is left.
//
//docs:environments/agent.md what a program in a sandbox sees, and what it leaves
func TestAProgramInASandbox(t *testing.T) {
	t.Parallel()
	needsSandbox(t)
	python := scripttest.Python(t, "atropos")
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		program, reward string
		change          func(*Config)
	}{
		"it looks around": {program: ask + looks,
			reward: "import os\ndef score(folder, exit_code):\n    assert not os.path.lexists(folder / 'answer.txt')\n" +
				"    return {0: 1.0}[exit_code]\n"},
		"the answers are in its package": {
			program: ask + "import lib.tools\nask([{'role': 'user', 'content': 'a'}])\n" +
				"assert 'answer' not in json.load(open(os.environ['RECIPE_TASK']))\n" +
				"for name in ('tasks.jsonl', 'judge.py', '__pycache__/judge.x.pyc'):\n" +
				"    assert open(f'{sys.argv[1]}/lib/{name}').read() == '', name\n",
			reward: "",
			change: func(c *Config) { c.Tasks, c.Reward = "lib/tasks.jsonl", "lib.judge:score" },
		},
		"it starts too many": {
			program: ask + "ask([{'role': 'user', 'content': 'a'}])\nimport subprocess, time\n" +
				"for _ in range(60): subprocess.Popen(['sleep', '86397.5'])\ntime.sleep(60)\n",
			// The kernel refuses the processes, or, to root, the sandbox ends them.
			reward: "def score(exit_code): return {None: 1.0, 1: 1.0}[exit_code]\n",
			change: func(c *Config) { c.Sandbox.Processes = 20 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t)
			for file, text := range map[string]string{"loop.py": c.program, "reward.py": c.reward, "shown.txt": "shown",
				"helper.py": "", "other.py": "", "lib/__init__.py": "", "lib/tools.py": "",
				"lib/judge.py":                "def score(task, exit_code): return {0: task['answer']}[exit_code]\n",
				"lib/__pycache__/judge.x.pyc": "compiled",
				"lib/tasks.jsonl":             strings.Repeat(`{"answer": 1.0}`+"\n", 8)} {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			config, api := config(t)
			config.Command = []string{"python", "loop.py", dir, home}
			config.Sandbox = sandboxed("auto")
			config.Sandbox.Paths = []string{"shown.txt"}
			config.RolloutAttempts = 1
			if c.change != nil {
				c.change(&config)
			}
			b := plugintest.Harness(t, Plugin())
			b.Start(config, in(dir), scripttest.With(python))
			g := api.Wait(1)[0]
			plugintest.CheckGroup(t, g)
			for _, score := range g.Scores {
				if score != 1 {
					t.Errorf("scores %v", g.Scores)
				}
			}
			if err := b.Stop(5 * time.Second); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Cleanup(func() {
		for _, sleeps := range []string{"86398.5", "86397.5"} {
			if left := withArgument(t, sleeps); len(left) > 0 {
				t.Errorf("processes %v are left", left)
			}
		}
	})
}

// withArgument are the processes with a word among their arguments.
func withArgument(t *testing.T, word string) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range all {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), "\x00"+word+"\x00") {
			found = append(found, filepath.Dir(path))
		}
	}
	return found
}

// Where no sandbox can be made, the block fails and says what to install: nothing runs without one.
//
//docs:environments/agent.md without bubblewrap a block that does not say none fails
func TestWithoutASandboxNothingRuns(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, kind := range []string{"auto", "bubblewrap"} {
		_, err := openBox(t.Context(), &launcher{}, "", "", setting{Program: Program{Sandbox: sandboxed(kind)}})
		var explained *sdk.Error
		if !errors.As(err, &explained) || !explained.Final || !strings.Contains(explained.Remedy, "apt install bubblewrap") {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if b, err := openBox(t.Context(), &launcher{}, "", "", setting{
		Program: Program{Sandbox: sandboxed("none")}}); b != nil || err != nil {
		t.Errorf("none: %v, %v", b, err)
	}
}

func TestNetworkOfASandbox(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{"": 0, "*": 0, "pypi.org": 1} {
		s := sandboxed("auto")
		if name != "" {
			s.Network = []string{name}
		}
		if got := s.network(); len(got) != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}
