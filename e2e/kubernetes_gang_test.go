//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const podGroups = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/"

// newKubernetesGangRun is a run whose inference and trainer need both GPUs of one node each; the cluster has two nodes.
func newKubernetesGangRun(t *testing.T, gang string, edits ...string) *kubernetesRun {
	t.Helper()
	if os.Getenv("RECIPE_KUBERNETES_SHARED") != "" && os.Getenv("RECIPE_KUBERNETES_GANGS") == "" {
		t.Skip("the cluster's scheduler for gangs is not built: scripts/kubernetes.sh build")
	}
	const header = `inference "tiny" "policy" {`
	placement := `placement {
    executor = executor.kubernetes.cluster
    gpus     = 2
    memory   = "1GiB"
    ` + gang + `
  }`
	return newKubernetesRun(t, append([]string{header + "}", header + "\n  " + placement + "\n}",
		"gpus     = 1", "gpus     = 2\n    " + gang, `    host     = "n1"`, "",
		`constraints = ["pool=n2"]`, "", // wherever there is room
		`image_pull_policy = "Never"`, "image_pull_policy = \"Never\"\n  gang_scheduler = \"coscheduling\""}, edits...)...)
}

// groups are the PodGroups of the run's namespace.
func (r *kubernetesRun) groups() (out []resource) {
	r.t.Helper()
	var list struct{ Items []resource }
	if err := json.Unmarshal([]byte(r.api(podGroups+r.namespace+"/podgroups")), &list); err != nil {
		r.t.Fatal(err)
	}
	return list.Items
}

func (r *kubernetesRun) noGangLeft() {
	r.t.Helper()
	r.nothingLeft()
	r.within("no PodGroup to be left", func() bool { return len(r.groups()) == 0 })
}

// placed counts the pods of the run's inference and trainer that have a node.
func (r *kubernetesRun) placed() (n int) {
	r.t.Helper()
	for _, p := range r.items("pods") {
		if p.Spec.Node != "" && !strings.Contains(p.Metadata.Name, "-environment-") {
			n++
		}
	}
	return n
}

// occupy has a pod take both GPUs of each node, until the function that it returns is called.
func (r *kubernetesRun) occupy() (free func()) {
	r.t.Helper()
	for _, node := range []string{"n1", "n2"} {
		r.create(r.namespace, "pods", fmt.Sprintf(`{"metadata": {"name": "before-%s"}, "spec": {"nodeName": %q,
			"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "recipe.test/recipe:1",
			"imagePullPolicy": "Never", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]}}`, node, node))
	}
	return func() {
		for _, node := range []string{"n1", "n2"} {
			r.api(r.core("pods/before-"+node), "-X", "DELETE")
		}
	}
}

// TestKubernetesWithoutGangs shows what gangs are for: two runs take one node each for their inference, and the trainer
// of each waits for the node of the other.
func TestKubernetesWithoutGangs(t *testing.T) {
	first, second := newKubernetesGangRun(t, ""), newKubernetesGangRun(t, "")
	free := first.occupy() // both wait before one of them gets a node
	for _, r := range []*kubernetesRun{first, second} {
		r.start()
		r.pending(tinyInference, 0)
	}
	free()
	for _, r := range []*kubernetesRun{first, second} {
		r.pending(r.trainer, 0)
		if n := r.placed(); n != 1 {
			t.Errorf("%d pods of a run have a node; expected inference's only", n)
		}
	}
	for _, r := range []*kubernetesRun{first, second} {
		r.ask("stop")
		r.noGangLeft()
	}
}

// TestKubernetesGangs has two gangs compete for the nodes of one. The second waits as a whole, through the loss of its
// engine, until the first is stopped, and trains then.
func TestKubernetesGangs(t *testing.T) {
	const gang = `gang     = "policy"`
	first := newKubernetesGangRun(t, gang, "steps        = 60", "steps        = 1000000")
	second := newKubernetesGangRun(t, gang)
	if said := first.planned(); strings.Count(said, "kind: PodGroup") != 1 ||
		!strings.Contains(said, "starts with "+tinyInference) {
		t.Errorf("recipe plan does not show one PodGroup of two Jobs:\n%s", said)
	}
	submitted := time.Now()
	first.start()
	ready := first.await(2*time.Minute, "its jobs to run", 0, func(e event) bool {
		return e.Address == first.trainer && e.Phase == "ready"
	})
	t.Logf("recipe apply → trainer of the gang ready: %s", ready.Time.Sub(submitted).Round(100*time.Millisecond))
	second.start()
	second.pending(tinyInference, 0)
	if said := second.ask("status"); !strings.Contains(said, "is pending: ") {
		t.Errorf("recipe status does not say why the gang waits:\n%s", said)
	}
	before := second.groups()
	second.killEngine()
	from := second.last()
	second.apply()
	second.await(time.Minute, "the gang to be taken over", from, func(e event) bool {
		return e.Address == tinyInference && strings.Contains(e.Message, "was submitted with gang policy")
	})
	if after := second.groups(); len(before) != 1 || len(after) != 1 || before[0].Metadata.UID != after[0].Metadata.UID ||
		len(after[0].Metadata.Owners) != 2 || len(second.items("jobs")) != 2 || second.placed() != 0 {
		t.Errorf("after the engine was killed, the PodGroups are %+v and %d pods have a node; expected %+v, of two Jobs "+
			"that wait", after, second.placed(), before)
	}
	first.ask("stop")
	first.noGangLeft()
	if err := second.wait(5 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, second.story())
	}
	second.noGangLeft()
	for _, r := range []*kubernetesRun{first, second} {
		if n := len(r.all(func(e event) bool { return e.Type == "restart" })); n > 0 {
			t.Errorf("%d blocks were restarted\n%s", n, r.story())
		}
	}
}

// TestKubernetesGangRestarts deletes the pod of the trainer: its gang ends, and starts again as a new one from the last
// checkpoint. Then a pending gang is destroyed without an engine.
func TestKubernetesGangRestarts(t *testing.T) {
	const gang = `gang     = "policy"`
	r := newKubernetesGangRun(t, gang, "steps        = 60", "steps        = 100000\n  save_every   = 5")
	r.start()
	saved := r.await(2*time.Minute, "a checkpoint", 0, func(e event) bool { return e.Type == "checkpoint" })
	before := r.groups()
	r.api(r.core("pods/"+r.pod(r.trainer).Metadata.Name)+"?gracePeriodSeconds=0", "-X", "DELETE")
	var again event
	for _, block := range []string{r.trainer, tinyInference} {
		restarted := r.await(3*time.Minute, block+" to be restarted", 0, func(e event) bool {
			return e.Type == "restart" && e.Address == block
		})
		again.Seq = max(again.Seq, restarted.Seq)
	}
	if e := r.stepped(again.Seq); e.Step <= saved.Step {
		t.Errorf("the first step of the new gang is %d; expected one after the checkpoint of step %d", e.Step, saved.Step)
	}
	r.within("one PodGroup of the new gang", func() bool { return len(r.groups()) == 1 })
	if after := r.groups(); len(before) != 1 || after[0].Metadata.UID == before[0].Metadata.UID {
		t.Errorf("the PodGroups are %+v after the restart; expected another one than %+v", after, before)
	}

	waiting := newKubernetesGangRun(t, gang)
	waiting.start()
	waiting.pending(tinyInference, 0)
	waiting.killEngine()
	cmd := exec.Command(waiting.binary(), "destroy", "--auto-approve", "--recipe", waiting.recipe)
	cmd.Dir = waiting.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("recipe destroy: %v\n%s", err, out)
	}
	waiting.noGangLeft()
	r.ask("stop")
	r.noGangLeft()
	if n := r.restarts(r.trainer); n != 1 {
		t.Errorf("%d restarts of the trainer; expected one\n%s", n, r.story())
	}
}

// TestKubernetesDoctorOfGangs looks at a cluster that has PodGroups, and asks for those of a scheduler that it lacks.
func TestKubernetesDoctorOfGangs(t *testing.T) {
	for scheduler, want := range map[string]string{"coscheduling": "PodGroups of scheduling.x-k8s.io/v1alpha1",
		"volcano": "correct `gang_scheduler`"} {
		r := newKubernetesGangRun(t, "")
		r.edit(func(text string) string { return strings.ReplaceAll(text, `"coscheduling"`, `"`+scheduler+`"`) })
		cmd := exec.Command(r.binary(), "doctor", filepath.Base(r.recipe), "--executor", "kubernetes.cluster")
		cmd.Dir = r.dir
		out, err := cmd.CombinedOutput()
		if (err == nil) != (scheduler == "coscheduling") || !strings.Contains(string(out), want) {
			t.Errorf("recipe doctor with %s: %v; expected %q in\n%s", scheduler, err, want, out)
		}
	}
}
