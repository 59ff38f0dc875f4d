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

const kubernetesRecipe = `
executor "kubernetes" "cluster" {
  namespace         = "NAMESPACE"
  image             = "recipe.test/recipe:1"
  image_pull_policy = "Never"
  volume {
    path      = "SHARED"
    host_path = "SHARED"
  }
}

inference "tiny" "policy" {}

environment "arithmetic" "sums" {
  inference  = inference.tiny.policy
  group_size = 16
  placement {
    executor    = executor.kubernetes.cluster
    constraints = ["pool=n2"]
    memory      = "1GiB"
  }
}

trainer "tiny" "policy" {
  environments = [environment.arithmetic.sums]
  steps        = 60
  batch_size   = 256
  placement {
    executor = executor.kubernetes.cluster
    gpus     = 1
    memory   = "1GiB"
    host     = "n1"
  }
}

sync "weights" "policy" {
  trainer   = trainer.tiny.policy
  inference = [inference.tiny.policy]
}
`

// kubernetesRun is a run in a namespace of its own.
type kubernetesRun struct {
	*run
	namespace string
}

// newKubernetesRun is a run of kubernetesRecipe on the cluster of scripts/kubernetes.sh, as a user with the Role of
// docs/clusters.md; edits are pairs of text and what replaces it.
func newKubernetesRun(t *testing.T, edits ...string) *kubernetesRun {
	t.Helper()
	shared := os.Getenv("RECIPE_KUBERNETES_SHARED")
	if shared == "" {
		t.Skip("RECIPE_KUBERNETES_SHARED names no folder that is shared with a cluster: make e2e-kubernetes sets it")
	}
	dir := t.TempDir()
	r := &kubernetesRun{&run{t: t, dir: dir, recipe: "kubernetes.hcl", trainer: "trainer.tiny.policy"}, namespaceOf(t)}
	r.create("", "namespaces", fmt.Sprintf(`{"metadata": {"name": %q}}`, r.namespace))
	t.Cleanup(func() { r.api("/api/v1/namespaces/"+r.namespace, "-X", "DELETE") })
	r.within("a service account in the namespace", func() bool {
		return len(r.items("serviceaccounts")) > 0
	})
	r.bind()
	text := strings.NewReplacer(append(edits, "NAMESPACE", r.namespace, "SHARED", shared)...).Replace(kubernetesRecipe)
	text = strings.NewReplacer("NAMESPACE", r.namespace, "SHARED", shared).Replace(text)
	if err := os.WriteFile(filepath.Join(dir, r.recipe), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

// namespacesOf counts those of each test.
var namespacesOf = map[string]int{}

// namespaceOf is the name of a further namespace of a test.
func namespaceOf(t *testing.T) string {
	name := strings.NewReplacer("/", "-", "_", "-").Replace(strings.ToLower(t.Name()))
	if namespacesOf[name]++; namespacesOf[name] > 1 {
		return fmt.Sprintf("%s-%d", name, namespacesOf[name])
	}
	return name
}

// start is apply, with its end when the test ends.
func (r *kubernetesRun) start() {
	r.t.Helper()
	r.t.Cleanup(r.cleanup)
	r.apply()
}

// bind gives the user of the tests the Role of the guide.
func (r *kubernetesRun) bind() {
	r.t.Helper()
	guide, err := os.ReadFile(filepath.Join(repository(r.t), "docs", "clusters.md"))
	if err != nil {
		r.t.Fatal(err)
	}
	_, role, found := strings.Cut(string(guide), "   ---\n   apiVersion: rbac.authorization.k8s.io/v1\n   kind: Role\n")
	role, _, _ = strings.Cut(role, "   ---")
	if !found {
		r.t.Fatal("docs/clusters.md has no Role any more")
	}
	role = "   apiVersion: rbac.authorization.k8s.io/v1\n   kind: Role\n" +
		strings.Replace(role, "namespace: rl", "namespace: "+r.namespace, 1)
	const group = "/apis/rbac.authorization.k8s.io/v1/namespaces/"
	r.api(group+r.namespace+"/roles", "--data-binary", role)
	r.api(group+r.namespace+"/rolebindings", "--data-binary", `{"metadata": {"name": "recipe-engine"},
		"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "recipe-engine"},
		"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "researcher"}]}`)
}

// api makes a request as an administrator of the cluster, with options of curl.
func (r *kubernetesRun) api(path string, options ...string) string {
	r.t.Helper()
	return command(r.t, append([]string{filepath.Join(repository(r.t), "scripts", "kubernetes.sh"), "api", path},
		options...)...)
}

func (r *kubernetesRun) core(resource string) string {
	return "/api/v1/namespaces/" + r.namespace + "/" + resource
}

func (r *kubernetesRun) create(namespace, resource, body string) {
	r.t.Helper()
	path := "/api/v1/" + resource
	if namespace != "" {
		path = r.core(resource)
	}
	r.api(path, "--data-binary", body)
}

// resource is a Job, a pod, a Secret or another resource.
type resource struct {
	Metadata struct {
		Name   string
		UID    string
		Labels map[string]string
		Owners []struct{ Kind string } `json:"ownerReferences"`
	}
	Spec struct {
		Node        string `json:"nodeName"`
		HostNetwork bool
	}
	Status struct {
		Phase string
		IP    string `json:"podIP"`
	}
	Data map[string]string
}

// items lists the resources of a kind in the namespace.
func (r *kubernetesRun) items(kind string) []resource {
	r.t.Helper()
	path := r.core(kind)
	if kind == "jobs" {
		path = "/apis/batch/v1/namespaces/" + r.namespace + "/jobs"
	}
	var list struct{ Items []resource }
	if err := json.Unmarshal([]byte(r.api(path)), &list); err != nil {
		r.t.Fatal(err)
	}
	return list.Items
}

// pod is that of a block.
func (r *kubernetesRun) pod(block string) resource {
	r.t.Helper()
	var found []resource
	for _, p := range r.items("pods") {
		if strings.Contains(p.Metadata.Name, "-"+strings.ReplaceAll(block, ".", "-")+"-") && p.Status.Phase == "Running" {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		r.t.Fatalf("%s has %d running pods; expected one: %+v", block, len(found), found)
	}
	return found[0]
}

// evict asks a pod to end, as a drain of its node does.
func (r *kubernetesRun) evict(p resource) {
	r.t.Helper()
	r.api(r.core("pods/"+p.Metadata.Name+"/eviction"), "-H", "Content-Type: application/json", "--data-binary",
		fmt.Sprintf(`{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": %q}}`, p.Metadata.Name))
}

func (r *kubernetesRun) within(what string, done func() bool) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("waited a minute for %s", what)
		}
	}
}

// nothingLeft waits until nothing of the run is left in the namespace.
func (r *kubernetesRun) nothingLeft() {
	r.t.Helper()
	for _, kind := range []string{"jobs", "pods", "secrets"} {
		r.within("no "+kind+" to be left", func() bool { return len(r.items(kind)) == 0 })
	}
}

func (r *kubernetesRun) completes() {
	r.t.Helper()
	if err := r.wait(5 * time.Minute); err != nil {
		r.t.Fatalf("apply: %v\n%s", err, r.story())
	}
	r.nothingLeft()
}

// TestKubernetesQuickstart trains with the trainer and the environment on two nodes and inference outside the cluster,
// kills the engine, deletes a Job, and sees the run complete with nothing left.
func TestKubernetesQuickstart(t *testing.T) {
	r := newKubernetesRun(t)
	r.start()
	r.await(2*time.Minute, "the fifth step", 0, func(e event) bool { return e.Type == "metrics" && e.Step >= 5 })
	for block, want := range map[string]string{r.trainer: "n1 10.78.11.", "environment.arithmetic.sums": "n2 10.78.12."} {
		p := r.pod(block)
		if got := p.Spec.Node + " " + p.Status.IP; !strings.HasPrefix(got, want) || p.Spec.HostNetwork {
			t.Errorf("%s runs at %q, host network: %t; expected %q and a network of its own", block, got, p.Spec.HostNetwork,
				want)
		}
	}
	for _, block := range []string{r.trainer, "environment.arithmetic.sums"} {
		of := func(e event) bool {
			return e.Address == block && (e.Phase == "ready" || strings.Contains(e.Message, "is pending"))
		}
		if seen := r.all(of); len(seen) > 1 {
			t.Logf("%s: ready %s after its job was submitted", block, seen[len(seen)-1].Time.Sub(seen[0].Time))
		}
	}
	for _, s := range r.items("secrets") {
		if len(s.Data["bootstrap.json"]) < 100 || len(s.Metadata.Owners) != 1 || s.Metadata.Owners[0].Kind != "Job" {
			t.Errorf("the Secret %s has %d bytes and belongs to %+v; expected keys that belong to a Job", s.Metadata.Name,
				len(s.Data["bootstrap.json"]), s.Metadata.Owners)
		}
	}

	before := r.items("pods")
	r.killEngine()
	r.apply()
	for _, a := range []string{r.trainer, "environment.arithmetic.sums"} {
		r.await(time.Minute, a+" to be adopted", 0, func(e event) bool { return e.Type == "adopted" && e.Address == a })
	}
	after := r.items("pods")
	for i, p := range before {
		if len(after) != 2 || p.Metadata.UID != after[i].Metadata.UID {
			t.Errorf("after the engine was killed, the pods are %+v; expected %+v", after, before)
		}
	}

	name := r.pod("environment.arithmetic.sums").Metadata.Labels["recipe-rl/job"]
	r.api("/apis/batch/v1/namespaces/"+r.namespace+"/jobs/"+name+"?propagationPolicy=Background", "-X", "DELETE")
	r.await(time.Minute, "the environment to be restarted", 0, func(e event) bool {
		return e.Type == "restart" && e.Address == "environment.arithmetic.sums"
	})
	r.completes()
}

// TestKubernetesDrain drains the trainer's node: the trainer writes a checkpoint, and goes on with the next step on the
// other node.
func TestKubernetesDrain(t *testing.T) {
	r := newKubernetesRun(t, `host     = "n1"`, "", "steps        = 60", "steps        = 200")
	r.start()
	r.stepped(0)
	p := r.pod(r.trainer)
	cordon := func(on bool) {
		r.api("/api/v1/nodes/"+p.Spec.Node, "-X", "PATCH", "-H", "Content-Type: application/merge-patch+json",
			"--data-binary", fmt.Sprintf(`{"spec": {"unschedulable": %t}}`, on))
	}
	cordon(true)
	t.Cleanup(func() { cordon(false) })
	r.evict(p)
	r.asked(2 * time.Minute)
	if now := r.pod(r.trainer); now.Spec.Node == p.Spec.Node {
		t.Errorf("the trainer is on %s again, which is drained", now.Spec.Node)
	}
	r.ask("stop")
	r.nothingLeft()
}

// TestKubernetesNodeLost kills everything on the trainer's node: the run goes on from the last checkpoint on the other.
func TestKubernetesNodeLost(t *testing.T) {
	r := newKubernetesRun(t, `host     = "n1"`, "", `    constraints = ["pool=n2"]`, "", "steps        = 60",
		"steps        = 200\n  save_every   = 5")
	r.start()
	r.await(2*time.Minute, "a checkpoint", 0, func(e event) bool { return e.Type == "checkpoint" })
	node := r.pod(r.trainer).Spec.Node
	script := filepath.Join(repository(t), "scripts", "kubernetes.sh")
	killed := time.Now()
	command(t, script, "kill", node)
	t.Cleanup(func() { command(t, script, "start", node) })
	lost := r.await(2*time.Minute, "the loss to be seen", 0, func(e event) bool {
		return e.Type == "restart" && e.Address == r.trainer
	})
	t.Logf("after %s: %s", time.Since(killed).Round(time.Second), lost.Message)
	r.stepped(lost.Seq)
	t.Logf("failover in %s", time.Since(killed).Round(time.Second))
	if now := r.pod(r.trainer).Spec.Node; now == node {
		t.Errorf("the trainer is on %s again, which was lost", now)
	}
	r.completes()
}

// TestKubernetesQuota runs in a namespace whose quota has room for one job: the other one waits, and it is said why.
// Without an engine, destroy gives both back.
func TestKubernetesQuota(t *testing.T) {
	r := newKubernetesRun(t)
	r.create(r.namespace, "resourcequotas",
		`{"metadata": {"name": "few"}, "spec": {"hard": {"requests.memory": "1536Mi"}}}`)
	r.within("the quota to be in force", func() bool {
		return strings.Contains(r.api(r.core("resourcequotas/few")), `"used"`)
	})
	r.start()
	waits := r.await(time.Minute, "a job to wait", 0, func(e event) bool {
		return strings.Contains(e.Message, "is pending: Error creating: ")
	})
	for _, want := range []string{"exceeded quota: few, requested: requests.memory=1Gi", "lower gpus, cpus or memory"} {
		if !strings.Contains(waits.Message, want) {
			t.Errorf("the log says %q; expected %q in it", waits.Message, want)
		}
	}
	if said := r.ask("status"); !strings.Contains(said, "exceeded quota: few") {
		t.Errorf("recipe status does not say why the job waits:\n%s", said)
	}
	r.killEngine()
	cmd := exec.Command(r.binary(), "destroy", "--auto-approve", "--checkpoints", "--recipe", r.recipe)
	cmd.Dir = r.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("recipe destroy: %v\n%s", err, out)
	}
	r.nothingLeft()

	r.edit(func(text string) string { return strings.ReplaceAll(text, "1GiB", "2GiB") })
	cmd = exec.Command(r.binary(), "plan", "--detailed-exitcode", r.recipe)
	cmd.Dir = r.dir
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "exceeded quota: few") {
		t.Errorf("a plan above the quota is not refused: %v\n%s", err, out)
	}
}

// TestKubernetesIsAsked plans and checks jobs that the cluster refuses or cannot start, and those that it takes.
func TestKubernetesIsAsked(t *testing.T) {
	for what, c := range map[string]struct {
		edits []string
		said  []string
	}{
		"taken":         {nil, nil},
		"no namespace":  {[]string{`"NAMESPACE"`, `"nowhere"`}, []string{`in the namespace "nowhere"`, "recipe doctor FILE"}},
		"no such class": {[]string{`image_pull_policy = "Never"`, `priority_class = "x"`}, []string{`no PriorityClass`}},
		"no such account": {[]string{`image_pull_policy = "Never"`, `service_account = "x"`},
			[]string{`serviceaccount "x" not found`, "correct `service_account`"}},
		"no volume": {[]string{`path      = "SHARED"`, `path = "/elsewhere"`}, []string{"no volume brings its folder"}},
	} {
		t.Run(what, func(t *testing.T) {
			r := newKubernetesRun(t, c.edits...)
			for _, argv := range [][]string{{"plan", r.recipe}, {"doctor", r.recipe, "--executor", "kubernetes.cluster"}} {
				cmd := exec.Command(r.binary(), argv...)
				cmd.Dir = r.dir
				out, err := cmd.CombinedOutput()
				if failed := err != nil; argv[0] == "doctor" && failed != (what != "taken") {
					t.Errorf("recipe %s: %v\n%s", argv[0], err, out)
				}
				for _, text := range c.said {
					if !strings.Contains(string(out), text) {
						t.Errorf("recipe %s does not say %q:\n%s", argv[0], text, out)
					}
				}
				if refused := strings.Contains(string(out), "Error:"); argv[0] == "plan" && refused != (what != "taken") {
					t.Errorf("the plan is refused: %t\n%s", refused, out)
				}
			}
		})
	}
}

// TestKubernetesNoImage runs a job whose image no node has: it waits, and it is said why.
func TestKubernetesNoImage(t *testing.T) {
	r := newKubernetesRun(t, "recipe.test/recipe:1", "recipe.test/none:1")
	r.start()
	waits := r.await(time.Minute, "a job to wait", 0, func(e event) bool {
		return strings.Contains(e.Message, "is pending: ErrImageNeverPull")
	})
	if !strings.Contains(waits.Message, "recipe.test/none:1") || !strings.Contains(waits.Message, "image_pull_policy") {
		t.Errorf("the log says %q; expected the image, and what to do", waits.Message)
	}
	r.ask("stop")
	r.nothingLeft()
}

// TestKubernetesIsThere asks for a second cluster: the tests of another checkout start none, and do not end this one.
func TestKubernetesIsThere(t *testing.T) {
	if os.Getenv("RECIPE_KUBERNETES_SHARED") == "" {
		t.Skip("make e2e-kubernetes starts a cluster")
	}
	isThere(t, "kubernetes.sh")
}

// isThere: the script says of a cluster that it is there already.
func isThere(t *testing.T, script string) {
	t.Helper()
	said := command(t, filepath.Join(repository(t), "scripts", script), "why")
	if !strings.Contains(said, "is there already") || !strings.Contains(said, "scripts/"+script+" down") {
		t.Errorf("of a second cluster scripts/%s says %q; expected that one is there, and how to end it", script, said)
	}
}
