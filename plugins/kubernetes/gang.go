package kubernetes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// A gang is a PodGroup, which a scheduler reads that knows such groups: none of its pods gets a node before there is
// room for all. It belongs to the Jobs of the gang, and so is made after them; they are suspended until then.

// gangLabel is that of everything that belongs to a gang.
const gangLabel = "recipe-rl/gang"

// podGroups is a kind of PodGroup.
type podGroups struct {
	group, version string
	scheduler      string // the name that its manifests give it
	label          string // of pods, with the name of their PodGroup
	annotation     string // the same; one of both is empty
}

// podGroupsOf are the values of gang_scheduler.
var podGroupsOf = map[string]podGroups{
	"coscheduling": {group: "scheduling.x-k8s.io", version: "v1alpha1", scheduler: "scheduler-plugins-scheduler",
		label: "scheduling.x-k8s.io/pod-group"},
	"volcano": {group: "scheduling.volcano.sh", version: "v1beta1", scheduler: "volcano",
		annotation: "scheduling.k8s.io/group-name"},
}

// gangs is a cluster whose scheduler knows gangs.
type gangs struct {
	*kubernetes
	kind podGroups
}

var _ executor.Gangs = gangs{}

// gangName is the name of the PodGroup of some jobs, the same in whichever order they come.
func gangName(jobs []executor.Job) string {
	var keys []string
	for _, j := range jobs {
		keys = append(keys, j.Key.String())
	}
	slices.Sort(keys)
	sum := sha256.Sum256([]byte(strings.Join(keys, "\n")))
	return "recipe-gang-" + hex.EncodeToString(sum[:10])
}

// member is the Job of a gang.
func (g gangs) member(j executor.Job, gang string) (object, error) {
	manifest, err := g.manifest(j)
	if err != nil {
		return nil, err
	}
	spec := manifest["spec"].(object)
	spec["suspend"] = true
	template := spec["template"].(object)
	for _, meta := range []object{manifest["metadata"].(object), template["metadata"].(object)} {
		meta["labels"].(object)[gangLabel] = gang
		if g.kind.label != "" {
			meta["labels"].(object)[g.kind.label] = gang
		} else {
			meta["annotations"].(object)[g.kind.annotation] = gang
		}
	}
	return manifest, nil
}

// podGroup is that of a gang.
func (g gangs) podGroup(jobs []executor.Job, gang string) object {
	pods := 0
	for _, j := range jobs {
		pods += max(j.Nodes, 1)
	}
	labels := ownLabels(jobs[0].Key)
	delete(labels, jobLabel)
	labels[gangLabel] = gang
	return object{"apiVersion": g.kind.group + "/" + g.kind.version, "kind": "PodGroup",
		"metadata": object{"name": gang, "labels": labels}, "spec": object{"minMember": pods}}
}

// RenderTogether implements executor.Gangs: the request is the YAML of the Jobs, their Secrets without content, and the
// PodGroup, which belongs to the Jobs.
func (g gangs) RenderTogether(jobs []executor.Job) (executor.Request, error) {
	var documents []object
	gang := gangName(jobs)
	for _, j := range jobs {
		manifest, err := g.member(j, gang)
		if err != nil {
			return executor.Request{}, err
		}
		documents = append(documents, withSecret(j, manifest)...)
	}
	return inYAML(append(documents, g.podGroup(jobs, gang)))
}

// SubmitTogether implements executor.Gangs. It finishes what a killed engine began; nothing is made twice.
func (g gangs) SubmitTogether(ctx context.Context, jobs []executor.Job) ([]executor.Handle, error) {
	c, err := g.cluster()
	if err == nil {
		err = g.submitAll(ctx, c, jobs)
	}
	if err != nil {
		return nil, fmt.Errorf("submit a gang of %d jobs: %w", len(jobs), err)
	}
	handles := make([]executor.Handle, len(jobs))
	for i, j := range jobs {
		handles[i] = executor.Handle{Key: j.Key, ID: nameOf(j.Key)}
	}
	return handles, nil
}

func (g gangs) submitAll(ctx context.Context, c *client, jobs []executor.Job) error {
	gang := gangName(jobs)
	var owners []object
	for _, j := range jobs {
		manifest, err := g.member(j, gang)
		if err != nil {
			return err
		}
		made, err := c.submit(ctx, j, manifest)
		if err != nil {
			return fmt.Errorf("%s: %w", j.Key, err)
		}
		if other := made.Metadata.Labels[gangLabel]; other != gang {
			return fmt.Errorf("job %s was submitted before, with gang %q: submit all under new keys", made.Metadata.Name, other)
		}
		owners = append(owners, ownedBy(j, made.Metadata.UID))
	}
	group := g.podGroup(jobs, gang)
	group["metadata"].(object)["ownerReferences"] = owners
	err := c.do(ctx, http.MethodPost, g.kind.path(c.namespace), group, nil)
	if isCode(err, http.StatusNotFound) {
		return &sdk.Error{Summary: fmt.Sprintf("the cluster has no PodGroups (%s/%s): %v", g.kind.group, g.kind.version, err),
			Remedy: "correct `gang_scheduler` of the executor, or leave it out: then the jobs of gangs are submitted one by one"}
	}
	if err != nil && !isCode(err, http.StatusConflict) {
		return explain(err)
	}
	for _, j := range jobs {
		resume := object{"spec": object{"suspend": false}}
		if err := c.do(ctx, http.MethodPatch, c.jobs()+"/"+nameOf(j.Key), resume, nil); err != nil {
			return fmt.Errorf("%s: %w", j.Key, explain(err))
		}
	}
	return nil
}

func (p podGroups) path(namespace string) string {
	return "/apis/" + p.group + "/" + p.version + "/namespaces/" + namespace + "/podgroups"
}

// canceledWith are the names of the Jobs that end with one: those of its gang while none of them has got a node, for
// the others would wait for ever; else it alone.
func canceledWith(jobs map[string]*seen, name string) []string {
	gang := jobs[name].job.Metadata.Labels[gangLabel]
	if gang == "" {
		return []string{name}
	}
	var all []string
	for other, j := range jobs {
		if j.job.Metadata.Labels[gangLabel] != gang {
			continue
		}
		if j.job.over() || slices.ContainsFunc(j.pods, func(p pod) bool { return p.Spec.Node != "" }) {
			return []string{name}
		}
		all = append(all, other)
	}
	return all
}

// gangCheck looks for the PodGroups that the executor makes.
func (c *client) gangCheck(ctx context.Context, config Config) executor.Check {
	kind := podGroupsOf[config.GangScheduler]
	out := executor.Check{Name: "gangs", Found: fmt.Sprintf(
		"PodGroups of %s/%s; whether scheduler %q runs cannot be asked", kind.group, kind.version, config.scheduler())}
	var list struct{ Resources []struct{ Kind string } }
	err := c.do(ctx, http.MethodGet, "/apis/"+kind.group+"/"+kind.version, nil, &list)
	isGroup := func(r struct{ Kind string }) bool { return r.Kind == "PodGroup" }
	if err == nil && !slices.ContainsFunc(list.Resources, isGroup) {
		err = fmt.Errorf("%s/%s has no PodGroups", kind.group, kind.version)
	}
	if err != nil {
		out.Found = err.Error()
		out.Remedy = "correct `gang_scheduler` of the executor, or ask who runs the cluster for such a scheduler"
	}
	return out
}

// scheduler is the name of the scheduler of the pods; empty: the default of the cluster.
func (c Config) scheduler() string {
	if c.SchedulerName != "" {
		return c.SchedulerName
	}
	return podGroupsOf[c.GangScheduler].scheduler
}
