package taskfolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// good is a task folder without a fault.
func good() map[string]string {
	return map[string]string{
		"task.toml":              "schema_version = \"1.4\"\n[task]\nname = \"tests/good\"\n",
		"instruction.md":         "Do it.\n",
		"environment/Dockerfile": "FROM debian:12\nWORKDIR /app\nCOPY a.txt b/ ./\n",
		"environment/a.txt":      "a",
		"environment/b/c.txt":    "c",
		"tests/test.sh":          "echo 1 >/logs/verifier/reward.txt\n",
		"solution/solve.sh":      "true\n",
	}
}

// write makes a task folder: a good one with other files in it; "" leaves one out.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	all := good()
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		path := filepath.Join(dir, name)
		if text == "" {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAGoodTask(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"task.toml": `
version = "1.0"
multi_step_reward_strategy = "mean"
[task]
name = "tests/good"
[metadata]
difficulty = "easy"
[agent]
timeout_sec = 12.5
[verifier]
timeout_sec = 60
env.KEY = "${KEY}"
[environment]
memory = "1.5G"
cpus = 2
storage_mb = 100
network_mode = "no-network"
workdir = "/work"
env = { A = "of task.toml" }
[solution]
env.S = "s"
[unknown]
key = 1
`,
		"instruction.md": "<!-- CANARY guid -->\n\n# Do it\n",
		"environment/Dockerfile": "# a comment\nfrom debian:12-slim AS base\nENV A=1 \\\n # more\n  B='two \"words'\n" +
			"ENV C=\"x $B\" D=$B/d\\ e PATH=/opt/bin:$PATH\nENV E the rest  of it\nWORKDIR /srv\nWORKDIR sub\n" +
			"COPY --chown=1:1 a.txt one.txt\n" +
			"COPY [\"a.txt\", \"b\", \"/data/in/\"]\nCOPY b/*.txt $B/\n",
	})
	task, problems := Read(dir, nil)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := []Variable{{"A", "of task.toml"}, {"B", `two "words`}, {"C", `x two "words`}, {"D", `two "words/d e`},
		{"E", "the rest  of it"}, {"PATH", "/opt/bin:" + OwnPath}}
	if !slices.Equal(task.Env, want) {
		t.Errorf("variables %q, want %q", task.Env, want)
	}
	if task.Name != "tests/good" || task.Workdir != "/work" || task.MemoryMB != 1536 ||
		len(task.Steps) != 1 || task.Final ||
		!slices.Equal(task.Images, []string{"debian:12-slim"}) {
		t.Errorf("%+v", task)
	}
	if one := task.Steps[0]; one.Instruction != "# Do it\n" || one.Agent.Timeout != 12500*time.Millisecond ||
		one.Verifier.Timeout != time.Minute || one.Agent.Network || !one.Agent.Named {
		t.Errorf("%+v", one)
	}
	host := t.TempDir()
	mounts := task.Mounts(host)
	var folders []string
	for _, m := range mounts {
		folders = append(folders, m.Inside)
	}
	if want := []string{"/data/in", "/srv/sub", "/work"}; !slices.Equal(folders, want) {
		t.Errorf("folders %q, want %q", folders, want)
	}
	if err := task.Fill(mounts, room()); err != nil {
		t.Fatal(err)
	}
	for i, files := range [][]string{{"a.txt", "c.txt"}, {"one.txt", `two "words/c.txt`}, {}} {
		for _, name := range files {
			if _, err := os.Stat(filepath.Join(mounts[i].Host, name)); err != nil {
				t.Error(err)
			}
		}
	}
}

// Each fault, and each thing that recipe does not do, is named with its file and its line.
//
//docs:environments/harbor.md what a sandbox cannot give a task is refused by name
func TestTasksThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		skip  []string
		want  []string // of the problems, in their order
	}{
		"nothing wrong":    {},
		"no configuration": {files: config(""), want: []string{"task.toml: it cannot be read"}},
		"no TOML":          {files: config("\n[agent\n"), want: []string{"task.toml:2: "}},
		"a long key": {
			files: config("[agent]\n" + strings.Repeat("a.", 4_000) + "b = 1\n"),
			want:  []string{"task.toml: the key in line 2 has more than 1024 bytes"},
		},
		"deep lists": {
			files: config("a = " + strings.Repeat("[", 500_000) + "\n"),
			want:  []string{"task.toml:1: arrays and inline tables are nested more than"},
		},
		"another type": {
			files: config("[agent]\ntimeout_sec = \"1\"\n"),
			want:  []string{"task.toml:2: agent.timeout_sec has the type string; expected float64"},
		},
		"a future version": {
			files: config("schema_version = \"2.0\"\n"),
			want:  []string{`task.toml:1: schema_version is "2.0"`},
		},
		"no instruction": {
			files: map[string]string{"instruction.md": ""},
			want:  []string{"instruction.md: it cannot be read"},
		},
		"an empty one": {files: map[string]string{"instruction.md": "\n"}, want: []string{"instruction.md: it is empty"}},
		"no tests":     {files: map[string]string{"tests/test.sh": ""}, want: []string{"tests/test.sh: it is not there"}},
		"Windows": {
			files: map[string]string{"task.toml": "[environment]\nos = \"Windows\"\n",
				"tests/test.sh":  "",
				"tests/test.bat": "x"},
			want: []string{"task.toml:2: environment.os is", "test.bat is for Windows"},
		},
		"services": {
			files: map[string]string{"environment/docker-compose.yaml": "services:"},
			want:  []string{"docker-compose.yaml: services of Docker Compose"},
		},
		"GPUs": {
			files: config("[environment]\n\ngpus = 1\n"),
			want:  []string{"task.toml:3: environment.gpus is set; a sandbox has no GPU"},
		},
		"no GPUs": {files: config("[environment]\ngpus = 0\n")},
		"MCP servers": {
			files: config("[[environment.mcp_servers]]\nname = \"a\"\n"),
			want:  []string{"task.toml:1: environment.mcp_servers"},
		},
		"skills": {
			files: config("environment.skills_dir = \"/s\"\n"),
			want:  []string{"task.toml:1: environment.skills_dir"},
		},
		"a health check": {
			files: config("[environment.healthcheck]\ncommand = \"x\"\n"),
			want:  []string{"task.toml:1: environment.healthcheck"},
		},
		"single hosts": {
			files: config("[agent]\nnetwork_mode = \"allowlist\"\nallowed_hosts = [\"a.b\"]\n"),
			want:  []string{"task.toml:3: agent.allowed_hosts", `task.toml:2: agent.network_mode is "allowlist"`},
		},
		"another network": {
			files: config("[environment]\nnetwork_mode = \"host\"\n"),
			want:  []string{`task.toml:2: environment.network_mode is "host"`},
		},
		"users": {files: config("[verifier]\nuser = 0\n"), want: []string{"task.toml:2: verifier.user is set"}},
		"another place": {
			files: config("[verifier]\nenvironment_mode = \"elsewhere\"\n"),
			want:  []string{`task.toml:2: verifier.environment_mode is "elsewhere"`},
		},
		"two places": {
			files: config("[verifier]\nenvironment_mode = \"shared\"\n[verifier.environment]\ngpus = 2\n"),
			want: []string{"task.toml:4: verifier.environment.gpus is set",
				`task.toml:2: verifier.environment_mode is "shared"`},
		},
		"artifacts": {
			files: config("artifacts = [\"/app/x\", \"y\", " +
				"{ source = \"/app/z\", service = \"db\", exclude = [\"*\"] }, \"/tmp/a\\n\"]\n" +
				"[verifier]\nenvironment_mode = \"separate\"\n"),
			want: []string{`task.toml:1: artifacts has "y"; expected a path`, `task.toml:1: artifacts has one of the service "db"`,
				"task.toml:1: artifacts has exclude", `task.toml:1: artifacts has "/tmp/a\n", which is in no folder`},
		},
		"no time": {
			files: config("[agent]\ntimeout_sec = 0\n[verifier]\ntimeout_sec = nan\n"),
			want:  []string{"task.toml:2: agent.timeout_sec is 0", "task.toml:4: verifier.timeout_sec is NaN"},
		},
		"no memory": {
			files: config("[environment]\nmemory = \"much\"\n"),
			want:  []string{`task.toml:2: environment.memory is "much"`},
		},
		"a variable's name": {
			files: config("[environment.env]\n\"a b\" = \"x\"\n"),
			want:  []string{`task.toml:2: environment.env has "a b"`},
		},
		"a conversation": {
			files: map[string]string{"trajectory.json": "{}"},
			want:  []string{"trajectory.json: an agent of recipe"},
		},
		"ignored files": {
			files: map[string]string{"tests/.harborignore": "x", "environment/.dockerignore": "x"},
			want:  []string{".dockerignore: recipe does not read it", ".harborignore: recipe does not read it"},
		},
		"a step without a folder": {
			files: config("[[steps]]\nname = \"a\"\n"),
			want:  []string{"steps/a/instruction.md: it cannot be read"},
		},
		"names of steps": {
			files: config("[[steps]]\nname = \"..\"\n[[steps]]\nname = \"a/b\"\n[[steps]]\n"),
			want:  []string{`task.toml:2: the step is named ".."`, `task.toml:4: the step is named "a/b"`, "task.toml:5: the step"},
		},
		"what a step has not": {
			files: map[string]string{"steps/a/instruction.md": "x",
				"task.toml": "[[steps]]\nname = \"a\"\nmin_reward = \"x\"\n" +
					"[steps.healthcheck]\ncommand = \"x\"\n[steps.agent]\nuser = \"root\"\n"},
			want: []string{"task.toml:7: steps[0].agent.user", "task.toml:4: steps[0].healthcheck",
				"task.toml:3: min_reward is x"},
		},
		"another mean": {
			files: config("multi_step_reward_strategy = \"max\"\n"),
			want:  []string{`task.toml:1: multi_step_reward_strategy is "max"`},
		},
		"no files at all": {
			files: map[string]string{"task.toml": "[environment]\ndocker_image = \"a/b\"\n",
				"environment/Dockerfile": "",
				"environment/a.txt":      "",
				"environment/b/c.txt":    ""},
			want: []string{`task.toml:2: environment.docker_image is "a/b" and the folder environment has no files`},
		},

		"RUN":                  {files: docker("RUN apt-get"), want: []string{"environment/Dockerfile:2: RUN is not run"}},
		"RUN that is left out": {files: docker("RUN <<END\nFOO\nEND\nLABEL a=b"), skip: []string{"RUN", "LABEL"}},
		"no image": {
			files: map[string]string{"environment/Dockerfile": "WORKDIR /app\n"},
			want:  []string{"Dockerfile: it has no FROM"},
		},
		"stages": {files: docker("FROM b"), want: []string{"Dockerfile:2: it has a second FROM"}},
		"no file": {
			files: docker("\n\nCOPY none.txt ./"),
			want:  []string{`Dockerfile:4: COPY: the folder environment has no "none.txt"`},
		},
		"out of it": {
			files: docker("COPY ../../task.toml ./"),
			want:  []string{`Dockerfile:2: COPY: the folder environment has no "../../task.toml"`},
		},
		"another stage": {files: docker("COPY --from=x a.txt ./"), want: []string{"Dockerfile:2: COPY has --from,"}},
		"one word":      {files: docker("COPY a.txt"), want: []string{"Dockerfile:2: COPY: it has 1 words"}},
		"a text":        {files: docker("COPY <<END /app/x\na\nEND"), want: []string{"Dockerfile:2: COPY has a text"}},
		"a variable": {
			files: docker("WORKDIR $HOME/x"),
			want:  []string{"Dockerfile:2: WORKDIR: the variable HOME is not set"},
		},
		"a form of it": {files: docker("ENV A=${A:-x}"), want: []string{"Dockerfile:2: ENV: \"${A:-x}\" is no variable"}},
		"a quote":      {files: docker("ENV A=\"x"), want: []string{"Dockerfile:2: ENV: a quote \" is not closed"}},
		"a value that doubles": {
			files: docker("ENV A=aaaa\n" + strings.Repeat("ENV A=$A$A\n", 14)),
			want:  []string{"Dockerfile:16: ENV: a word has more than 65536 bytes"},
		},
		"no name": {files: docker("ENV 1=x"), want: []string{`Dockerfile:2: ENV has "1=x"`}},
		"a folder of its own": {
			files: docker("COPY a.txt /etc/x/\nWORKDIR /tests"),
			want: []string{`Dockerfile:2: the files of a task cannot be put into "/etc/x"`,
				`Dockerfile:3: the files of a task cannot be put into "/tests"`},
		},
		"the root": {
			files: docker("COPY a.txt /a.txt"),
			want:  []string{"Dockerfile:2: the files of a task cannot be put into / itself"},
		},
		"an escape": {
			files: map[string]string{"environment/Dockerfile": "# escape=`\nFROM a\n"},
			want:  []string{"Dockerfile:1: it has another escape character"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, c.files)
			_, problems := Read(dir, c.skip)
			var got []string
			for _, p := range problems {
				got = append(got, strings.TrimPrefix(p.String(), dir+"/"))
			}
			ok := len(got) == len(c.want)
			for i := range min(len(got), len(c.want)) {
				ok = ok && strings.Contains(got[i], c.want[i])
			}
			if !ok {
				t.Errorf("problems %q\nwant %q", got, c.want)
			}
		})
	}
}

// config is a task with this task.toml.
func config(text string) map[string]string { return map[string]string{"task.toml": text} }

// steps are two steps, the second of which has all that a step may have.
func steps() map[string]string {
	return map[string]string{"instruction.md": "", "task.toml": `
multi_step_reward_strategy = "final"
[agent]
timeout_sec = 10
network_mode = "no-network"
[verifier]
env = { A = "1", B = "2" }
[[steps]]
name = "one"
min_reward = 0.5
[[steps]]
name = "two"
min_reward = { reward = 1, style = 0.25 }
[steps.agent]
timeout_sec = 20
network_mode = "public"
[steps.verifier]
timeout_sec = 30
env = { B = "3" }
`, "steps/one/instruction.md": "First.", "steps/two/instruction.md": "Then.", "steps/two/tests/test.sh": "true",
		"steps/two/solution/solve.sh": "true", "steps/two/workdir/setup.sh": "true", "steps/two/workdir/more.txt": "more"}
}

// Tests in an environment of their own begin with what their Dockerfile copies, and get what artifacts names.
func TestTestsElsewhere(t *testing.T) {
	t.Parallel()
	const apart = "artifacts = [\"/app/out\", { source = \"/app/a.txt\" }, \"/logs/artifacts\"]\n[verifier]\n" +
		"environment_mode = \"separate\"\n[environment.env]\nA = \"1\"\n"
	for name, c := range map[string]struct {
		files   map[string]string
		workdir string
		env     []Variable
		has     []string // files of the tests' folders
	}{
		"a Dockerfile of the tests": {
			files: map[string]string{"task.toml": apart + "[verifier.environment.env]\nB = \"2\"\n",
				"tests/Dockerfile": "FROM x\nWORKDIR /srv\nENV C=3\nCOPY . /tests/\nCOPY want.txt ./\n", "tests/want.txt": "want"},
			workdir: "/srv", env: []Variable{{"B", "2"}, {"C", "3"}},
			has: []string{"/app/a.txt", "/app/out/o.txt", "/srv/want.txt"},
		},
		"the agent's, anew": {
			files:   map[string]string{"task.toml": apart + "[verifier.environment.env]\nA = \"3\"\n"},
			workdir: "/app", env: []Variable{{"A", "1"}, {"A", "3"}},
			has: []string{"/app/a.txt", "/app/c.txt", "/app/out/o.txt"},
		},
		"an image": {
			files:   map[string]string{"task.toml": apart + "[verifier.environment]\ndocker_image = \"a/b\"\n"},
			workdir: "/app", has: []string{"/app/a.txt", "/app/out/o.txt"},
		},
	} {
		dir, host := t.TempDir(), t.TempDir()
		write(t, dir, c.files)
		task, problems := Read(dir, nil)
		if len(problems) > 0 || task.Steps[0].Fresh == nil {
			t.Errorf("%s: %v, %+v", name, problems, task)
			continue
		}
		fresh, before := task.Steps[0].Fresh, task.Mounts(filepath.Join(host, "agent"))
		if fresh.Workdir != c.workdir || !slices.Equal(fresh.Env, c.env) {
			t.Errorf("%s: %+v", name, fresh)
		}
		after := fresh.Mounts(filepath.Join(host, "tests"))
		if err := errors.Join(task.Fill(before, room()), fresh.Fill(after, room())); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"a.txt": "changed", "out/o.txt": "made", "other.txt": "not asked for"} {
			path := filepath.Join(before[0].Host, file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		for _, artifact := range task.Steps[0].Artifacts {
			if err := Carry(artifact, before, after, room()); err != nil {
				t.Error(err)
			}
		}
		var has []string
		for _, m := range after {
			err := filepath.WalkDir(m.Host, func(path string, entry fs.DirEntry, err error) error {
				if err == nil && !entry.IsDir() {
					has = append(has, m.Inside+strings.TrimPrefix(path, m.Host))
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
		if slices.Sort(has); !slices.Equal(has, c.has) {
			t.Errorf("%s: the tests have %q, want %q", name, has, c.has)
		}
		if text, _ := os.ReadFile(filepath.Join(after[0].Host, "a.txt")); string(text) != "changed" {
			t.Errorf("%s: the artifact has %q", name, text)
		}
	}
}

func TestStepsOfATask(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, steps())
	task, problems := Read(dir, nil)
	if len(problems) > 0 || len(task.Steps) != 2 || !task.Final {
		t.Fatal(task, problems)
	}
	want := []Step{
		{Name: "one", Instruction: "First.", Agent: Phase{Timeout: 10 * time.Second, Named: true},
			Verifier: Phase{Network: true, Env: []Variable{{"A", "1"}, {"B", "2"}}}, Least: map[string]float64{"reward": 0.5},
			Tests: []string{"tests"}, SolutionFrom: "solution"},
		{Name: "two", Instruction: "Then.", Agent: Phase{Timeout: 20 * time.Second, Named: true, Network: true},
			Verifier: Phase{Timeout: 30 * time.Second, Network: true, Env: []Variable{{"A", "1"}, {"B", "2"}, {"B", "3"}}},
			Least:    map[string]float64{"reward": 1, "style": 0.25}, Tests: []string{"tests", "steps/two/tests"},
			SolutionFrom: "steps/two/solution", Put: "steps/two/workdir", Setup: true},
	}
	for i := range want {
		if got := fmt.Sprintf("%+v", task.Steps[i]); got != fmt.Sprintf("%+v", want[i]) {
			t.Errorf("step %d: %s\nwant %+v", i, got, want[i])
		}
	}
	both := []map[string]float64{{"reward": 1, "style": 0.5}, {"reward": 0.5}}
	if !task.Steps[0].Enough(both[1]) || task.Steps[1].Enough(both[1]) ||
		task.Steps[1].Enough(map[string]float64{"reward": 1}) {
		t.Error("min_reward does not decide whether the next step begins")
	}
	if got := task.Combine(both); got["reward"] != 0.5 {
		t.Errorf("final: %v", got)
	}
	task.Final = false
	if got := task.Combine(both); got["reward"] != 0.75 || got["style"] != 0.25 {
		t.Errorf("mean: %v", got)
	}
}

// docker is a task whose Dockerfile goes on so after FROM.
func docker(rest string) map[string]string {
	return map[string]string{"environment/Dockerfile": "FROM a\n" + rest + "\n"}
}

// Links out of a task's folders, and what is no file, are refused.
func TestLinksOutOfATask(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, nil)
	for name, to := range map[string]string{"environment/in": "b/c.txt", "environment/out": "/etc/passwd",
		"tests/up": "../solution/solve.sh", "solution/far": "../../x"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "tests/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, problems := Read(dir, nil)
	var got []string
	for _, p := range problems {
		name, _ := filepath.Rel(dir, p.File)
		got = append(got, name)
	}
	if want := []string{"environment/out", "solution/far", "tests/pipe", "tests/up"}; !slices.Equal(got, want) {
		t.Errorf("problems of %q, want %q: %v", got, want, problems)
	}
}

// A copy follows no link that an earlier copy has made.
func TestACopyStaysInItsFolder(t *testing.T) {
	t.Parallel()
	dir, host, other := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, dir, map[string]string{"environment/Dockerfile": "FROM a\nCOPY a.txt /app/link/x/\n"})
	task, problems := Read(dir, nil)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	mounts := task.Mounts(host)
	if err := os.MkdirAll(mounts[0].Host, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, filepath.Join(mounts[0].Host, "link")); err != nil {
		t.Fatal(err)
	}
	if err := task.Fill(mounts, room()); err == nil {
		t.Error("the copy followed a link out of its folder")
	}
	if entries, _ := os.ReadDir(other); len(entries) > 0 {
		t.Errorf("the folder outside has %v", entries)
	}
}

func TestListOfFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := List(dir); err == nil || !strings.Contains(err.Error(), "has no task folder") {
		t.Errorf("an empty folder: %v", err)
	}
	for _, name := range []string{"b", "a"} {
		write(t, filepath.Join(dir, name), nil)
	}
	if err := os.Mkdir(filepath.Join(dir, "none"), 0o700); err != nil {
		t.Fatal(err)
	}
	for folder, want := range map[string][]string{dir: {filepath.Join(dir, "a"), filepath.Join(dir, "b")},
		filepath.Join(dir, "a"): {filepath.Join(dir, "a")}} {
		if got, err := List(folder); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
}

// Whatever a task.toml and a Dockerfile have, reading them ends, without a panic, and what is accepted can be copied.
func FuzzRead(f *testing.F) {
	f.Add("schema_version = \"1.4\"\n[agent]\ntimeout_sec = 1\n[[steps]]\nname = \"a\"\n", "FROM a\nCOPY a.txt /x/\n")
	f.Add("[environment]\nenv = { A = \"${B:-c}\" }\nmemory = \"2G\"\n", "FROM a \\\n# c\n\\\nWORKDIR \"$A")
	f.Add("environment.memory = \"\"\n[[a.b]]\n[a.b.c]\nd=1", "COPY [\"a.txt\"]\nRUN <<E")
	dir := f.TempDir()
	for name, text := range good() {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			f.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, config, file string) {
		r := &reader{task: &Task{Dir: dir, Workdir: defaultWorkdir}, skip: []string{"RUN"}}
		r.config([]byte(config))
		d := &dockerfile{context: &context{reader: r, folder: "environment", into: r.task}, env: map[string]string{}}
		d.read(file)
		for _, p := range r.problems {
			if p.What == "" || p.Line < 0 || p.Line > 1+max(strings.Count(config, "\n"), strings.Count(file, "\n")) {
				t.Errorf("problem %+v", p)
			}
		}
		if len(r.problems) == 0 {
			if err := r.task.Fill(r.task.Mounts(t.TempDir()), room()); err != nil {
				t.Error(err)
			}
		}
	})
}
