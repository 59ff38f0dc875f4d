//go:build e2e

package e2e

import (
	"os"
	"testing"
	"time"
)

// fromTheNode are volumes by which pods get what their image lacks: bash and coreutils.
const fromTheNode = `  files = "staged"
  dynamic "volume" {
    for_each = { "/usr" = "/usr", "/bin" = "/usr/bin", "/lib" = "/usr/lib", "/lib64" = "/usr/lib64" }
    content {
      path      = volume.key
      host_path = volume.value
      read_only = true
    }
  }
`

// TestKubernetesStaged trains in pods that share no files with the engine's machine, where inference is: evicts the
// trainer's pod, sees its next one go on from the checkpoint that came here, and kills the engine.
func TestKubernetesStaged(t *testing.T) {
	r := newKubernetesRun(t, "steps        = 60", "steps        = 200", `  volume {
    path      = "SHARED"
    host_path = "SHARED"
  }
`, fromTheNode)
	r.start()
	r.stepped(0)
	r.evict(r.pod(r.trainer))
	r.asked(2 * time.Minute)
	r.hasCheckpoint()
	r.killEngine()
	r.apply()
	r.await(time.Minute, "the trainer to be adopted", 0, func(e event) bool {
		return e.Type == "adopted" && e.Address == r.trainer
	})
	r.completes()
	r.movedByDelta()
}

// movedByDelta checks how the weights of the run have moved.
func (r *run) movedByDelta() {
	r.t.Helper()
	updates := r.all(func(e event) bool { return e.Type == "weights" })
	if len(updates) == 0 {
		r.t.Error("no weights were moved")
	}
	for _, e := range updates {
		if e.Transport != "delta" {
			r.t.Errorf("version %d went by %q; expected delta", e.Version, e.Transport)
		}
	}
}

// hasCheckpoint checks that the last checkpoint of the trainer is on this machine.
func (r *run) hasCheckpoint() {
	r.t.Helper()
	saved := r.all(func(e event) bool { return e.Type == "checkpoint" && e.Address == r.trainer })
	if len(saved) == 0 {
		r.t.Fatalf("no checkpoint was reported\n%s", r.story())
	}
	if _, err := os.Stat(saved[len(saved)-1].Path); err != nil {
		r.t.Errorf("the checkpoint of the pod is reported, and not here: %v", err)
	}
}
