package agent

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/plugins/agent/taskfolder"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/sandbox"
	"github.com/recipe-rl/recipe/sdk/kit/script/scripttest"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// solved is a task folder that any agent solves which asks the model once.
func solved() map[string]string {
	return map[string]string{
		"task.toml":              "schema_version = \"1.4\"\n[task]\nname = \"tests/one\"\n",
		"instruction.md":         "Answer.\n",
		"environment/Dockerfile": "FROM scratch\nWORKDIR /app\nCOPY given.txt ./\n",
		"environment/given.txt":  "given",
		"tests/test.sh":          "echo 1 >/logs/verifier/reward.txt\n",
		"solution/solve.sh":      "true\n",
	}
}

// taskFolder writes a folder with one task folder, and a program beside it.
func taskFolder(t *testing.T, program string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	all := solved()
	maps.Copy(all, files)
	for name, text := range all {
		path := filepath.Join(dir, "tasks/one", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "loop.py"), []byte(ask+program), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// harborConfig is a block over a fake inference block and a fake trajectory API.
func harborConfig(t *testing.T) (HarborConfig, *plugintest.Trajectories) {
	t.Helper()
	c, api := config(t)
	out := HarborConfig{Settings: c.Settings, SessionSettings: c.SessionSettings, Program: c.Program, Tasks: "tasks",
		Skip: []string{}}
	out.Command = []string{"python", "loop.py", "${task.instruction}"}
	out.EvalTasks, out.Sandbox, out.RolloutAttempts = 0, sandboxed("bubblewrap"), 1
	return out, api
}

// twoSteps is a task whose first step has this in task.toml.
func twoSteps(first string) map[string]string {
	return map[string]string{
		"task.toml":                "[[steps]]\nname = \"one\"\n" + first + "[[steps]]\nname = \"two\"\n",
		"steps/one/instruction.md": "First.",
		"steps/two/instruction.md": "Then.",
		"steps/one/tests/test.sh":  `echo '{"reward": 1, "style": 1}' >/logs/verifier/reward.json`,
		"steps/two/tests/help.sh":  "echo 0.5",
		"tests/test.sh": "test \"$(cat said.txt more.txt set.txt)\" = First.Then.moreset && test -e /tests/help.sh && " +
			"sh /tests/help.sh >/logs/verifier/reward.txt\n",
		"steps/two/workdir/more.txt": "more",
		"steps/two/workdir/setup.sh": "echo set >set.txt\n",
	}
}

const asks = "ask([{'role': 'user', 'content': sys.argv[1]}])\n"

func TestHarborCompliance(t *testing.T) {
	needsSandbox(t)
	dir, python := taskFolder(t, asks, nil), scripttest.Python(t, "atropos")
	plugintest.Compliance(t, HarborPlugin(), plugintest.Suite{
		Config:  func(t *testing.T) any { c, _ := harborConfig(t); return c },
		Groups:  func(t *testing.T) (any, *plugintest.Trajectories) { c, api := harborConfig(t); return c, api },
		Options: []plugintest.Option{in(dir), scripttest.With(python)},
		Bad: map[string]func(t *testing.T) any{
			"a program that is not there": func(t *testing.T) any {
				c, _ := harborConfig(t)
				c.Command[0] = "pyhton"
				return c
			},
			"no sandbox": func(t *testing.T) any {
				c, _ := harborConfig(t)
				c.Sandbox.Kind = "none"
				return c
			},
			"a member that no task has": func(t *testing.T) any {
				c, _ := harborConfig(t)
				c.Command[2] = "${task.prompt}"
				return c
			},
			"all tasks held out": func(t *testing.T) any {
				c, _ := harborConfig(t)
				c.EvalTasks = 1
				return c
			},
		},
	})
}

// What the tests of a task find decides the reward, and an agent cannot get at them.
//
//docs:environments/harbor.md what a task's tests write is the reward
func TestHarborRollouts(t *testing.T) {
	t.Parallel()
	needsSandbox(t)
	python := scripttest.Python(t, "atropos")
	for name, c := range map[string]struct {
		program string
		files   map[string]string
		score   float64
		metrics map[string]float64
		lost    string // why groups are left out; empty: they are posted
	}{
		"a number": {
			program: asks + "open('answer.txt', 'w').write(open('given.txt').read())\n",
			files:   map[string]string{"tests/test.sh": "grep -q given answer.txt && echo 0.5 >/logs/verifier/reward.txt\n"},
			score:   0.5, metrics: map[string]float64{"calls": 1, "truncated": 0},
		},
		"JSON before text, with more numbers": {
			program: asks,
			files: map[string]string{"tests/test.sh": "echo 0.5 >/logs/verifier/reward.txt\n" +
				`echo '{"reward": -2, "lines": 3, "clean": true}' >/logs/verifier/reward.json; exit 3`},
			score: -2, metrics: map[string]float64{"lines": 3, "clean": 1},
		},
		"one number of another name": {
			program: asks,
			files:   map[string]string{"tests/test.sh": `echo '{"share": 0.25}' >/logs/verifier/reward.json`},
			score:   0.25, metrics: map[string]float64{"share": 0.25},
		},
		"no reward": {
			program: asks,
			files:   map[string]string{"tests/test.sh": "echo out of luck; exit 3\n"},
			lost: "the tests have written neither /logs/verifier/reward.json nor reward.txt (test.sh ended with exit " +
				"code 3; its last lines: out of luck)",
		},
		"no finite number": {
			program: asks,
			files:   map[string]string{"tests/test.sh": "echo nan >/logs/verifier/reward.txt\n"},
			lost:    `reward.txt has "nan"; expected a finite number`,
		},
		"the variables of the task": {
			program: "import os\nassert os.environ['A'] == 'b c' and os.environ['PATH'].startswith('/app/bin:/'), os.environ\n" +
				"assert os.environ['C'] == 'otherwise' and os.getcwd() == '/srv/work', os.getcwd()\n" + asks,
			files: map[string]string{
				"environment/Dockerfile": "FROM scratch\nENV A=\"b c\" PATH=/app/bin:$PATH\nWORKDIR /srv\nWORKDIR work\n",
				"task.toml":              "environment.env.C = \"${NOT_SET:-otherwise}\"\nverifier.env.D = \"d\"\n",
				"tests/test.sh": "test \"$A$C$D\" = 'b cotherwised' && test \"$PWD\" = /srv/work && test -z \"$OPENAI_API_KEY\" " +
					"&& echo 1 >/logs/verifier/reward.txt\n"},
			score: 1,
		},
		"the folder without a Dockerfile": {
			program: asks + "open('given.txt', 'a').write('!')\n",
			files: map[string]string{"environment/Dockerfile": "", "environment/sub/more.txt": "more",
				"tests/test.sh": "test \"$(cat given.txt sub/more.txt)\" = given!more && echo 1 >/logs/verifier/reward.txt\n"},
			score: 1,
		},
		"its time is over": {
			program: asks + "open('answer.txt', 'w').write('x')\nimport time\ntime.sleep(300)\n",
			files: map[string]string{"task.toml": "[agent]\ntimeout_sec = 2.5\n",
				"tests/test.sh": "test -e answer.txt && echo 1 >/logs/verifier/reward.txt\n"},
			score: 1, metrics: map[string]float64{"truncated": 1},
		},
		"the time of the tests is over": {
			program: asks,
			files: map[string]string{"task.toml": "[verifier]\ntimeout_sec = 1\n",
				"tests/test.sh": "echo 1 >/logs/verifier/reward.txt; sleep 300\n"},
			lost: "the tests had not ended after 1s",
		},
		"an agent that writes the reward": {
			program: asks + "import os\nif os.path.exists('/tests') or os.path.exists('/solution'): " +
				"open('escaped', 'w').close()\n" +
				"for path in ['/logs/verifier/reward.txt', '/logs/reward.txt', '/logs/agent/../verifier/reward.json']:\n" +
				"    try:\n        os.makedirs(os.path.dirname(path), exist_ok=True)\n        open(path, 'w').write('1')\n" +
				"        open('/app/escaped', 'w').close()\n    except OSError:\n        pass\n" +
				"open('/logs/agent/reward.txt', 'w').write('1')\nopen('/logs/artifacts/reward.txt', 'w').write('1')\n",
			files: map[string]string{"tests/test.sh": "test -e escaped && echo 1 >/logs/verifier/reward.txt\n"},
			lost:  "the tests have written neither",
		},
		"an agent that leaves a process": {
			program: "import subprocess\nsubprocess.Popen(['setsid', 'sh', '-c', 'trap \"\" TERM HUP; while :; do " +
				"date +%N >/app/next; mv /app/next /app/answer.txt; done'])\n" + asks +
				"import os, time\nwhile not os.path.exists('answer.txt'): time.sleep(0.01)\n",
			files: map[string]string{"tests/test.sh": "a=$(cat answer.txt); sleep 0.5; test \"$a\" = \"$(cat answer.txt)\" && " +
				"test -n \"$a\" && echo 1 >/logs/verifier/reward.txt\n"},
			score: 1,
		},
		"an agent that prepares the tests' home": {
			program: asks + "import os\nhome = os.environ['HOME']\nopen(home + '/.profile', 'w').write('exit 0')\n" +
				"os.makedirs(home + '/.local/bin')\nopen('/tmp/left', 'w').close()\n",
			files: map[string]string{"tests/test.sh": "test -z \"$(ls -A \"$HOME\")\" && test ! -e /tmp/left && " +
				"echo 1 >/logs/verifier/reward.txt\n"},
			score: 1,
		},
		"tests elsewhere": {
			program: asks + "import os\nos.makedirs('out')\nopen('out/answer', 'w').write('made')\n" +
				"os.symlink('/tests/want', 'out/want')\n" +
				"os.mkfifo('out/pipe')\nopen('conftest.py', 'w').close()\nopen('/logs/artifacts/more', 'w').close()\n",
			files: map[string]string{"task.toml": "artifacts = [\"/app/out\"]\nverifier.environment_mode = \"separate\"\n",
				"tests/want": "made", "tests/Dockerfile": "FROM scratch\nENV E=e\nWORKDIR /app\nCOPY . /tests\n",
				"tests/test.sh": "test \"$(ls -A . out /logs/artifacts | tr '\\n' ' ')\" = " +
					"'.: out  /logs/artifacts: more  out: answer ' && cmp out/answer /tests/want && test \"$E\" = e && " +
					"echo 1 >/logs/verifier/reward.txt || ls -A . out /logs/artifacts\n"},
			score: 1,
		},
		"a link to the right answer": {
			program: asks + "import os\nos.symlink('/tests/want', 'answer')\nos.symlink('given.txt', 'inside')\n",
			files: map[string]string{"tests/want": "right", "tests/test.sh": "cmp -s answer /tests/want; echo $? >" +
				"/logs/verifier/reward.txt; cmp inside given.txt || rm /logs/verifier/reward.txt\n"},
			score: 2,
		},
		"two steps": {
			program: "import os\nassert not os.listdir(os.environ['HOME'])\n" +
				"assert not os.path.exists(os.path.join('/rollout/work', 'left'))\n" +
				"open(os.environ['HOME'] + '/left', 'w').close()\nopen(os.path.join('/rollout/work', 'left'), 'w').close()\n" +
				"open('said.txt', 'a').write(sys.argv[1])\n" + asks,
			files: twoSteps("\n"),
			score: 0.75, metrics: map[string]float64{"steps": 2, "calls": 2, "style": 0.5},
		},
		"two steps, of which the first fails": {
			program: asks,
			files:   twoSteps("min_reward = { reward = 1, style = 2 }\n"),
			score:   1, metrics: map[string]float64{"steps": 1, "calls": 1, "style": 1},
		},
		"links out of the folder": {
			program: asks + "import os\nos.remove('given.txt')\nos.symlink('/etc/passwd', 'given.txt')\n" +
				"open('fake.json', 'w').write('{\"reward\": 1}')\n",
			files: map[string]string{"tests/test.sh": "ln -s /app/fake.json /logs/verifier/reward.json; " +
				"mkfifo /logs/verifier/reward.txt\n"},
			lost: "the tests have written neither",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := taskFolder(t, c.program, c.files)
			if c.files["environment/Dockerfile"] == "" && c.files["environment/sub/more.txt"] != "" {
				if err := os.Remove(filepath.Join(dir, "tasks/one/environment/Dockerfile")); err != nil {
					t.Fatal(err)
				}
			}
			config, api := harborConfig(t)
			b := plugintest.Harness(t, HarborPlugin())
			b.Start(config, in(dir), scripttest.With(python))
			if c.lost != "" {
				b.Wait("a group that is left out", func(e *pluginpb.Event) bool {
					return strings.Contains(e.GetLog().GetMessage(), c.lost)
				})
			} else {
				g := api.Wait(1)[0]
				plugintest.CheckGroup(t, g)
				for i, score := range g.Scores {
					got, _ := g.Overrides[i][trajectory.OverrideMetrics].(map[string]any)
					if score != c.score {
						t.Errorf("score %v, want %v", score, c.score)
					}
					for name, want := range c.metrics {
						if got[name] != want {
							t.Errorf("rollout %d: metrics %v, want %s = %v", i, got, name, want)
						}
					}
				}
			}
			rollouts := filepath.Join(b.Request(config).Dir, "rollouts")
			if err := b.Stop(5 * time.Second); err != nil {
				t.Fatal(err)
			}
			if left, _ := filepath.Glob(filepath.Join(rollouts, running, "*")); len(left) > 0 {
				t.Errorf("folders of rollouts: %q, want none", left)
			}
			if left := marked(t, rollouts); len(left) > 0 {
				t.Errorf("processes %v are left", left)
			}
		})
	}
}

// A task may work in a folder that has what the program needs of this machine, and not in one of what it needs.
func TestFoldersOfThisMachine(t *testing.T) {
	t.Parallel()
	b := &box{spec: sandbox.Spec{Mounts: []sandbox.Mount{{Host: "/opt/python", Inside: "/opt/python"}}}}
	of := func(workdir string) []*task {
		return []*task{{folder: &taskfolder.Task{Name: "one", Workdir: workdir}}}
	}
	for workdir, want := range map[string]string{"/opt": "", "/app": "", "/opt/python": "works in /opt/python",
		"/opt/python/x": "works in /opt/python/x"} {
		err := b.fits(of(workdir))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", workdir, err, want)
		}
	}
	s := b.specOf(scene{mounts: []sandbox.Mount{{Host: "/x", Inside: "/opt", Writable: true}}}, time.Second)
	if s.Mounts[0].Inside != "/opt" {
		t.Errorf("mounts %+v, want what the task has below what the program needs", s.Mounts)
	}
}

// No path of a block shows the tests.
//
//docs:environments/harbor.md an agent cannot read the tests, whatever paths names
func TestPathsThatShowTests(t *testing.T) {
	t.Parallel()
	needsSandbox(t)
	dir, python := taskFolder(t, asks, nil), scripttest.Python(t, "atropos")
	if err := os.Symlink("tasks/one/tests", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"tasks", "tasks/one", "tasks/one/tests", "tasks/one/tests/test.sh", "link", "."} {
		config, _ := harborConfig(t)
		config.Sandbox.Paths = []string{path}
		b := plugintest.Harness(t, HarborPlugin())
		b.Start(config, in(dir), scripttest.With(python))
		if failed := b.WaitPhase(sdk.Failed); !strings.Contains(failed, "sandbox.paths[0]") {
			t.Errorf("%s: %s", path, failed)
		}
	}
}
