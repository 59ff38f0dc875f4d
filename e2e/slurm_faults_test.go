//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stepped waits until the trainer has done a step after the event with the given number.
func (r *run) stepped(after int64) event {
	r.t.Helper()
	return r.await(2*time.Minute, "a further step", after, func(e event) bool {
		return e.Type == "metrics" && e.Address == r.trainer && e.Step > 0
	})
}

// last is the number of the newest event.
func (r *run) last() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) == 0 {
		return 0
	}
	return r.events[len(r.events)-1].Seq
}

// steps are those that the trainer has reported, in order.
func (r *run) steps() (out []int64) {
	for _, e := range r.all(func(e event) bool { return e.Type == "metrics" && e.Address == r.trainer }) {
		if len(out) == 0 || out[len(out)-1] != e.Step {
			out = append(out, e.Step)
		}
	}
	return out
}

// restarts counts those of a block.
func (r *run) restarts(block string) int {
	return len(r.all(func(e event) bool { return e.Type == "restart" && e.Address == block }))
}

// complete waits for the end of the run, and sees that nothing is left in the queue.
func (r *run) complete() {
	r.t.Helper()
	if err := r.wait(3 * time.Minute); err != nil {
		r.t.Fatalf("apply: %v\n%s", err, r.story())
	}
	noJobsLeft(r.t)
}

// ask runs a command about the run, and returns what it has printed.
func (r *run) ask(argv ...string) string {
	r.t.Helper()
	cmd := exec.Command(r.binary(), append(argv, "--recipe", r.recipe)...)
	cmd.Dir = r.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Errorf("recipe %s: %v\n%s", argv[0], err, out)
	}
	return string(out)
}

// TestSlurmIsAsked plans and checks jobs that the cluster refuses, and one that it takes.
func TestSlurmIsAsked(t *testing.T) {
	for what, c := range map[string]struct {
		edits []string
		said  []string
	}{
		"taken": {nil, []string{"the cluster would start it at ", "on nodes n3 in partition cpu"}},
		"no such partition": {[]string{`partition = "cpu"`, `partition = "nope"`},
			[]string{"refuses its job: ", "invalid partition specified: nope", "the cluster has partition gpu: 2 machines"}},
		"too many GPUs": {[]string{"gpus       = 1", "gpus = 3"},
			[]string{"node configuration is not available", "lower gpus, cpus or memory"}},
		"above the time limit": {[]string{`"30m"`, `"30h"`},
			[]string{"its time limit of 30h0m0s is above the limit of partition gpu (1h0m0s)", "lower time_limit"}},
	} {
		r := newSlurmRun(t, c.edits...)
		for _, argv := range [][]string{{"plan", r.recipe}, {"doctor", r.recipe, "--executor", "slurm.gpu"},
			{"doctor", r.recipe, "--executor", "slurm.cpu"}} {
			cmd := exec.Command(r.binary(), argv...)
			cmd.Dir = r.dir
			out, err := cmd.CombinedOutput()
			if argv[0] == "doctor" {
				about := (argv[3] == "slurm.cpu") == (what == "taken" || what == "no such partition")
				if failed := err != nil; about && failed != (what != "taken") {
					t.Errorf("%s: recipe %s: %v\n%s", what, strings.Join(argv, " "), err, out)
				}
				continue
			}
			for _, text := range c.said {
				if !strings.Contains(string(out), text) {
					t.Errorf("%s: recipe plan does not say %q:\n%s", what, text, out)
				}
			}
			if refused := strings.Contains(string(out), "Error:"); refused != (what != "taken") {
				t.Errorf("%s: the plan is refused: %t (%v)\n%s", what, refused, err, out)
			}
		}
	}
	noJobsLeft(t)
}

// TestSlurmGPUs runs two blocks on one host: each sees the GPU that the cluster has given to its job.
func TestSlurmGPUs(t *testing.T) {
	r := newSlurmRun(t, "placement { executor = executor.slurm.cpu }", `placement {
    executor = executor.slurm.gpu
    gpus     = 1
    memory   = "1GiB" // without it Slurm gives a job all of the host's
    host     = "n1"
  }`, `time_limit = "30m"`, `host = "n1"`)
	r.apply()
	r.stepped(0)
	seen := map[string]string{}
	for pid, line := range processes(t, r.dir) {
		data, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
		for _, entry := range strings.Split(string(data), "\x00") {
			if gpus, ok := strings.CutPrefix(entry, "CUDA_VISIBLE_DEVICES="); ok {
				for _, block := range []string{r.trainer, "environment.arithmetic.sums"} {
					if strings.Contains(line, "plugin-process "+block) {
						seen[block] = gpus
					}
				}
			}
		}
	}
	if a, b := seen[r.trainer], seen["environment.arithmetic.sums"]; a+b != "01" && a+b != "10" {
		t.Errorf("the blocks see GPUs %v; expected one each, 0 and 1", seen)
	}
	r.ask("stop")
	noJobsLeft(t)
}

// TestSlurmPending kills the engine while a job waits for a GPU: the next engine waits for the same job. Then the run
// fails, and gives everything back.
func TestSlurmPending(t *testing.T) {
	r := newSlurmRun(t, "gpus       = 1", `gpus = 2
    host = "n1"`, "steps        = 60", `steps = 60
  restart { attempts = 0 }`)
	blocker := command(t, "sbatch", "--parsable", "--partition=gpu", "--nodelist=n1", "--gres=gpu:1",
		"--chdir=/", "--output=/dev/null", "--wrap=sleep 600")
	t.Cleanup(func() { command(t, "scancel", blocker) })
	r.apply()
	pending := func(e event) bool {
		return e.Address == r.trainer && strings.Contains(e.Message, "is pending: Resources")
	}
	r.await(time.Minute, "the trainer's job to wait", 0, pending)
	const why = "(the machines that it needs are in use), number 1 in the queue"
	if said := r.ask("status"); !strings.Contains(said, why) {
		t.Errorf("recipe status does not say why the job waits:\n%s", said)
	}
	before, _ := jobOf(t, r.trainer)
	r.killEngine()
	from := r.last()
	r.apply()
	r.await(time.Minute, "the next engine to wait for it", from, func(e event) bool {
		return strings.Contains(e.Message, "job "+before+" of an earlier engine is taken over")
	})
	command(t, "scancel", blocker)
	r.stepped(from)
	after, node := jobOf(t, r.trainer)
	if after != before || node != "n1" {
		t.Errorf("the trainer runs in job %s on %s; expected job %s, which was pending, on n1", after, node, before)
	}

	command(t, "scancel", after)
	if err := r.wait(time.Minute); err == nil {
		t.Error("the run completed although its trainer may not be restarted")
	}
	noJobsLeft(t)
}

// TestSlurmHostLost kills everything on the trainer's host: the run goes on from the last checkpoint on another one.
func TestSlurmHostLost(t *testing.T) {
	r := newSlurmRun(t, "steps        = 60", "steps        = 60\n  save_every   = 5")
	r.apply()
	r.await(2*time.Minute, "a checkpoint", 0, func(e event) bool { return e.Type == "checkpoint" })
	_, node := jobOf(t, r.trainer)
	killed := time.Now()
	host(t, "kill", node)
	t.Cleanup(func() { host(t, "start", node) })
	lost := r.await(90*time.Second, "the loss to be seen", 0, func(e event) bool {
		return e.Type == "restart" && e.Address == r.trainer
	})
	t.Logf("after %s: %s", time.Since(killed).Round(time.Second), lost.Message)
	r.stepped(lost.Seq)
	t.Logf("failover in %s", time.Since(killed).Round(time.Second))
	if _, now := jobOf(t, r.trainer); now == node || now == "" {
		t.Errorf("the trainer runs on %q again, which was lost", now)
	}
	r.complete()
	if n := r.restarts(r.trainer); n != 1 {
		t.Errorf("%d restarts; expected one", n)
	}
}

// TestSlurmAgentKilled kills the agent of the trainer's job and nothing else: Slurm's plainest way to track processes,
// which this cluster uses, loses sight of what the agent had started. The run goes on in another job, and nothing of
// the first is left.
func TestSlurmAgentKilled(t *testing.T) {
	r := newSlurmRun(t, "steps        = 60", "steps        = 60\n  save_every   = 5")
	r.apply()
	r.await(2*time.Minute, "a checkpoint", 0, func(e event) bool { return e.Type == "checkpoint" })
	first, _ := jobOf(t, r.trainer)
	var started []int
	agents := 0
	for pid, line := range processes(t, r.dir) {
		switch {
		case strings.Contains(line, " plugin-process "+r.trainer):
			started = append(started, pid)
		case strings.Contains(line, " agent ") && strings.Contains(line, filepath.Join(r.trainer, "agent.json")):
			_ = syscall.Kill(pid, syscall.SIGKILL)
			agents++
		}
	}
	if agents == 0 || len(started) == 0 {
		t.Fatalf("no agent with a plugin of %s among %v", r.trainer, processes(t, r.dir))
	}
	lost := r.await(90*time.Second, "the loss to be seen", 0, func(e event) bool {
		return e.Type == "restart" && e.Address == r.trainer
	})
	t.Logf("the loss: %s", lost.Message)
	r.stepped(lost.Seq)
	for _, pid := range started {
		if line, ok := processes(t, r.dir)[pid]; ok {
			t.Errorf("process %d of the first job goes on: %s", pid, line)
		}
	}
	if now, _ := jobOf(t, r.trainer); now == first {
		t.Errorf("the trainer runs in job %s again", now)
	}
	r.complete()
	if n := r.restarts(r.trainer); n != 1 {
		t.Errorf("%d restarts; expected one", n)
	}
}

// TestSlurmNetworkCut takes the network of the trainer's host away for 30 s: nothing is restarted, and no step is lost
// or done twice.
func TestSlurmNetworkCut(t *testing.T) {
	r := newSlurmRun(t, "steps        = 60", "steps        = 120")
	host(t, "patience", "300") // Slurm itself would give up the host
	t.Cleanup(func() { host(t, "patience", "10") })
	r.apply()
	r.stepped(0)
	id, node := jobOf(t, r.trainer)
	host(t, "cut", node)
	t.Cleanup(func() { host(t, "join", node) })
	time.Sleep(30 * time.Second) // the length of the cut
	host(t, "join", node)
	joined := time.Now()
	r.stepped(r.last())
	t.Logf("a step %s after the network was back", time.Since(joined).Round(time.Second))
	if now, _ := jobOf(t, r.trainer); now != id {
		t.Errorf("the trainer is in job %s now; expected %s", now, id)
	}
	r.complete()
	steps := r.steps()
	if want := int(steps[len(steps)-1]); len(steps) != want || want != 120 || !slices.IsSorted(steps) {
		t.Errorf("the steps are %v; expected 1 to 120, each once", steps)
	}
	if n := len(r.all(func(e event) bool { return e.Type == "restart" })); n > 0 {
		t.Errorf("%d blocks were restarted\n%s", n, r.story())
	}
}

// asked sees a trainer through the end that its cluster has asked for: it writes a checkpoint of its last step, and a
// new job goes on with the next one.
func (r *run) asked(limit time.Duration) {
	r.t.Helper()
	again := r.await(limit, "the trainer to be asked to end", 0, func(e event) bool {
		return e.Type == "restart" && e.Address == r.trainer
	})
	if !strings.Contains(again.Message, "its cluster has asked its job to end") {
		r.t.Errorf("the restart is explained by %q; expected that the cluster has asked for the end", again.Message)
	}
	next := r.stepped(again.Seq)
	saved := r.all(func(e event) bool { return e.Type == "checkpoint" && e.Seq < again.Seq })
	if len(saved) == 0 || saved[len(saved)-1].Step != next.Step-1 {
		r.t.Errorf("the trainer goes on with step %d; the checkpoints before are %v", next.Step, saved)
	}
	// The step of the checkpoint may have been without its metrics yet; none is done twice.
	if steps := r.steps(); !slices.IsSorted(steps) || int64(len(steps)) < steps[len(steps)-1]-1 {
		r.t.Errorf("the steps are %v; expected each once, in order", steps)
	}
}

// TestSlurmTimeLimit lets the trainer's job reach its time limit. Meanwhile the use of each host is recorded, by its
// name and that of the block that runs there.
func TestSlurmTimeLimit(t *testing.T) {
	r := newSlurmRun(t, `"30m"`, `"2m"`, "steps        = 60", "steps        = 100000")
	r.apply()
	r.stepped(0)
	for _, block := range []string{r.trainer, "environment.arithmetic.sums"} {
		_, node := jobOf(t, block)
		r.await(time.Minute, "samples of "+node+", where "+block+" runs", 0, func(e event) bool {
			return e.Type == "machine" && e.Address == block && e.Host == node && e.Metrics["memory_bytes"] > 0
		})
	}
	r.asked(2 * time.Minute)
	r.ask("stop")
	noJobsLeft(t)
}

// TestSlurmPreemption gives the trainer's GPUs to a job of a partition with a higher priority.
func TestSlurmPreemption(t *testing.T) {
	r := newSlurmRun(t, "gpus       = 1", "gpus       = 2", "steps        = 60", "steps        = 1000") // half a minute
	r.apply()
	r.stepped(0)
	_, node := jobOf(t, r.trainer)
	urgent := command(t, "sbatch", "--parsable", "--partition=urgent", "--nodelist="+node, "--gres=gpu:1",
		"--chdir=/", "--output=/dev/null", "--wrap=sleep 10")
	t.Cleanup(func() { command(t, "scancel", urgent) })
	r.asked(time.Minute)
	r.complete()
}
