package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// testTimeout bounds questions that a plan asks.
const testTimeout = 15 * time.Second

// dryRun has the cluster check a request, with its quotas and policies, and keep nothing.
const dryRun = "?dryRun=All&fieldValidation=Strict"

// Test implements executor.Tester: the cluster is asked for the Job, and for its pod, to which quotas apply.
func (k *kubernetes) Test(ctx context.Context, j executor.Job) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	manifest, err := k.manifest(j)
	if err != nil {
		return "", err
	}
	c, err := k.cluster()
	if err != nil {
		return "", err
	}
	if err := c.do(ctx, http.MethodPost, c.jobs()+dryRun, manifest, nil); err != nil {
		return "", explain(err)
	}
	template := manifest["spec"].(object)["template"].(object)
	pod := object{"apiVersion": "v1", "kind": "Pod", "spec": template["spec"], "metadata": k.metadata(j)}
	err = c.do(ctx, http.MethodPost, c.core("pods")+dryRun, pod, nil)
	if isCode(err, http.StatusForbidden) && strings.Contains(err.Error(), "cannot create resource") {
		err = nil // only Jobs may be made here; whether a quota allows the pod is seen later
	}
	if err == nil {
		err = c.fits(ctx, j, k.config)
	}
	return "", explain(err)
}

// node is a node of the cluster.
type node struct {
	Metadata metadata `json:"metadata"`
	Status   struct {
		Allocatable map[string]string `json:"allocatable"`
	} `json:"status"`
}

// fits checks that a node has the labels and the GPUs that a job asks for, where nodes may be listed.
func (c *client) fits(ctx context.Context, j executor.Job, config Config) error {
	var nodes list[node]
	err := c.do(ctx, http.MethodGet, "/api/v1/nodes", nil, &nodes)
	if isCode(err, http.StatusForbidden) {
		return nil
	}
	if err != nil {
		return err
	}
	spec := object{}
	(&kubernetes{config: config}).place(spec, j)
	selector, _ := spec["nodeSelector"].(object)
	var right []string
	most := 0
	for _, n := range nodes.Items {
		if !n.has(selector) {
			continue
		}
		right = append(right, n.Metadata.Name)
		var gpus int
		_, _ = fmt.Sscan(n.Status.Allocatable[config.gpuResource()], &gpus) // none: 0
		most = max(most, gpus)
	}
	switch {
	case len(right) == 0:
		return &sdk.Error{Summary: fmt.Sprintf("none of its %d nodes has the labels %v", len(nodes.Items), selector),
			Remedy: remedyOf("didn't match Pod's node affinity/selector")}
	case j.GPUs > most:
		return &sdk.Error{Summary: fmt.Sprintf("it asks for %d %s; a node of those that may run it has at most %d", j.GPUs,
			config.gpuResource(), most), Remedy: "lower gpus in placement, or correct node_selector or gpu_resource of the " +
			"executor: `kubectl describe nodes`"}
	}
	return nil
}

func (n node) has(selector object) bool {
	for name, v := range selector {
		if n.Metadata.Labels[name] != v {
			return false
		}
	}
	return true
}

// right is something that the engine does in the namespace.
type right struct{ group, resource, verb string }

// rights are what the engine needs; docs/clusters.md has them as a Role.
func (c Config) rights() (out []right) {
	list := []struct{ group, resource, verbs string }{
		{"batch", "jobs", "create get list delete"}, {"", "pods", "list delete"}, {"", "pods/log", "get"},
		{"", "secrets", "create"}, {"", "events", "list"},
	}
	if kind, ok := podGroupsOf[c.GangScheduler]; ok {
		list[0].verbs += " patch"
		list = append(list, struct{ group, resource, verbs string }{kind.group, "podgroups", "create"})
	}
	for _, r := range list {
		for _, verb := range strings.Fields(r.verbs) {
			out = append(out, right{r.group, r.resource, verb})
		}
	}
	return out
}

// Examine implements executor.Examiner.
func (k *kubernetes) Examine(ctx context.Context) []executor.Check {
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	reached := executor.Check{Name: "cluster"}
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	c, err := k.cluster()
	if err == nil {
		err = c.do(ctx, http.MethodGet, "/version", nil, &version)
	}
	if err != nil {
		reached.Found, reached.Remedy = err.Error(), "correct kubeconfig and context of the executor: `kubectl cluster-info`"
		return []executor.Check{reached}
	}
	reached.Found = "Kubernetes " + version.GitVersion + " at " + c.server
	out := []executor.Check{reached, c.namespaceCheck(ctx), c.rightsCheck(ctx, k.config)}
	if k.config.GangScheduler != "" {
		out = append(out, c.gangCheck(ctx, k.config))
	}
	out = append(out, c.quotaChecks(ctx)...)
	for _, v := range k.config.Volumes {
		if v.Claim != "" {
			out = append(out, c.claimCheck(ctx, v.Claim))
		}
	}
	return out
}

func (c *client) namespaceCheck(ctx context.Context) executor.Check {
	out := executor.Check{Name: "namespace", Found: c.namespace}
	err := c.do(ctx, http.MethodGet, "/api/v1/namespaces/"+c.namespace, nil, nil)
	if isCode(err, http.StatusNotFound) {
		out.Found, out.Remedy = err.Error(), remedyOf("namespaces")
	}
	return out // who may not look at namespaces may use one all the same
}

// rightsCheck asks for each right (SelfSubjectAccessReview, which everyone may ask).
func (c *client) rightsCheck(ctx context.Context, config Config) executor.Check {
	out := executor.Check{Name: "rights", Found: "all that is needed"}
	var missing []string
	for _, r := range config.rights() {
		resource, sub, _ := strings.Cut(r.resource, "/")
		ask := object{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
			"spec": object{"resourceAttributes": object{"namespace": c.namespace, "verb": r.verb, "group": r.group,
				"resource": resource, "subresource": sub}}}
		var answer struct{ Status struct{ Allowed bool } }
		err := c.do(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", ask, &answer)
		if err != nil {
			out.Found = "could not be asked for: " + err.Error()
			return out
		}
		if !answer.Status.Allowed {
			missing = append(missing, r.verb+" "+r.resource)
		}
	}
	if len(missing) > 0 {
		out.Found = "missing: " + strings.Join(missing, ", ")
		out.Remedy = "ask who runs the cluster for the Role in docs/clusters.md"
	}
	return out
}

// quota is a quota of the namespace.
type quota struct {
	Metadata metadata
	Status   struct{ Hard, Used map[string]string }
}

// quotaChecks say what of each quota is used; none when there are none or they may not be listed.
func (c *client) quotaChecks(ctx context.Context) (out []executor.Check) {
	var quotas list[quota]
	if err := c.do(ctx, http.MethodGet, c.core("resourcequotas"), nil, &quotas); err != nil {
		return nil
	}
	for _, q := range quotas.Items {
		var parts []string
		for name, hard := range q.Status.Hard {
			parts = append(parts, fmt.Sprintf("%s %s of %s used", name, q.Status.Used[name], hard))
		}
		slices.Sort(parts)
		out = append(out, executor.Check{Name: "quota " + q.Metadata.Name, Found: strings.Join(parts, ", ")})
	}
	return out
}

func (c *client) claimCheck(ctx context.Context, name string) executor.Check {
	out := executor.Check{Name: "claim " + name}
	var claim struct {
		Spec   struct{ AccessModes []string }
		Status struct{ Phase string }
	}
	err := c.do(ctx, http.MethodGet, c.core("persistentvolumeclaims")+"/"+name, nil, &claim)
	var said *apiError
	switch {
	case isCode(err, http.StatusForbidden):
		out.Found = "may not be looked at"
	case errors.As(err, &said):
		out.Found, out.Remedy = said.Error(), remedyOf("persistentvolumeclaim")
	case err != nil:
		out.Found = err.Error()
	default:
		out.Found = fmt.Sprintf("%s, %s", claim.Status.Phase, strings.Join(claim.Spec.AccessModes, ", "))
		if !slices.Contains(claim.Spec.AccessModes, "ReadWriteMany") {
			out.Remedy = "a claim without ReadWriteMany can be used by the pods of one node only"
		}
	}
	return out
}
