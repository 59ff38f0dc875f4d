//go:build e2e

package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// nomadRecipe is for any executor: EXECUTOR is the line that differs.
const nomadRecipe = `
recipe {
  required_plugins { nomad = { source = "PROGRAM" } }
}

EXECUTOR

inference "tiny" "policy" {}

environment "arithmetic" "sums" {
  inference  = inference.tiny.policy
  group_size = 16
  placement { executor = CLUSTER }
}

trainer "tiny" "policy" {
  environments = [environment.arithmetic.sums]
  steps        = 60
  batch_size   = 256
  placement {
    executor = CLUSTER
    memory   = "64MiB"
  }
}

sync "weights" "policy" {
  trainer   = trainer.tiny.policy
  inference = [inference.tiny.policy]
}
`

const (
	nomadEnvironment = "environment.arithmetic.sums"
	nomadExecutor    = `executor "nomad" "cluster" {}`
)

// newNomadRun is a run on the agent of scripts/nomad.sh; edits are pairs of text and what replaces it.
func newNomadRun(t *testing.T, edits ...string) *run {
	t.Helper()
	if os.Getenv("NOMAD_ADDR") == "" {
		t.Skip("NOMAD_ADDR names no Nomad agent: make e2e-nomad starts one")
	}
	r := &run{t: t, dir: t.TempDir(), recipe: "nomad.hcl", trainer: "trainer.tiny.policy"}
	text := strings.NewReplacer(edits...).Replace(nomadRecipe)
	text = strings.NewReplacer("EXECUTOR", nomadExecutor, "CLUSTER", "executor.nomad.cluster", "PROGRAM",
		filepath.Join(repository(t), "bin", "nomad")).Replace(text)
	if err := os.WriteFile(filepath.Join(r.dir, r.recipe), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

// nomadApply is apply, with its end when the test ends.
func nomadApply(r *run) {
	r.t.Helper()
	r.t.Cleanup(r.cleanup)
	r.apply()
}

// nomad asks Nomad's API.
func nomad(t *testing.T, method, path string, into any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, os.Getenv("NOMAD_ADDR")+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Nomad-Token", os.Getenv("NOMAD_TOKEN"))
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if err := json.NewDecoder(answer.Body).Decode(into); answer.StatusCode != http.StatusOK || err != nil {
		t.Fatalf("%s %s: %s, %v", method, path, answer.Status, err)
	}
}

// nomadJob is a job of Nomad, with its allocation.
type nomadJob struct{ ID, Name, Status, Allocation, Node string }

// nomadJobs are those of blocks of this test that are not over, by the blocks' addresses.
func nomadJobs(t *testing.T) map[string]nomadJob {
	t.Helper()
	var jobs []nomadJob
	nomad(t, http.MethodGet, "/v1/jobs?prefix=recipe-", &jobs)
	found := map[string]nomadJob{}
	for _, j := range jobs {
		var allocations []struct{ ID, NodeName string }
		nomad(t, http.MethodGet, "/v1/job/"+j.ID+"/allocations", &allocations)
		if len(allocations) > 0 {
			j.Allocation, j.Node = allocations[0].ID, allocations[0].NodeName
		}
		if j.Status != "dead" {
			found[strings.TrimPrefix(j.Name, "recipe ")] = j
		}
	}
	return found
}

// noNomadJobs waits until all jobs are over.
func noNomadJobs(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		left := nomadJobs(t)
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after a minute there are still the jobs %+v", left)
		}
	}
}

// TestNomadComplies runs the compliance suite on the program, with a second node for jobs of two machines.
func TestNomadComplies(t *testing.T) {
	r := newNomadRun(t)
	nomadNode(t, "n2")
	t.Log(command(t, r.binary(), "plugin", "test", filepath.Join(repository(t), "bin", "nomad"), "-r",
		filepath.Join(r.dir, r.recipe)))
}

// TestNomadQuickstart trains with trainer and environment in jobs of Nomad, kills the engine, has a job stopped by
// somebody else, and sees the run complete with nothing left. The same recipe runs here when one line is another.
func TestNomadQuickstart(t *testing.T) {
	here := newNomadRun(t, "EXECUTOR", `executor "local" "cluster" {}`, "CLUSTER", "executor.local.cluster", "60", "2")
	nomadApply(here)
	if err := here.wait(2 * time.Minute); err != nil {
		t.Fatalf("with another executor: %v\n%s", err, here.story())
	}

	r := newNomadRun(t)
	nomadApply(r)
	r.await(2*time.Minute, "the fifth step", 0, func(e event) bool { return e.Type == "metrics" && e.Step >= 5 })
	for _, block := range []string{nomadEnvironment, r.trainer} {
		began := r.await(time.Minute, block+" to be started", 0, func(e event) bool { return e.Address == block })
		ready := r.await(time.Minute, block+" to be ready", 0, func(e event) bool {
			return e.Address == block && e.Phase == "ready"
		})
		t.Logf("%s: ready %s after its start", block, ready.Time.Sub(began.Time))
	}
	before := nomadJobs(t)
	if len(before) != 2 {
		t.Errorf("the jobs are %+v; expected one of the environment and one of the trainer", before)
	}
	r.killEngine()
	r.apply()
	for block := range before {
		r.await(time.Minute, block+" to be adopted", 0, func(e event) bool {
			return e.Type == "adopted" && e.Address == block
		})
	}
	after := nomadJobs(t)
	for block, j := range before {
		if after[block] != j {
			t.Errorf("%s has the job %+v after the engine was killed; before it was %+v", block, after[block], j)
		}
	}

	var stopped struct{}
	nomad(t, http.MethodDelete, "/v1/job/"+after[nomadEnvironment].ID, &stopped)
	r.await(time.Minute, "the environment to be restarted", 0, func(e event) bool {
		return e.Type == "restart" && e.Address == nomadEnvironment
	})
	if err := r.wait(5 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, r.story())
	}
	noNomadJobs(t)
}

// TestNomadPending asks for more memory than there is: the job waits, it is said why, and destroy gives it back without
// an engine and without the recipe.
func TestNomadPending(t *testing.T) {
	r := newNomadRun(t, "64MiB", "64TiB")
	nomadApply(r)
	waits := r.await(time.Minute, "a job to wait", 0, func(e event) bool {
		return e.Address == r.trainer && strings.Contains(e.Message, "is pending: Dimension")
	})
	if !strings.Contains(waits.Message, `Dimension "memory" exhausted on 1 nodes`) {
		t.Errorf("the log says %q; expected Nomad's own words", waits.Message)
	}
	if said := r.ask("status"); !strings.Contains(said, `Dimension "memory" exhausted`) {
		t.Errorf("recipe status does not say why the job waits:\n%s", said)
	}
	r.killEngine()
	if err := os.Remove(filepath.Join(r.dir, r.recipe)); err != nil {
		t.Fatal(err)
	}
	if len(nomadJobs(t)) != 2 {
		t.Errorf("the jobs are %+v; expected one that runs and one that waits", nomadJobs(t))
	}
	r.ask("destroy", "--auto-approve", "--checkpoints")
	noNomadJobs(t)
	// The executor's process ends itself when it sees that its engine is gone.
	for end := time.Now().Add(10 * time.Second); len(processes(t, r.dir)) > 0 && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
}

// TestNomadFailedJob runs jobs as a user who may not enter the folder of the test: Nomad's own words say so.
func TestNomadFailedJob(t *testing.T) {
	r := newNomadRun(t, "EXECUTOR", `executor "nomad" "cluster" { user = "nobody" }`)
	nomadApply(r)
	failed := r.await(2*time.Minute, "the environment to fail", 0, func(e event) bool {
		return e.Address == nomadEnvironment && strings.Contains(e.Message, "ended before its agent had connected")
	})
	if want := "fork/exec /bin/sh: permission denied"; !strings.Contains(failed.Message, want) {
		t.Errorf("the log says %q; expected %q in it", failed.Message, want)
	}
	_ = r.wait(3 * time.Minute) // it gives up
	noNomadJobs(t)
}

// TestNomadIsAsked plans and checks jobs that Nomad refuses or can never start, and those that it takes.
func TestNomadIsAsked(t *testing.T) {
	for what, c := range map[string]struct {
		edits   []string
		environ string
		said    []string
	}{
		"taken": {[]string{`memory   = "64MiB"`, `constraints = ["pool=cpu", "attr.kernel.name=linux"]`}, "", nil},
		"no such node": {[]string{`memory   = "64MiB"`, `constraints = ["pool=gpu"]`}, "", []string{
			`Constraint "${meta.pool} = gpu": 1 nodes excluded by filter`, "change placement"}},
		"no GPUs": {[]string{`memory   = "64MiB"`, "gpus = 1"}, "", []string{`1 nodes excluded by filter`}},
		"no such token": {nil, "NOMAD_TOKEN=00000000-0000-0000-0000-000000000000", []string{"Nomad: ",
			"set NOMAD_TOKEN to a token"}},
		"no such namespace": {[]string{"EXECUTOR", `executor "nomad" "cluster" { namespace = "x" }`}, "", []string{
			`nonexistent namespace "x"`, "correct the executor block"}},
	} {
		t.Run(what, func(t *testing.T) {
			r := newNomadRun(t, c.edits...)
			for _, argv := range [][]string{{"plan", r.recipe}, {"doctor", r.recipe, "--executor", "nomad.cluster"}} {
				cmd := exec.Command(r.binary(), argv...)
				cmd.Dir, cmd.Env = r.dir, append(os.Environ(), c.environ)
				out, err := cmd.CombinedOutput()
				if (err != nil) != (what != "taken") {
					t.Errorf("recipe %s: %v\n%s", argv[0], err, out)
				}
				for _, text := range c.said {
					if !strings.Contains(string(out), text) {
						t.Errorf("recipe %s does not say %q:\n%s", argv[0], text, out)
					}
				}
			}
		})
	}
}

// TestNomadIsNotThere plans without an agent: the plan is shown all the same, and says that Nomad was not asked.
func TestNomadIsNotThere(t *testing.T) {
	r := newNomadRun(t, "EXECUTOR", `executor "nomad" "cluster" { address = "http://127.0.0.1:9" }`)
	out := command(t, r.binary(), "plan", filepath.Join(r.dir, r.recipe))
	for _, want := range []string{"gets (json)", `"Type": "batch"`, "it was not asked about its jobs"} {
		if !strings.Contains(out, want) {
			t.Errorf("the plan does not say %q:\n%s", want, out)
		}
	}
}
