package slurm

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/executor"
)

// TestTheScriptOfAJob compares with testdata/job.sbatch.
func TestTheScriptOfAJob(t *testing.T) {
	t.Parallel()
	s := New(Config{Partition: "gpu", Account: "rl", QOS: "high", GPUType: "h100", Options: []string{"--exclusive"},
		Setup: []string{"module load cuda"}}, "")
	matches(t, "job.sbatch", s, executor.Job{
		Key:  executor.Key{Run: "01J", Block: `trainer.grpo.policy["it's"]`, Attempt: 2},
		Argv: []string{"/opt/recipe", "agent", "--bootstrap", "/shared/it's 100%/agent.json"}, Dir: "/shared/it's 100%",
		Resources: executor.Resources{GPUs: 8, CPUs: 16, Memory: 3<<30 + 1, TimeLimit: 90*time.Minute + time.Second,
			Grace: 5 * time.Minute,
			Host:  "n1", Constraints: []string{"ib", "h100"}},
	})
}

// TestTheScriptOfAJobOnSeveralMachines compares with testdata/nodes.sbatch.
func TestTheScriptOfAJobOnSeveralMachines(t *testing.T) {
	t.Parallel()
	matches(t, "nodes.sbatch", New(Config{Partition: "gpu"}, ""), executor.Job{
		Key:  executor.Key{Run: "01J", Block: "trainer.grpo.policy", Attempt: 1},
		Argv: []string{"/opt/recipe", "agent", "--bootstrap", "/shared/agent.json"}, Dir: "/shared",
		Resources: executor.Resources{Nodes: 2, GPUs: 8, CPUs: 16},
	})
}

// TestTheScriptOfAJobWithInput compares with testdata/input.sbatch and input-nodes.sbatch: the machines share no
// folder.
func TestTheScriptOfAJobWithInput(t *testing.T) {
	t.Parallel()
	j := executor.Job{Key: executor.Key{Run: "01J", Block: "environment.arithmetic.sums", Attempt: 1},
		Argv: []string{"/bin/bash", "-c", "cat", "it's"}, Input: "{\"token\": \"$T\"}\n"}
	matches(t, "input.sbatch", New(Config{}, ""), j)
	j.Nodes = 2
	matches(t, "input-nodes.sbatch", New(Config{}, ""), j)
	for _, input := range []string{"no newline", "a\n" + endOfInput + "\nrm -rf /\n"} {
		j.Input = input
		if r, err := New(Config{}, "").Render(j); err == nil {
			t.Errorf("input %q makes the script\n%s", input, r.Text)
		}
	}
}

// A placement cannot give sbatch options of its own.
func TestAHostIsOneWord(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"n1 --uid=0", "n1\t--wrap=id", "n1\n#SBATCH --uid=0", `n1"`} {
		j := executor.Job{Key: executor.Key{Run: "01J", Block: "trainer.tiny.a", Attempt: 1}, Argv: []string{"x"},
			Dir: "/shared", Resources: executor.Resources{Host: host}}
		if r, err := New(Config{}, "").Render(j); err == nil {
			t.Errorf("host %q makes the script\n%s", host, r.Text)
		}
	}
}

// TestTheScriptOfAGang compares with testdata/gang.sbatch.
func TestTheScriptOfAGang(t *testing.T) {
	t.Parallel()
	s := New(Config{Partition: "gpu", Setup: []string{"module load cuda"}}, "").(executor.Gangs)
	got, err := s.RenderTogether([]executor.Job{{
		Key:  executor.Key{Run: "01J", Block: "inference.vllm.policy", Attempt: 1},
		Argv: []string{"/opt/recipe", "agent", "--bootstrap", "/shared/it's/agent.json"}, Dir: "/shared/it's",
		Resources: executor.Resources{GPUs: 4, Memory: 8 << 30},
	}, {
		Key:  executor.Key{Run: "01J", Block: "trainer.grpo.policy", Attempt: 1},
		Argv: []string{"/opt/recipe", "agent", "--bootstrap", "/shared/t/agent.json"}, Dir: "/shared/t",
		Resources: executor.Resources{Nodes: 2, GPUs: 8, CPUs: 16},
	}})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "gang.sbatch", got)
}

// TestWhatSetupChangesIsNamed runs a script: the block gets variables that setup made or changed, and no others.
func TestWhatSetupChangesIsNamed(t *testing.T) {
	t.Parallel()
	if exec.CommandContext(t.Context(), "bash", "-c", "declare -A a").Run() != nil {
		t.Skip("the bash of this machine has no associative arrays (bash 4); those of Slurm's machines have")
	}
	s := New(Config{Setup: []string{"export MADE='two words'", "PATH=/opt/cuda/bin:$PATH", "unset GONE", "local=1",
		"export EMPTY=", "export SAME='a b'"}}, "")
	r, err := s.Render(executor.Job{Key: executor.Key{Run: "01J", Block: "trainer.grpo.policy", Attempt: 1},
		Argv: []string{"/usr/bin/env"}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	bash := exec.CommandContext(t.Context(), "bash", "-c", r.Text)
	bash.Env = []string{"PATH=/usr/bin:/bin", "GONE=1", "SAME=a b"}
	out, err := bash.Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	for _, want := range []string{"MADE=two words", "PATH=/opt/cuda/bin:/usr/bin:/bin",
		executor.PassVariable + "=EMPTY,MADE,PATH"} {
		if !slices.Contains(got, want) {
			t.Errorf("the environment lacks %s:\n%s", want, out)
		}
	}
}

func matches(t *testing.T, file string, x executor.Executor, j executor.Job) {
	t.Helper()
	got, err := x.Render(j)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, file, got)
}

func compare(t *testing.T, file string, got executor.Request) {
	t.Helper()
	path := filepath.Join("testdata", file)
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.Text != string(want) {
		t.Errorf("the script differs from %s:\n%s", path, got.Text)
	}
}

func TestWhatCannotStandInAScriptIsRefused(t *testing.T) {
	t.Parallel()
	argv := []string{"true"}
	for what, j := range map[string]executor.Job{
		"a quote in a folder":      {Argv: argv, Dir: `/a"b`},
		"a line end in a folder":   {Argv: argv, Dir: "/a\n#SBATCH --uid=0"},
		"a line end in a host":     {Argv: argv, Dir: "/a", Resources: executor.Resources{Host: "n1\ntrue"}},
		"a quote in a constraint":  {Argv: argv, Dir: "/a", Resources: executor.Resources{Constraints: []string{`a"`}}},
		"a line end in constraint": {Argv: argv, Dir: "/a", Resources: executor.Resources{Constraints: []string{"a\n"}}},
	} {
		if got, err := New(Config{}, "").Render(j); err == nil {
			t.Errorf("%s: rendered as\n%s", what, got.Text)
		}
	}
}

func TestTheQueueIsRead(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 14, 30, 0, 0, time.Local)
	key := executor.Key{Run: "01J", Block: `trainer.tiny.a["x|y"]`, Attempt: 1}
	ours := comment(key)
	if strings.ContainsAny(ours, "| \"'") {
		t.Errorf("the comment %q holds characters that squeue or sbatch read otherwise", ours)
	}
	for line, want := range map[string]executor.Status{
		"7|PENDING|Priority||2026-11-22T14:30:00|": {State: executor.Pending, Expected: at,
			Reason: "Priority (jobs with a higher priority are before it)"},
		"7|PENDING|NewReason||N/A|":                 {State: executor.Pending, Reason: "NewReason"},
		"7|RUNNING|None|n1|2026-11-22T14:30:00|":    {State: executor.Running, Node: "n1"},
		"7|COMPLETING|None|n1|2026-11-22T14:30:00|": {State: executor.Running, Node: "n1"},
		"7|COMPLETED|None|n1|2026-11-22T14:30:00|":  {State: executor.Succeeded, Node: "n1"},
		"7|FAILED|NonZeroExitCode|n1|N/A|":          {State: executor.Failed, Reason: "NonZeroExitCode", Node: "n1"},
		"7|CANCELLED|None||N/A|":                    {State: executor.Canceled},
		"7|TIMEOUT|TimeLimit|n1|N/A|":               {State: executor.Failed, Reason: "TIMEOUT", Node: "n1"},
		"7|PREEMPTED|None|n1|N/A|":                  {State: executor.Failed, Reason: "PREEMPTED", Node: "n1"},
		"7|NODE_FAIL|NodeDown|n1|N/A|":              {State: executor.Lost, Reason: "NODE_FAIL", Node: "n1"},
	} {
		list := parseQueue("CLUSTER: c1\n3|RUNNING|None|n1|N/A|another's | comment\nwith a | second line\n\n" +
			line + ours + "\n")
		if len(list) != 2 || list[0].key != (executor.Key{}) {
			t.Errorf("%s: %+v; expected two jobs, the first without a key", line, list)
		} else if got := list[1]; got.id != "7" || got.key != key || got.status != want {
			t.Errorf("%s: %+v; expected %+v", line, got, want)
		}
	}
	for text, want := range map[string]int{"0:0": 0, "3:0": 3, "0:15": 143, "1:9": 1} {
		if got := exitCode(text); got == nil || *got != want {
			t.Errorf("exit code %s is %v; expected %d", text, got, want)
		}
	}
	if exitCode("") != nil {
		t.Error("an unknown exit code is a number")
	}
}

func TestThePlaceInTheQueue(t *testing.T) {
	t.Parallel()
	got := places("9|100|gpu\n7|100|gpu\n8|4294901755|gpu\n3|1|cpu\n5_[0-3]|100|cpu\n")
	for id, want := range map[string]int{"8": 1, "7": 2, "9": 3, "5_[0-3]": 1, "3": 2} {
		if got[id] != want {
			t.Errorf("job %s is number %d; expected %d", id, got[id], want)
		}
	}
}

func TestLimitsAreRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"infinite": 0, "n/a": 0, "1:00:00": time.Hour,
		"2-00:00:00": 48 * time.Hour, "1-12": 36 * time.Hour, "30:00": 30 * time.Minute} {
		if got := duration(text); got != want {
			t.Errorf("%s is read as %s; expected %s", text, got, want)
		}
	}
}

// TestWhatAJobGetsOfTheEnvironment keeps secrets out of the queue, and what sbatch would read as an order.
func TestWhatAJobGetsOfTheEnvironment(t *testing.T) {
	t.Parallel()
	got := jobEnvironment([]string{"HOME=/home/me", "HF_TOKEN=secret", "SLURM_CONF=/etc/slurm.conf", "SBATCH_ACCOUNT=me",
		"SBATCH_EXPORT=NONE", "SBATCH_ARRAY_INX=0-9", "PATH=/bin", "WANDB_API_KEY=secret", "BASH_FUNC_module%%=() { :; }",
		"HOMEPAGE=x"})
	want := []string{"HOME=/home/me", "SLURM_CONF=/etc/slurm.conf", "SBATCH_ACCOUNT=me", "PATH=/bin",
		"BASH_FUNC_module%%=() { :; }"}
	if !slices.Equal(got, want) {
		t.Errorf("a job gets %q; expected %q", got, want)
	}
}
