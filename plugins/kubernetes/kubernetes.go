// Package kubernetes is the executor of Kubernetes clusters: each job is a Job (batch/v1) with one pod for each
// machine, and a Secret with the keys of its agents. Nothing has to be installed in the cluster.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/executor"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Config is the configuration of an `executor "kubernetes"` block.
type Config struct {
	Kubeconfig string `recipe:"kubeconfig" doc:"kubeconfig file; default: $KUBECONFIG, ~/.kube/config, or inside a pod its service account"`
	Context    string `recipe:"context" doc:"context of the kubeconfig file; default: its current one"`
	Namespace  string `recipe:"namespace" pattern:"[a-z0-9]([-a-z0-9]*[a-z0-9])?" doc:"namespace of the jobs; default: that of the context"`

	Image            string   `recipe:"image" required:"true" pattern:"[^\\s\"]+" doc:"image of the pods; it needs what the blocks need, such as Python, and the recipe program at the same path as the engine's machine, unless a volume brings it; with files = \"staged\", bash and coreutils instead of the program"`
	ImagePullPolicy  string   `recipe:"image_pull_policy" enum:"Always,IfNotPresent,Never" doc:"when the image is pulled; default: the cluster's"`
	ImagePullSecrets []string `recipe:"image_pull_secrets" doc:"Secrets with the credentials of the image's registry"`

	ServiceAccount string            `recipe:"service_account" doc:"service account of the pods; default: the namespace's. Its token is not given to them"`
	PriorityClass  string            `recipe:"priority_class" doc:"priority class of the pods"`
	RuntimeClass   string            `recipe:"runtime_class" doc:"runtime class of the pods, such as \"nvidia\""`
	NodeSelector   map[string]string `recipe:"node_selector" doc:"labels that the nodes must have"`
	Tolerations    []string          `recipe:"tolerations" doc:"taints of nodes that the pods tolerate, as kubectl writes them: KEY[=VALUE]:EFFECT"`
	GPUResource    string            `recipe:"gpu_resource" default:"nvidia.com/gpu" doc:"resource that gpus in placement ask for"`
	Labels         map[string]string `recipe:"labels" doc:"further labels of jobs and pods, such as that of a queue of Kueue"`
	Annotations    map[string]string `recipe:"annotations" doc:"further annotations of jobs and pods"`

	GangScheduler string `recipe:"gang_scheduler" enum:"coscheduling,volcano" doc:"which PodGroups the cluster's scheduler reads: those of the scheduler plugin coscheduling, or of Volcano (not tried); default: none, and jobs of a gang are submitted one by one"`
	SchedulerName string `recipe:"scheduler_name" doc:"scheduler of the pods; default: the cluster's, with gang_scheduler \"scheduler-plugins-scheduler\" or \"volcano\""`

	SecretEnvironment map[string]string `recipe:"secret_environment" doc:"environment variables of the blocks from Secrets of the namespace: NAME = \"SECRET/KEY\""`

	executor.Files

	Volumes []Volume `recipe:"volume,block" doc:"a folder that the pods share with the engine's machine; with files = \"staged\", any folder that they need"`
}

// Volume is a folder of the pods.
type Volume struct {
	Path     string `recipe:"path" required:"true" pattern:"/.*" doc:"path in the pods; the folder of the recipe must be at the same path there as on the engine's machine. With files = \"staged\" a volume at /home/recipe, their home directory, keeps what was staged for later pods"`
	Claim    string `recipe:"claim" doc:"PersistentVolumeClaim; it must allow ReadWriteMany when pods are on several nodes"`
	HostPath string `recipe:"host_path" pattern:"/.*" doc:"folder of each node, such as a mounted NFS, instead of a claim"`
	SubPath  string `recipe:"sub_path" doc:"folder inside the claim; default: its root"`
	ReadOnly bool   `recipe:"read_only" doc:"whether the pods may only read"`
}

// Validate implements sdk.Validator.
func (Config) Validate(c Config) []spec.Problem {
	var out []spec.Problem
	for i, v := range c.Volumes {
		if (v.Claim == "") == (v.HostPath == "") {
			out = append(out, spec.Problem{Path: cty.GetAttrPath("volume").IndexInt(i), Summary: "Not one source",
				Detail: fmt.Sprintf("Expected either claim or host_path for the volume at %s.", v.Path)})
		}
	}
	for i, t := range c.Tolerations {
		if _, err := toleration(t); err != nil {
			out = append(out, spec.Problem{Path: cty.GetAttrPath("tolerations").IndexInt(i), Summary: "Not a toleration",
				Detail: err.Error()})
		}
	}
	for attribute, names := range map[string]map[string]string{"labels": c.Labels, "annotations": c.Annotations} {
		for name := range names {
			if name == managedLabel || strings.HasPrefix(name, ownPrefix) {
				out = append(out, spec.Problem{Path: cty.GetAttrPath(attribute).IndexString(name),
					Summary: "A name that the executor sets itself",
					Detail: fmt.Sprintf("Remove %q: jobs are found again by %s and names that begin with %s.", name, managedLabel,
						ownPrefix)})
			}
		}
	}
	for name, from := range c.SecretEnvironment {
		if secret, key, ok := strings.Cut(from, "/"); !ok || secret == "" || key == "" {
			out = append(out, spec.Problem{Path: cty.GetAttrPath("secret_environment").IndexString(name),
				Summary: "Not a key of a Secret", Detail: fmt.Sprintf("Expected SECRET/KEY; got %q.", from)})
		}
	}
	return out
}

var _ sdk.Validator[Config] = Config{}

// Plugin is the definition of the executor.
func Plugin() *sdk.Definition {
	return executor.New("kubernetes", "Runs blocks as Jobs of a Kubernetes cluster",
		func(c Config, _ string) (executor.Executor, error) { return New(c), nil })
}

// kubernetes is one namespace of a cluster.
type kubernetes struct {
	config Config

	mu       sync.Mutex
	opened   *client                    // nil until the cluster is first asked
	canceled map[string]executor.Status // by name of the Job, of which the cluster knows nothing any more
}

var (
	_ executor.Executor = (*kubernetes)(nil)
	_ executor.Tester   = (*kubernetes)(nil)
	_ executor.Examiner = (*kubernetes)(nil)
	_ executor.Reader   = (*kubernetes)(nil)
)

// New returns the executor of a cluster. It asks nobody yet.
func New(c Config) executor.Executor {
	k := &kubernetes{config: c, canceled: map[string]executor.Status{}}
	if kind, ok := podGroupsOf[c.GangScheduler]; ok {
		return gangs{k, kind}
	}
	return k
}

// cluster returns the client of the cluster.
func (k *kubernetes) cluster() (*client, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.opened == nil {
		c, err := connect(k.config)
		if err != nil {
			return nil, err
		}
		k.opened = c
	}
	return k.opened, nil
}

// Submit implements executor.Executor. The name of a Job is made from its key, so the cluster takes no key twice.
func (k *kubernetes) Submit(ctx context.Context, j executor.Job) (executor.Handle, error) {
	h := executor.Handle{Key: j.Key, ID: nameOf(j.Key)}
	manifest, err := k.manifest(j)
	if err != nil {
		return executor.Handle{Key: j.Key}, err
	}
	c, err := k.cluster()
	if err == nil {
		_, err = c.submit(ctx, j, manifest)
	}
	if err != nil {
		return executor.Handle{Key: j.Key}, fmt.Errorf("submit %s: %w", j.Key, err)
	}
	return h, nil
}

// submit makes the Job and its Secret, or what is missing of them, and returns the Job.
func (c *client) submit(ctx context.Context, j executor.Job, manifest object) (made job, err error) {
	name := nameOf(j.Key)
	err = c.do(ctx, http.MethodPost, c.jobs(), manifest, &made)
	if isCode(err, http.StatusConflict) {
		err = c.do(ctx, http.MethodGet, c.jobs()+"/"+name, nil, &made)
		if err == nil && made.key() != j.Key {
			err = fmt.Errorf("job %s of the cluster is of %q", name, made.Metadata.Annotations[keyAnnotation])
		}
	}
	if err != nil || secretFile(j) == "" || made.over() {
		return made, explain(err)
	}
	secret, err := secretFor(j, made.Metadata.UID)
	if err != nil {
		return made, err
	}
	// The pod waits for it. The cluster deletes it with the Job, whoever deletes that.
	if err := c.do(ctx, http.MethodPost, c.core("secrets"), secret, nil); !isCode(err, http.StatusConflict) {
		return made, explain(err)
	}
	return made, nil
}

// List implements executor.Executor.
func (k *kubernetes) List(ctx context.Context, run string) ([]executor.Handle, error) {
	c, err := k.cluster()
	if err != nil {
		return nil, err
	}
	seen, err := c.look(ctx, []string{run})
	if err != nil {
		return nil, err
	}
	var out []executor.Handle
	for name, j := range seen {
		if s := j.status(); j.job.key().Run == run && !s.State.Over() {
			out = append(out, executor.Handle{Key: j.job.key(), ID: name})
		}
	}
	slices.SortFunc(out, func(a, b executor.Handle) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// explain adds to an error of the cluster what to do, where the request is wrong: then trying again does not help.
func explain(err error) error {
	var said *apiError
	if !errors.As(err, &said) {
		return err
	}
	remedy := said.remedy()
	if remedy == "" {
		return err
	}
	return &sdk.Error{Summary: said.Error(), Remedy: remedy}
}
