//go:build e2e

package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// nomadNode adds a node to the agent's cluster until the test ends, one with the metadata "further". It does not see
// the folders that are hidden.
func nomadNode(t *testing.T, name string, hidden ...string) {
	t.Helper()
	nomadScript(t, "node", append([]string{name}, hidden...)...)
	t.Cleanup(func() { nomadScript(t, "remove", name) })
}

// nomadScript runs a command of scripts/nomad.sh.
func nomadScript(t *testing.T, does string, arguments ...string) string {
	t.Helper()
	return command(t, append([]string{filepath.Join(repository(t), "scripts", "nomad.sh"), does,
		os.Getenv("RECIPE_NOMAD_STATE")}, arguments...)...)
}

// furtherNodes are edits by which blocks run on such nodes only.
var furtherNodes = []string{"{ executor = CLUSTER }", "{\n executor = CLUSTER\n constraints = [\"further\"]\n}",
	`memory   = "64MiB"`, `constraints = ["further"]`}

// TestNomadStaged trains on a node that sees neither the run's folder nor the recipe program, with inference here: has
// the trainer's job stopped, sees its next one go on from the checkpoint that came here, and kills the engine.
func TestNomadStaged(t *testing.T) {
	r := newNomadRun(t, append([]string{"EXECUTOR", `executor "nomad" "cluster" {
  files   = "staged"
  scratch = "` + filepath.Join(os.TempDir(), "scratch") + `"
}`, "steps        = 60", "steps        = 200"}, furtherNodes...)...)
	nomadNode(t, "apart", os.TempDir(), repository(t))
	nomadApply(r)
	r.stepped(0)
	job := nomadJobs(t)[r.trainer]
	if job.Node != "apart" {
		t.Errorf("the trainer is on %s", job.Node)
	}
	var stopped struct{}
	nomad(t, http.MethodDelete, "/v1/job/"+job.ID, &stopped)
	r.asked(2 * time.Minute)
	r.hasCheckpoint()
	r.killEngine()
	r.apply()
	r.await(time.Minute, "the trainer to be adopted", 0, func(e event) bool {
		return e.Type == "adopted" && e.Address == r.trainer
	})
	if err := r.wait(5 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, r.story())
	}
	noNomadJobs(t)
	r.movedByDelta()
	if left := strings.TrimSpace(nomadScript(t, "admin", "/v1/vars")); left != "[]" {
		t.Errorf("variables of the jobs are left: %s", left)
	}
}

// TestNomadDrain drains the trainer's node: the trainer writes a checkpoint, and goes on with the next step on another.
func TestNomadDrain(t *testing.T) {
	r := newNomadRun(t, append(furtherNodes, "steps        = 60", "steps        = 100000")...)
	nomadNode(t, "n2")
	nomadNode(t, "n3")
	nomadApply(r)
	r.stepped(0)
	node := nomadJobs(t)[r.trainer].Node
	nomadScript(t, "drain", node)
	r.asked(2 * time.Minute)
	if now := nomadJobs(t)[r.trainer].Node; now == node {
		t.Errorf("the trainer is on %s again, which is drained", now)
	}
	r.ask("stop")
	noNomadJobs(t)
}

// TestNomadNodeLost kills everything on the trainer's node: the run goes on from the last checkpoint on another.
func TestNomadNodeLost(t *testing.T) {
	r := newNomadRun(t, append(furtherNodes, "steps        = 60", "steps        = 100000\n  save_every   = 5")...)
	nomadNode(t, "n2")
	nomadNode(t, "n3")
	nomadApply(r)
	r.await(2*time.Minute, "a checkpoint", 0, func(e event) bool { return e.Type == "checkpoint" })
	node := nomadJobs(t)[r.trainer].Node
	killed := time.Now()
	nomadScript(t, "kill", node)
	lost := r.await(3*time.Minute, "the loss to be seen", 0, func(e event) bool {
		return e.Type == "restart" && e.Address == r.trainer
	})
	t.Logf("after %s: %s", time.Since(killed).Round(time.Second), lost.Message)
	if want := "its node does not answer"; !strings.Contains(lost.Message, want) {
		t.Errorf("the restart is explained by %q; expected %q in it", lost.Message, want)
	}
	r.stepped(lost.Seq)
	t.Logf("failover in %s", time.Since(killed).Round(time.Second))
	if now := nomadJobs(t)[r.trainer].Node; now == node {
		t.Errorf("the trainer is on %s again, which was lost", now)
	}
	r.ask("stop")
	noNomadJobs(t)
}
