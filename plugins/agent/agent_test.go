package agent

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kit/sandbox"
	"github.com/recipe-rl/recipe/sdk/kit/sandbox/inside"
	"github.com/recipe-rl/recipe/sdk/kit/script/scripttest"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

func TestMain(m *testing.M) {
	inside.Main()
	if err := os.Unsetenv("VIRTUAL_ENV"); err != nil {
		panic(err)
	}
	if err := os.Setenv("PLUGIN_MIN_PORT", "10000"); err != nil { // as it is in a plugin's process
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// loop is a program that knows nothing of training: it asks as often as its task says.
const loop = `
import json, os, sys, urllib.request

def ask(messages):
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": os.environ["OPENAI_MODEL"], "messages": messages, "max_tokens": 4}).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]

messages = [{"role": "user", "content": sys.argv[1]}]
for turn in range(int(sys.argv[2])):
    messages.append(ask(messages))
    messages.append({"role": "user", "content": f"turn {turn}"})
with open("answer.txt", "w") as out:
    out.write(messages[-2]["content"])
`

const reward = `
def score(task, folder, transcript, exit_code, metrics):
    text = (folder / "answer.txt").read_text()
    assert exit_code == 0 and transcript[-1]["content"] == text, (exit_code, transcript)
    assert metrics["calls"] == task["turns"], metrics
    return sum(map(ord, text)) / 100, {"letters": len(text)}
`

// folder is a recipe's folder with the loop, tasks and rewards.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"loop.py": loop, "reward.py": reward,
		"tasks.jsonl": strings.Repeat(`{"instruction": "say a; \"$HOME\"", "turns": 3}`+"\n", 8)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// config is a block over a fake inference block and a fake trajectory API.
func config(t *testing.T) (Config, *plugintest.Trajectories) {
	t.Helper()
	api := plugintest.FakeTrajectories(t, 16)
	server := plugintest.Harness(t, plugintest.FakeInference())
	server.Start(plugintest.FakeConfig{})
	server.Ready()
	book := api.Reference()
	return Config{
		Settings: environment.Settings{Inference: server.Reference(), Trajectories: &book, GroupSize: 2, MaxTokens: 4,
			Temperature: 1, TopP: 1, Concurrency: 2, MaxBatchesOffpolicy: 1, RequestTimeout: time.Minute,
			ScoreTimeout: time.Minute},
		SessionSettings: environment.SessionSettings{RolloutAttempts: 2,
			Budget: environment.BudgetSettings{Turns: 8, Seconds: 60}},
		Program: Program{Command: []string{"python", "loop.py", "${task.instruction}", "${task.turns}"},
			Sandbox: sandboxed("none"), EvalTasks: 2, Programs: 4, Keep: "none"},
		Tasks: "tasks.jsonl", Reward: "reward.py:score",
	}, api
}

// sandboxed are the settings of a sandbox.
func sandboxed(kind string) Sandbox {
	return Sandbox{Kind: kind, Network: []string{}, Paths: []string{}, Memory: 2, Tmp: 0.0625, FileSize: 0.0625, Disk: 1,
		Processes: 256, OpenFiles: 1024}
}

func TestCompliance(t *testing.T) {
	dir, python := folder(t), scripttest.Python(t, "atropos")
	plugintest.Compliance(t, Plugin(), plugintest.Suite{
		Config:  func(t *testing.T) any { c, _ := config(t); return c },
		Groups:  func(t *testing.T) (any, *plugintest.Trajectories) { c, api := config(t); return c, api },
		Options: []plugintest.Option{in(dir), scripttest.With(python)},
		Bad: map[string]func(t *testing.T) any{
			"a program that is not there": func(t *testing.T) any {
				c, _ := config(t)
				c.Command[0] = "pyhton"
				return c
			},
			"an agent that is not installed": func(t *testing.T) any {
				c, _ := config(t)
				c.Agent, c.Command = new("smolagents"), nil
				return c
			},
			"a member that no task has": func(t *testing.T) any {
				c, _ := config(t)
				c.Command[2] = "${task.prompt}"
				return c
			},
		},
	})
}

func in(dir string) plugintest.Option {
	return func(r *pluginpb.StartRequest) { r.RecipeDir = dir }
}

// ask is the beginning of a program: a function that asks the model.
var ask, _, _ = strings.Cut(loop, "\nmessages = ")

// What a program does decides what is trained, and why not.
func TestRollouts(t *testing.T) {
	t.Parallel()
	python := scripttest.Python(t, "atropos")
	for name, c := range map[string]struct {
		program, reward string
		change          func(*Config)
		metrics         map[string]float64 // of each rollout
		parts           int                // sequences of each rollout; 0: the trainer takes one
		lost            string             // why groups are left out; empty: they are posted
		kept            int                // folders that stay, at least
	}{
		"its time is over": {
			program: ask + "ask([{'role': 'user', 'content': 'a'}])\nimport subprocess\nsubprocess.run(['sleep', '300'])\n",
			reward:  "def score(exit_code, metrics): return {None: metrics['truncated']}[exit_code]\n",
			change:  func(c *Config) { c.Budget.Seconds = 2 },
			metrics: map[string]float64{"calls": 1, "truncated": 1},
		},
		"its turns are over": {
			program: ask + "import urllib.error\ntry:\n    for i in range(9): ask([{'role': 'user', 'content': str(i)}])\n" +
				"except urllib.error.HTTPError as e:\n    assert e.code == 400\n",
			reward:  "def score(exit_code): return exit_code\n",
			change:  func(c *Config) { c.Budget.Turns = 2 },
			metrics: map[string]float64{"calls": 2, "sequences": 2, "untrained_tokens": 4, "truncated": 1},
		},
		"it changes what was said": {
			program: ask + "said = [{'role': 'user', 'content': 'a'}]\nsaid += [ask(said), {'role': 'user', 'content': 'b'}]\n" +
				"ask(said)\nask([{'role': 'user', 'content': 'shorter'}, *said[1:]])\n",
			reward:  "async def score(transcript): return len(transcript)\n",
			metrics: map[string]float64{"calls": 3, "sequences": 2, "untrained_tokens": 4},
		},
		"it changes what was said, and all is trained": {
			program: ask + "said = [{'role': 'user', 'content': 'a'}]\nsaid += [ask(said), {'role': 'user', 'content': 'b'}]\n" +
				"ask(said)\nask([{'role': 'user', 'content': 'shorter'}, *said[1:]])\n",
			reward:  "def score(transcript): return len(transcript)\n",
			metrics: map[string]float64{"calls": 3, "sequences": 2, "untrained_tokens": 0},
			parts:   2,
		},
		"it puts a pipe in place of its log": {
			program: ask + "assert 'PLUGIN_MIN_PORT' not in os.environ\nask([{'role': 'user', 'content': 'a'}])\n" +
				"os.remove('../agent.log')\nos.mkfifo('../agent.log')\n",
			reward:  "def score(exit_code): return exit_code\n",
			metrics: map[string]float64{"calls": 1},
		},
		"it asks nothing": {
			program: "import sys\nprint('no key')\nsys.exit(3)\n",
			reward:  "def score(): return 0\n",
			lost:    "the program ended with exit code 3; its last lines: no key",
		},
		"its prompt does not fit": {
			program: ask + "ask([{'role': 'user', 'content': 'a' * 5000}])\n",
			reward:  "def score(): return 0\n",
			lost:    "it reached a limit: context: the prompt has 5014 of 4096 tokens",
		},
		"its reward fails": {
			program: ask + "ask([{'role': 'user', 'content': 'a'}])\nopen('left.txt', 'w').close()\n",
			reward:  "def score(folder): return {}[(folder / 'left.txt').exists()]\n",
			change:  func(c *Config) { c.Keep = "failed" },
			lost:    "reward.py:1: KeyError: True",
			kept:    2,
		},
		"its reward looks for a file": {
			program: ask + "ask([{'role': 'user', 'content': 'a'}])\n",
			reward:  "def score(folder): return float((folder / 'x').read_text())\n",
			lost:    "reward.py:1: FileNotFoundError: [Errno 2] No such file or directory: 'FOLDER/x' (",
		},
		"its reward is no number": {
			program: ask + "ask([{'role': 'user', 'content': 'a'}])\n",
			reward:  "def score(task): return str(task['turns'])\n",
			lost:    "score returned '3'; expected a number, or a number and a dict of metrics",
		},
	} {
		for _, kind := range []string{"none", "auto"} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				dir := folder(t)
				for file, text := range map[string]string{"loop.py": c.program, "reward.py": c.reward} {
					if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				config, api := config(t)
				if config.Sandbox.Kind = kind; kind == "auto" {
					if strings.Contains(c.program, "agent.log") {
						t.Skip("its log is not in its sandbox")
					}
					needsSandbox(t)
				}
				config.RolloutAttempts = 1
				if c.parts > 0 {
					api.TakeParts()
				}
				if c.change != nil {
					c.change(&config)
				}
				b := plugintest.Harness(t, Plugin())
				b.Start(config, in(dir), scripttest.With(python))
				if c.lost != "" {
					b.Wait("a group that is left out", func(e *pluginpb.Event) bool {
						return strings.Contains(e.GetLog().GetMessage(), c.lost)
					})
				} else {
					g := api.Wait(1)[0]
					plugintest.CheckGroup(t, g)
					checkParts(t, g, max(1, c.parts))
					for i := 0; i < len(g.Scores); i += max(1, c.parts) {
						got, _ := g.Overrides[i][trajectory.OverrideMetrics].(map[string]any)
						for name, want := range c.metrics {
							if got[name] != want {
								t.Errorf("rollout %d: metrics %v, want %s = %v", i, got, name, want)
							}
						}
					}
				}
				block := b.Request(config).Dir
				if err := b.Stop(5 * time.Second); err != nil {
					t.Fatal(err)
				}
				left, _ := filepath.Glob(filepath.Join(block, "rollouts", running, "*"))
				kept, _ := filepath.Glob(filepath.Join(block, "rollouts", kept, "*"))
				if len(left) > 0 || len(kept) < c.kept || c.kept == 0 && len(kept) > 0 {
					t.Errorf("folders of rollouts: %q, kept: %d, want none and %d", left, len(kept), c.kept)
				}
				if left := marked(t, filepath.Join(block, "rollouts")); len(left) > 0 {
					t.Errorf("processes %v are left", left)
				}
			})
		}
	}
}

// needsSandbox skips a test where no sandbox can be made.
func needsSandbox(t *testing.T) {
	t.Helper()
	if _, err := sandbox.Probe(t.Context(), exec.LookPath); err != nil {
		t.Skip(err)
	}
}

// checkParts wants rollouts of so many sequences each, which train no token twice.
func checkParts(t *testing.T, g trajectory.Group, parts int) {
	t.Helper()
	const rollouts = 2 // the block's group_size
	if len(g.Tokens) != rollouts*parts {
		t.Fatalf("%d sequences, want %d rollouts of %d", len(g.Tokens), rollouts, parts)
	}
	if parts == 1 {
		return
	}
	for i := range g.Tokens {
		if got := g.Overrides[i][trajectory.OverrideRollout]; got != float64(i/parts) {
			t.Errorf("sequence %d is a part of rollout %v, want %d", i, got, i/parts)
		}
		if g.Scores[i] != g.Scores[i/parts*parts] {
			t.Errorf("scores %v, want one a rollout", g.Scores)
		}
	}
}

// marked are the processes that carry the mark of a block's programs.
func marked(t *testing.T, folder string) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err == nil && strings.Contains("\x00"+string(text), "\x00"+mark(folder)+"\x00") {
			found = append(found, filepath.Dir(path))
		}
	}
	return found
}

// What an earlier life of the block has left running is ended when it is opened again, with its folders.
func TestTheNextLifeEndsPrograms(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.MkdirAll(filepath.Join(folder, running, "line-1-old"), 0o700); err != nil {
		t.Fatal(err)
	}
	left := exec.CommandContext(t.Context(), "sleep", "300")
	left.Env = append(os.Environ(), mark(folder))
	left.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	if err := (&runner{folder: folder}).clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := left.Wait(); err == nil {
		t.Error("the program was not ended")
	}
	if entries, _ := os.ReadDir(filepath.Join(folder, running)); len(entries) > 0 {
		t.Errorf("folders are left: %v", entries)
	}
}

func TestMembersOfTheTask(t *testing.T) {
	t.Parallel()
	one := &task{members: map[string]json.RawMessage{"text": json.RawMessage(`"a \"b\" $HOME"`),
		"list": json.RawMessage(`[1, {"a": 2}]`), "null": json.RawMessage(`null`),
		"member": json.RawMessage(`"${task.text}"`)}}
	for argument, want := range map[string]struct{ filled, missing string }{
		"${task.text}":          {`a "b" $HOME`, ""},
		"--x=${task.list}":      {`--x=[1, {"a": 2}]`, ""},
		"${task.no}${task.nor}": {"", "no"},
		"${task.null}":          {"null", ""},
		"${task.member}":        {"${task.text}", ""}, // what a task holds is no expression
		"$task.text":            {"$task.text", ""},
		"${task.te xt}":         {"${task.te xt}", ""},
	} {
		filled, missing := one.fill(argument)
		if filled != want.filled || missing != want.missing {
			t.Errorf("%s: %q, missing %q; want %+v", argument, filled, missing, want)
		}
	}
}

// A task that no program can be started with is found when the tasks are read.
func TestTasksThatFitNoArgument(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ line, want string }{
		"a NUL character": {`{"a": "x\u0000y"}`, "NUL character"},
		"a long text":     {`{"a": "` + strings.Repeat("x", 128<<10) + `"}`, "131072 bytes"},
		"no member":       {`{"b": 1}`, `the member "a"`},
		"a list":          {`[1]`, "JSON object"},
		"null":            {`null`, "JSON object"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "tasks.jsonl"), []byte("{\"a\": 1}\n"+c.line), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readTasks(Config{Program: Program{Command: []string{"x", "${task.a}"}},
			Tasks: "tasks.jsonl"}, dir)
		if err == nil || !strings.Contains(err.Error(), "tasks.jsonl:2: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want line 2 and %q", name, err, c.want)
		}
	}
}
