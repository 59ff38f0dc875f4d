package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/environment"
)

// A plan reads the task folders, and names what is wrong with them and with the block that has them.
//
//docs:environments/harbor.md a plan reads every task and runs nothing
func TestPlanOfTaskFolders(t *testing.T) {
	t.Parallel()
	folders := func(t *testing.T, first, second string) string {
		t.Helper()
		dir := t.TempDir()
		for name, text := range map[string]string{"one": first, "two": second} {
			files := solved()
			files["task.toml"] = text
			for file, text := range files {
				path := filepath.Join(dir, "tasks", name, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		return filepath.Join(dir, "tasks")
	}
	good := HarborConfig{SessionSettings: environment.SessionSettings{Budget: environment.BudgetSettings{Seconds: 60}},
		Program: Program{Command: []string{"x", "${task.instruction}"}, Sandbox: sandboxed("auto")}}
	for name, c := range map[string]struct {
		first, second string
		change        func(*HarborConfig)
		want          []string // of the details, in any order
	}{
		"nothing wrong": {},
		"the same name": {first: "task.name = \"a/b\"", second: "task.name = \"a/b\"",
			want: []string{"task.toml: the task is named a/b, as one is"}},
		"too much memory": {first: "environment.memory_mb = 4096",
			want: []string{"tasks/one/task.toml: the task needs 4 GiB of memory, and sandbox.memory is 2"}},
		"a network": {second: "environment.network_mode = \"public\"",
			want: []string{"These tasks name a network, and get none: two"}},
		"a network that is there": {second: "environment.network_mode = \"public\"",
			change: func(c *HarborConfig) { c.Sandbox.Network = []string{"*"} }},
		"more time": {first: "agent.timeout_sec = 61",
			want: []string{"budget.seconds = 60 ends an agent earlier than these tasks do: one (1m1s)"}},
		"all held out": {change: func(c *HarborConfig) { c.EvalTasks = 2 },
			want: []string{"eval_tasks = 2 holds out all of the 2 task folders of tasks"}},
		"no folders": {change: func(c *HarborConfig) { c.Tasks = filepath.Dir(c.Tasks) },
			want: []string{"has no task folder"}},
		"no member": {change: func(c *HarborConfig) { c.Command[1] = "${task.id}" },
			want: []string{"element 2 of command has task.id"}},
		"no sandbox": {change: func(c *HarborConfig) { c.Sandbox.Kind = "none" }, want: []string{`kind is "none"`}},
		"what is skipped": {change: func(c *HarborConfig) { c.Skip = []string{"RUN", "COPY --from", "COPY", "run"} },
			want: []string{`skip has "COPY"`, `skip has "run"`}},
		"its own stop texts": {change: func(c *HarborConfig) { c.Stop = []string{"x"} }, want: []string{"stop is"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := good
			config.Command = slices.Clone(good.Command)
			config.Tasks = folders(t, c.first, c.second)
			if c.change != nil {
				c.change(&config)
			}
			notes, problems := config.CheckFiles()
			var got []string
			for _, p := range slices.Concat(problems, config.Validate()) {
				got = append(got, p.Detail)
			}
			ok := len(got) == len(c.want)
			for i := range min(len(got), len(c.want)) {
				ok = ok && strings.Contains(got[i], c.want[i])
			}
			if !ok {
				t.Errorf("problems %q, want %q", got, c.want)
			}
			if name == "nothing wrong" && (len(notes) != 1 || !strings.Contains(notes[0], "images are not used: scratch.")) {
				t.Errorf("notes %q", notes)
			}
		})
	}
}
