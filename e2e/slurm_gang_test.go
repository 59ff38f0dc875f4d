//go:build e2e

package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newGangRun is a run whose inference and trainer need one host with GPUs each, of which the cluster has two.
func newGangRun(t *testing.T, gang string, edits ...string) *run {
	t.Helper()
	placement := `placement {
    executor = executor.slurm.gpu
    gpus     = 2
    cpus     = 1
    memory   = "1GiB"
    ` + gang + `
  }`
	const header = `inference "tiny" "policy" {`
	return newSlurmRun(t, append([]string{header + "}", header + "\n  " + placement + "\n}", "gpus       = 1",
		"gpus = 2\n    " + gang, "placement { executor = executor.slurm.cpu }", `placement {
    executor = executor.slurm.cpu
    memory   = "1GiB" // both runs have room for it
  }`}, edits...)...)
}

// pending waits until a job of a block waits for machines.
func (r *run) pending(block string, after int64) event {
	r.t.Helper()
	return r.await(time.Minute, block+" to wait for a machine", after, func(e event) bool {
		return e.Address == block && strings.Contains(e.Message, " is pending: ")
	})
}

// gangOf are the jobs of the run's inference and trainer that are in the queue, by the ID of the heterogeneous job.
func gangOf(t *testing.T) map[string]int {
	t.Helper()
	jobs := map[string]int{}
	for _, id := range squeue(t, "%i") {
		if job, _, component := strings.Cut(id, "+"); component {
			jobs[job]++
		}
	}
	return jobs
}

const tinyInference = "inference.tiny.policy"

// TestSlurmWithoutGangs shows what gangs are for: two runs take one host each for their inference, and the trainer of
// each waits for the host of the other.
func TestSlurmWithoutGangs(t *testing.T) {
	runs := []*run{newGangRun(t, ""), newGangRun(t, "")}
	before := command(t, "sbatch", "--parsable", "--partition=gpu", "--nodes=2", "--gres=gpu:2", "--chdir=/",
		"--output=/dev/null", "--wrap=sleep 600") // both are in the queue before one of them gets a host
	t.Cleanup(func() { command(t, "scancel", before) })
	for _, r := range runs {
		r.apply()
		r.pending(tinyInference, 0)
	}
	command(t, "scancel", before)
	for _, r := range runs {
		r.pending(r.trainer, 0)
	}
	if states := strings.Join(squeue(t, "%P,%T"), " "); strings.Count(states, "gpu,RUNNING") != 2 ||
		strings.Count(states, "gpu,PENDING") != 2 {
		t.Errorf("the queue is %q; expected two jobs that run and two that wait for them", states)
	}
	for _, r := range runs {
		r.ask("stop")
	}
	noJobsLeft(t)
}

// TestSlurmGangs has two gangs compete for the hosts of one. The second waits as a whole, through the loss of its
// engine, until the first is stopped, and trains then.
func TestSlurmGangs(t *testing.T) {
	const gang = `gang = "policy"`
	first, second := newGangRun(t, gang, "steps        = 60", "steps        = 1000000"), newGangRun(t, gang)
	if said := first.planned(); strings.Count(said, "#SBATCH hetjob") != 1 ||
		!strings.Contains(said, "starts with "+tinyInference) {
		t.Errorf("recipe plan does not show one heterogeneous job of two components:\n%s", said)
	}
	first.apply()
	first.await(time.Minute, "its jobs to run", 0, func(e event) bool {
		return e.Address == first.trainer && e.Phase == "ready"
	})
	second.apply()
	second.pending(tinyInference, 0)
	if said := second.ask("status"); !strings.Contains(said, "is pending: ") {
		t.Errorf("recipe status does not say why the gang waits:\n%s", said)
	}
	before := gangOf(t)
	second.killEngine()
	from := second.last()
	second.apply()
	second.await(time.Minute, "the gang to be taken over", from, func(e event) bool {
		return e.Address == tinyInference && strings.Contains(e.Message, "was submitted with gang policy")
	})
	for id, components := range gangOf(t) {
		if before[id] != 2 || components != 2 {
			t.Errorf("after the engine was killed, the gangs are %v; expected %v", gangOf(t), before)
		}
	}
	first.ask("stop")
	if err := second.wait(5 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, second.story())
	}
	for _, r := range []*run{first, second} {
		if n := len(r.all(func(e event) bool { return e.Type == "restart" })); n > 0 {
			t.Errorf("%d blocks were restarted\n%s", n, r.story())
		}
	}
	noJobsLeft(t)
}

// TestSlurmGangRestarts kills the agent of the trainer: its gang ends, and starts again as a new one from the last
// checkpoint. Then a pending gang is destroyed without an engine.
func TestSlurmGangRestarts(t *testing.T) {
	const gang = `gang = "policy"`
	r := newGangRun(t, gang, "steps        = 60", "steps        = 100000\n  save_every   = 5")
	r.apply()
	r.await(2*time.Minute, "a checkpoint", 0, func(e event) bool { return e.Type == "checkpoint" })
	before := gangOf(t)
	r.killAgent(r.trainer)
	var again event
	for _, block := range []string{r.trainer, tinyInference} {
		restarted := r.await(2*time.Minute, block+" to be restarted", 0, func(e event) bool {
			return e.Type == "restart" && e.Address == block
		})
		again.Seq = max(again.Seq, restarted.Seq)
	}
	r.stepped(again.Seq)
	for id, components := range gangOf(t) {
		if before[id] > 0 || components != 2 {
			t.Errorf("the gangs are %v after the restart; expected a new one of two jobs, as %v was", gangOf(t), before)
		}
	}

	waiting := newGangRun(t, gang)
	waiting.apply()
	waiting.pending(tinyInference, 0)
	waiting.killEngine()
	cmd := exec.Command(waiting.binary(), "destroy", "--auto-approve", "--recipe", waiting.recipe)
	cmd.Dir = waiting.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("recipe destroy: %v\n%s", err, out)
	}
	if left := gangOf(t); len(left) != 1 {
		t.Errorf("after destroy, the gangs are %v; expected that of the other run", left)
	}
	r.ask("stop")
	noJobsLeft(t)
	if n := r.restarts(r.trainer); n != 1 {
		t.Errorf("%d restarts of the trainer; expected one\n%s", n, r.story())
	}
}

// planned is what `recipe plan` prints.
func (r *run) planned() string {
	r.t.Helper()
	cmd := exec.Command(r.binary(), "plan", r.recipe)
	cmd.Dir = r.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("recipe plan: %v\n%s", err, out)
	}
	return string(out)
}

// killAgent kills the agent of a block and its plugin process, as the end of a cgroup would.
func (r *run) killAgent(block string) {
	r.t.Helper()
	killed := 0
	for pid, line := range processes(r.t, r.dir) {
		program, _, _ := strings.Cut(line, " ")
		if filepath.Base(program) == "recipe" && (strings.Contains(line, " plugin-process "+block) ||
			strings.Contains(line, " agent ") && strings.Contains(line, filepath.Join(block, "agent.json"))) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			killed++
		}
	}
	if killed != 2 {
		r.t.Fatalf("%d processes are the agent of %s and its plugin; expected two: %v", killed, block, processes(r.t, r.dir))
	}
}
