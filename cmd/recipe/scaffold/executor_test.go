package scaffold_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// An executor that is a program of its own is killed, and the engine with it: a new engine starts it again, adopts the
// jobs, and ends them. A command that has read no recipe ends them as well.
func TestAnExecutorThatIsKilledLosesNothing(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/exe"); err != nil {
		t.Skip("processes are found by /proc")
	}
	a := newAuthor(t)
	folder := a.create(kind.Executor, "jobs", "go")
	a.follow(folder, "go mod tidy\ngo build -o bin/jobs .")
	defer func() { _, _ = a.try(folder, "recipe", "destroy", "-y", "-r", "jobs.hcl") }()
	apply := []string{"recipe", "apply", "-y", "--detach", "--var", "steps=1000000", "jobs.hcl"}
	a.run(folder, apply...)
	const trainer = "trainer.tiny.policy"
	step := trainerStep(t, folder, trainer, 1)
	agent := recordedJob(t, folder, trainer)

	kill(t, programs(t, filepath.Join(folder, "bin", "jobs")))
	var status struct{ Engine struct{ PID int } }
	a.answer(&status, folder, "recipe", "status", "--json", "-r", "jobs.hcl")
	kill(t, []int{status.Engine.PID})
	a.run(folder, apply...)
	trainerStep(t, folder, trainer, step+2)
	if now := recordedJob(t, folder, trainer); now != agent {
		t.Errorf("the trainer's job is\n%s, before the engine was killed it was\n%s", now, agent)
	}
	if len(programs(t, filepath.Join(folder, "bin", "jobs"))) == 0 {
		t.Error("no process of the executor runs; the new engine has asked it about the job")
	}

	a.answer(&status, folder, "recipe", "status", "--json", "-r", "jobs.hcl")
	kill(t, append(programs(t, filepath.Join(folder, "bin", "jobs")), status.Engine.PID))
	if err := os.Remove(filepath.Join(folder, "jobs.hcl")); err != nil {
		t.Fatal(err)
	}
	a.run(folder, "recipe", "destroy", "-y", "-r", "jobs.hcl")
	if left := programs(t, program); len(left) > 0 {
		for _, pid := range left {
			line, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
			if strings.Contains(string(line), folder) {
				t.Errorf("after destroy there is still %q", line)
			}
		}
	}
}

// trainerStep waits until the trainer has made a step, and returns its newest one.
func trainerStep(t *testing.T, folder, address string, least int64) int64 {
	t.Helper()
	block, err := addr.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		run, err := state.Read(state.DirOf(folder, "jobs"))
		if err == nil && run.Blocks[block] != nil && run.Blocks[block].Step >= least {
			return run.Blocks[block].Step
		}
	}
	t.Fatalf("%s has not made step %d within 2 minutes", address, least)
	return 0
}

// recordedJob is the record of a block's job.
func recordedJob(t *testing.T, folder, address string) string {
	t.Helper()
	record, err := os.ReadFile(filepath.Join(folder, ".recipe", "jobs", "blocks", address, "job.json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(record)
}

// programs are the processes of a program.
func programs(t *testing.T, path string) (pids []int) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == path {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

// kill kills processes and waits until they have ended.
func kill(t *testing.T, pids []int) {
	t.Helper()
	if len(pids) == 0 {
		t.Fatal("there is no process to kill")
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		alive := 0
		for _, pid := range pids {
			if syscall.Kill(pid, 0) == nil {
				alive++
			}
		}
		if alive == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("of the processes %v, %d have not ended within a minute", pids, alive)
		}
	}
}
