//go:build e2e

package e2e

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestSlurmStoreAfterHostLost trains with trainer grpo on a host that shares no files with any other machine. When two
// of four steps are in the store, everything on it is killed, and the copies that the engine has of its checkpoints are
// removed. The next attempt, on the other host, fetches the newest from the store. The weights are those of a run
// without a break on this machine, and another run can be forked from them.
//
//docs:checkpoints.md In a bucket, too
func TestSlurmStoreAfterHostLost(t *testing.T) {
	if os.Getenv("RECIPE_S3") == "" {
		t.Skip("RECIPE_S3 names no store's program: scripts/s3.sh build makes one")
	}
	uninterrupted := storedRunTo4(t, newS3(t), func(*run) {})

	r := newSlurmRun(t)
	head := regexp.MustCompile(`SlurmctldHost\[0\]\s*= \w+\(([\d.]+)\)`).FindStringSubmatch(command(t, "scontrol", "show",
		"config"))
	if head == nil {
		t.Fatal("the cluster does not tell the address of its controller, this machine's for the hosts")
	}
	s := newS3At(t, head[1])
	python := torchPython(t)
	r.onNodes(python, 4, 1, `{ partition = "gpu" }`, "{\n partition = \"gpu\"\n files = \"staged\"\n}",
		"placement {", s.checkpoints()+"placement {")
	for _, name := range []string{"n1", "n2"} {
		apart(t, name, foldersOf(t, python)...)
	}
	r.apply()
	r.isReady(0)
	_, lost := jobOf(t, r.trainer)
	r.replay(8)
	r.isStored(2)

	from := r.last()
	host(t, "kill", lost)
	r.loses("checkpoints")
	r.await(90*time.Second, "the loss of the host to be seen", from, func(e event) bool {
		return e.Type == "restart" && e.Address == r.trainer
	})
	r.isFetched(2, from)
	r.isReady(from)
	if _, now := jobOf(t, r.trainer); now == lost {
		t.Errorf("the next attempt is on %s, which was lost", now)
	}
	r.replay(8)
	r.complete()
	text, err := os.ReadFile(filepath.Join(r.dir, r.recipe))
	if err == nil {
		err = os.WriteFile(filepath.Join(r.dir, "forked.hcl"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	fork := exec.Command(r.binary(), "fork", "-r", s.address(), "forked.hcl")
	fork.Dir = r.dir
	if out, err := fork.CombinedOutput(); err != nil || !strings.Contains(string(out), "continues from step 4") {
		t.Errorf("recipe fork from the store: %v\n%s", err, out)
	}
	if got := s.trained(4); len(got) < 2 || !maps.Equal(uninterrupted, got) {
		t.Errorf("without a break the last step has %v, after the loss of its host %v", uninterrupted, got)
	}
}
