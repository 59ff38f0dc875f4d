//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newStoredRun is a run on this machine that trains a random model with trainer grpo, four steps on groups that the
// test replays, and keeps each checkpoint in a store.
func newStoredRun(t *testing.T, s *s3) *run {
	t.Helper()
	r := &run{t: t, dir: t.TempDir(), recipe: "s3.hcl"}
	if err := os.WriteFile(filepath.Join(r.dir, r.recipe), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.cleanup)
	r.onNodes(torchPython(t), 4, 1, "executor \"slurm\" \"gpu\" { partition = \"gpu\" }\n", "",
		"executor = executor.slurm.gpu\n", "", "nodes    = NODES\n", "", "placement {", s.checkpoints()+"placement {")
	return r
}

// checkpoints are settings of a trainer that keeps each in the store.
func (s *s3) checkpoints() string {
	return fmt.Sprintf("checkpoints {\n every = 1\n store = %q\n }\n restart { attempts = 3 }\n", s.address())
}

// isStored waits until the checkpoint of a step is in the store.
func (r *run) isStored(step int) {
	r.t.Helper()
	r.await(2*time.Minute, fmt.Sprintf("the checkpoint of step %d in the store", step), 0, func(e event) bool {
		return e.Type == "log" && strings.Contains(e.Message, fmt.Sprintf("checkpoint of step %d is in s3://", step))
	})
}

// isFetched waits until the trainer fetches the checkpoint of a step, after the event with the given number.
func (r *run) isFetched(step int, after int64) {
	r.t.Helper()
	r.await(4*time.Minute, "the checkpoint to be fetched", after, func(e event) bool {
		return e.Type == "log" && strings.Contains(e.Message, fmt.Sprintf("fetches the checkpoint of step %d from", step))
	})
}

// trained are the digests of the files with weights, the optimizer's and the random states after a step, from the
// store's manifest.
func (s *s3) trained(step int64) map[string]string {
	s.t.Helper()
	m := s.manifests()[step]
	if m == nil {
		s.t.Fatalf("the store has no checkpoint of step %d", step)
	}
	digests := map[string]string{}
	for _, f := range m["files"].([]any) {
		file := f.(map[string]any)
		path, digest := file["path"].(string), file["sha256"].(string)
		if strings.HasSuffix(path, ".safetensors") || strings.Contains(path, "optim") ||
			strings.HasSuffix(path, "rng.pt") {
			digests[path] = digest
		}
	}
	return digests
}

// TestS3GRPO trains with trainer grpo, without a break and with one: engine and trainer are killed when two of four
// steps are in the store, and the folder of the checkpoints is emptied. Weights, optimizer and random states are
// equal bit for bit after the last step.
func TestS3GRPO(t *testing.T) {
	uninterrupted := storedRunTo4(t, newS3(t), func(*run) {})
	broken := storedRunTo4(t, newS3(t), func(r *run) {
		if err := syscall.Kill(r.cmd.Process.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = r.wait(time.Minute) // killed
		for pid, line := range processes(t, r.dir) {
			if strings.Contains(line, r.trainer) || strings.Contains(line, "-m worker") {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		r.loses("checkpoints")
		from := r.last()
		r.apply()
		r.isFetched(2, from)
		r.isReady(from)
	})
	if len(uninterrupted) < 2 || !maps.Equal(uninterrupted, broken) {
		t.Errorf("without a break the last step has %v, with one %v", uninterrupted, broken)
	}
}

// storedRunTo4 trains two steps, calls meanwhile, trains two more, and returns what the store has of the last.
func storedRunTo4(t *testing.T, s *s3, meanwhile func(*run)) map[string]string {
	t.Helper()
	r := newStoredRun(t, s)
	r.apply()
	r.isReady(0)
	r.replay(8)
	r.isStored(2)
	meanwhile(r)
	r.replay(8)
	if err := r.wait(3 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, r.story())
	}
	leaks := exec.Command("grep", "-rl", "the-key-that-nobody-prints", filepath.Join(r.dir, ".recipe"))
	if out, _ := leaks.Output(); len(out) > 0 {
		t.Errorf("the key is in %s", out)
	}
	return s.trained(4)
}
