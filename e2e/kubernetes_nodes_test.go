//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// withPython are volumes by which pods get, besides, Python environments and models, only to read: what an image of a
// user has. interpreter is that of such an environment.
func withPython(t *testing.T, interpreter string) string {
	t.Helper()
	// A compiler that is found at /bin looks for its headers in /include.
	more := `, "/include" = "/usr/include"`
	for _, folder := range foldersOf(t, interpreter) {
		more += fmt.Sprintf(`, %[1]q = %[1]q`, folder)
	}
	return strings.Replace(fromTheNode, " }\n", more+" }\n", 1)
}

// TestKubernetesTwoNodes trains a model in pods on both nodes at once, its weights spread over both (FSDP2, gloo). One
// rank is killed on the way: the attempt fails with the number of its machine, and the next one goes on. Losses are
// those of one pod.
//
//docs:clusters.md A trainer on several machines
func TestKubernetesTwoNodes(t *testing.T) {
	losses := map[int][]float64{}
	for _, nodes := range []int{1, 2} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			k := newPodsRun(t, nodes)
			k.start()
			k.await(4*time.Minute, "the trainer to be ready", 0, func(e event) bool {
				return e.Type == "phase" && e.Address == k.trainer && e.Phase == "ready"
			})
			on := map[string]bool{}
			for _, p := range k.items("pods") {
				on[p.Spec.Node] = p.Status.Phase == "Running"
			}
			if len(on) != nodes {
				t.Errorf("pods of a trainer with nodes = %d run on %v", nodes, on)
			}
			if nodes == 2 {
				k.killRank(1)
			}
			k.replay(16)
			k.completes()
			losses[nodes] = k.losses()
		})
	}
	sameLosses(t, losses)
}

// newPodsRun is a run of nodesRecipe on the cluster, in pods that have Python and the folder of the tests.
func newPodsRun(t *testing.T, nodes int) *kubernetesRun {
	t.Helper()
	k := newKubernetesRun(t)
	python := torchPython(t)
	executor, _, _ := strings.Cut(kubernetesRecipe, "inference ")
	volumes := strings.Replace(withPython(t, python), "  files = \"staged\"\n", "", 1)
	executor = strings.NewReplacer("NAMESPACE", k.namespace, "SHARED", os.Getenv("RECIPE_KUBERNETES_SHARED"),
		"  volume {\n", volumes+"  volume {\n").Replace(executor)
	k.onNodes(python, 4, nodes, `executor "slurm" "gpu" { partition = "gpu" }`, executor, "executor.slurm.gpu",
		"executor.kubernetes.cluster")
	return k
}
