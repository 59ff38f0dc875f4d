package kubernetes

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/executor"
)

const (
	// labels and annotation of everything that is submitted
	managedLabel  = "app.kubernetes.io/managed-by"
	ownPrefix     = "recipe-rl/"
	runLabel      = ownPrefix + "run"
	jobLabel      = "recipe-rl/job"
	keyAnnotation = "recipe-rl/key"

	// nodePatience is how long a node may not answer before its pods are given up, beside the time (50 s by default)
	// after which the cluster says that it does not answer.
	nodePatience = 10 * time.Second
	// keepEnded is how long the cluster keeps a Job that has ended when no engine deletes it.
	keepEnded = 24 * time.Hour

	// fetchTime is what a pod gets to end beyond its notice where the engine has to fetch the last checkpoint before it is
	// gone.
	fetchTime = 5 * time.Minute

	containerName = "recipe"
	secretFolder  = "/var/run/recipe"
	bootstrapFile = "bootstrap.json"
	inputFile     = "input"
	// homeFolder is the home directory where files are staged. A volume of the recipe at this path outlives the pod.
	homeFolder = "/home/recipe"
)

// object is a resource of the API, as in its YAML.
type object = map[string]any

// Render implements executor.Executor: the request is the YAML of the Job and of the Secret, without its content.
func (k *kubernetes) Render(j executor.Job) (executor.Request, error) {
	manifest, err := k.manifest(j)
	if err != nil {
		return executor.Request{}, err
	}
	return inYAML(withSecret(j, manifest))
}

// withSecret is a Job and its Secret, without its content.
func withSecret(j executor.Job, manifest object) []object {
	if secretFile(j) == "" {
		return []object{manifest}
	}
	return []object{manifest, secret(j, "(sensitive)")}
}

func inYAML(documents []object) (executor.Request, error) {
	var b strings.Builder
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	for _, d := range documents {
		if err := encoder.Encode(d); err != nil {
			return executor.Request{}, fmt.Errorf("render a %s: %w", d["kind"], err)
		}
	}
	return executor.Request{Language: "yaml", Text: b.String()}, nil
}

var unusual = lazyregexp.New(`[^a-z0-9]+`)

// nameOf is the name of a job in the cluster: readable, and the same for the same key.
func nameOf(key executor.Key) string {
	sum := sha256.Sum256([]byte(key.String()))
	readable := strings.Trim(unusual.ReplaceAllString(strings.ToLower(key.Block), "-"), "-")
	if len(readable) > 36 {
		readable = strings.Trim(readable[:36], "-")
	}
	return fmt.Sprintf("recipe-%s-%s", readable, hex.EncodeToString(sum[:5]))
}

var labelValue = lazyregexp.New(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// labelOf is a text as the value of a label: its hash when it cannot be one.
func labelOf(text string) string {
	if labelValue.MatchString(text) {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// metadata is that of a job, its pods and its Secret.
func (k *kubernetes) metadata(j executor.Job) object {
	labels, annotations := object{}, object{keyAnnotation: j.Key.String()}
	for name, v := range k.config.Labels {
		labels[name] = v
	}
	for name, v := range k.config.Annotations {
		annotations[name] = v
	}
	for name, v := range ownLabels(j.Key) {
		labels[name] = v
	}
	return object{"name": nameOf(j.Key), "labels": labels, "annotations": annotations}
}

func ownLabels(key executor.Key) object {
	return object{managedLabel: "recipe", runLabel: labelOf(key.Run), jobLabel: nameOf(key)}
}

// manifest is the Job.
func (k *kubernetes) manifest(j executor.Job) (object, error) {
	if len(j.Argv) == 0 {
		return nil, fmt.Errorf("job %s has no command", j.Key)
	}
	if err := k.shares(j.Dir); err != nil {
		return nil, fmt.Errorf("job %s: %w", j.Key, err)
	}
	meta := k.metadata(j)
	pod := object{"labels": meta["labels"], "annotations": meta["annotations"]}
	// The engine decides what becomes of a block whose job has failed, and submits a new attempt.
	spec := object{
		"backoffLimit":            0,
		"ttlSecondsAfterFinished": int(keepEnded.Seconds()),
		"template":                object{"metadata": pod, "spec": k.pod(j)},
	}
	if j.Nodes > 1 {
		spec["completionMode"], spec["completions"], spec["parallelism"] = "Indexed", j.Nodes, j.Nodes
	}
	return object{"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}, nil
}

// shares reports whether a folder of this machine is one of the pods, too; empty: the job needs none.
func (k *kubernetes) shares(dir string) error {
	if dir == "" {
		return nil
	}
	for _, v := range k.config.Volumes {
		if inside, err := filepath.Rel(v.Path, dir); err == nil && filepath.IsLocal(inside) {
			return nil
		}
	}
	return &sdk.Error{Summary: fmt.Sprintf("no volume brings its folder %s into a pod", dir),
		Remedy: fmt.Sprintf("add a block such as volume { path = %q; claim = … } to the executor, with storage that this "+
			"machine has at the same path; or set files = \"staged\", which needs no common storage", path.Dir(dir))}
}

// pod is the specification of the pods.
func (k *kubernetes) pod(j executor.Job) object {
	c := k.config
	volumes, mounts := k.volumes(j)
	dir, grace := j.Dir, j.Notice() // when the cluster asks it to end, as at a time limit or when a node is drained
	if staged(j) {
		dir, grace = homeFolder, grace+fetchTime
	}
	container := object{"name": containerName, "image": c.Image, "command": command(j), "workingDir": dir,
		"volumeMounts": mounts, "resources": k.resources(j.Resources),
		"securityContext": object{"allowPrivilegeEscalation": false, "capabilities": object{"drop": []string{"ALL"}}}}
	setText(container, "imagePullPolicy", c.ImagePullPolicy)
	if env := k.environment(j); len(env) > 0 {
		container["env"] = env
	}
	spec := object{
		"restartPolicy": "Never", "automountServiceAccountToken": false, "enableServiceLinks": false,
		"terminationGracePeriodSeconds": int(grace.Seconds()),
		"securityContext":               securityContext(os.Getuid(), os.Getgid()),
		"containers":                    []object{container}, "volumes": volumes, "tolerations": k.tolerations(),
	}
	setText(spec, "serviceAccountName", c.ServiceAccount)
	setText(spec, "priorityClassName", c.PriorityClass)
	setText(spec, "runtimeClassName", c.RuntimeClass)
	setText(spec, "schedulerName", c.scheduler())
	if j.TimeLimit > 0 {
		spec["activeDeadlineSeconds"] = int64((j.TimeLimit + time.Second - 1) / time.Second)
	}
	var secrets []object
	for _, name := range c.ImagePullSecrets {
		secrets = append(secrets, object{"name": name})
	}
	if len(secrets) > 0 {
		spec["imagePullSecrets"] = secrets
	}
	k.place(spec, j)
	return spec
}

func setText(o object, name, value string) {
	if value != "" {
		o[name] = value
	}
}

// staged reports whether pods share no folder with the engine's machine.
func staged(j executor.Job) bool { return j.Dir == "" }

// withInput runs a command whose standard input is the file that its first argument names.
const withInput = `exec <"$0" && exec "$@"`

// command is that of the container: the path of the Secret's file is another one there.
func command(j executor.Job) []string {
	out := slices.Clone(j.Argv)
	for i, a := range out {
		if j.Secret != "" && a == j.Secret {
			out[i] = secretFolder + "/" + bootstrapFile
		}
	}
	if j.Input != "" {
		out = append([]string{"/bin/sh", "-c", withInput, secretFolder + "/" + inputFile}, out...)
	}
	return out
}

// securityContext runs pods as the user of the engine, to whom the files of the run belong.
func securityContext(uid, gid int) object {
	return object{"runAsUser": uid, "runAsGroup": gid, "fsGroup": gid, "runAsNonRoot": uid != 0,
		"fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": object{"type": "RuntimeDefault"}}
}

func (k *kubernetes) volumes(j executor.Job) (volumes, mounts []object) {
	for i, v := range k.config.Volumes {
		name := fmt.Sprintf("volume-%d", i)
		source := object{"name": name, "persistentVolumeClaim": object{"claimName": v.Claim}}
		if v.Claim == "" {
			source = object{"name": name, "hostPath": object{"path": v.HostPath, "type": "Directory"}}
		}
		mount := object{"name": name, "mountPath": v.Path}
		setText(mount, "subPath", v.SubPath)
		if v.ReadOnly {
			mount["readOnly"] = true
		}
		volumes, mounts = append(volumes, source), append(mounts, mount)
	}
	if secretFile(j) != "" {
		volumes = append(volumes, object{"name": "bootstrap",
			"secret": object{"secretName": nameOf(j.Key), "defaultMode": 0o400}})
		mounts = append(mounts, object{"name": "bootstrap", "mountPath": secretFolder, "readOnly": true})
	}
	empty := func(name, at string, dir object) {
		if !slices.ContainsFunc(k.config.Volumes, func(v Volume) bool { return path.Clean(v.Path) == at }) {
			volumes = append(volumes, object{"name": name, "emptyDir": dir})
			mounts = append(mounts, object{"name": name, "mountPath": at})
		}
	}
	if staged(j) {
		empty("home", homeFolder, object{})
	}
	// NCCL, vLLM and loaders of data share memory between processes, on CPUs too; pods have 64 MiB by default.
	empty("shm", "/dev/shm", object{"medium": "Memory"})
	return volumes, mounts
}

func (k *kubernetes) resources(r executor.Resources) object {
	requests, limits := object{}, object{}
	if r.CPUs > 0 {
		requests["cpu"] = fmt.Sprint(r.CPUs)
	}
	if r.Memory > 0 {
		text := fmt.Sprintf("%dMi", (r.Memory+1<<20-1)>>20)
		requests["memory"], limits["memory"] = text, text
	}
	if r.GPUs > 0 {
		limits[k.config.gpuResource()] = fmt.Sprint(r.GPUs)
	}
	return object{"requests": requests, "limits": limits}
}

func (c Config) gpuResource() string {
	if c.GPUResource == "" {
		return "nvidia.com/gpu"
	}
	return c.GPUResource
}

// environment is that of the container. Which variables are the block's is said to the agent.
func (k *kubernetes) environment(j executor.Job) (env []object) {
	var names []string
	for name := range k.config.SecretEnvironment {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		secret, key, _ := strings.Cut(k.config.SecretEnvironment[name], "/")
		env = append(env, object{"name": name, "valueFrom": object{"secretKeyRef": object{"name": secret, "key": key}}})
	}
	if staged(j) {
		env = append(env, object{"name": "HOME", "value": homeFolder})
	}
	if len(names) > 0 {
		env = append(env, object{"name": executor.PassVariable, "value": strings.Join(names, ",")})
	}
	if j.Nodes > 1 {
		index := "metadata.annotations['batch.kubernetes.io/job-completion-index']"
		env = append(env, object{"name": executor.NodeVariable,
			"valueFrom": object{"fieldRef": object{"fieldPath": index}}})
	}
	return env
}

// tolerations are those of the executor, and how long nodes may not answer.
func (k *kubernetes) tolerations() (out []object) {
	for _, text := range k.config.Tolerations {
		if t, err := toleration(text); err == nil { // Validate has refused others
			out = append(out, t)
		}
	}
	for _, taint := range []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"} {
		out = append(out, object{"key": taint, "operator": "Exists", "effect": "NoExecute",
			"tolerationSeconds": int(nodePatience.Seconds())})
	}
	return out
}

// toleration reads KEY[=VALUE]:EFFECT; without an effect, all are tolerated.
func toleration(text string) (object, error) {
	taint, effect, _ := strings.Cut(text, ":")
	name, value, equal := strings.Cut(taint, "=")
	if name == "" || !slices.Contains([]string{"", "NoSchedule", "PreferNoSchedule", "NoExecute"}, effect) {
		return nil, fmt.Errorf("expected KEY[=VALUE]:EFFECT, such as \"nvidia.com/gpu:NoSchedule\"; got %q", text)
	}
	out := object{"key": name, "operator": "Exists"}
	if equal {
		out["operator"], out["value"] = "Equal", value
	}
	setText(out, "effect", effect)
	return out, nil
}

// place names which nodes are right: labels by node_selector, host and constraints KEY=VALUE, or any value by KEY.
func (k *kubernetes) place(spec object, j executor.Job) {
	selector, affinity := object{}, object{}
	for name, v := range k.config.NodeSelector {
		selector[name] = v
	}
	if j.Host != "" {
		selector["kubernetes.io/hostname"] = j.Host
	}
	var exist []object
	for _, c := range j.Constraints {
		name, value, equal := strings.Cut(c, "=")
		if equal {
			selector[name] = value
		} else {
			exist = append(exist, object{"key": name, "operator": "Exists"})
		}
	}
	if len(exist) > 0 {
		affinity["nodeAffinity"] = object{"requiredDuringSchedulingIgnoredDuringExecution": object{
			"nodeSelectorTerms": []object{{"matchExpressions": exist}}}}
	}
	if j.Nodes > 1 { // each on a node of its own
		affinity["podAntiAffinity"] = object{"requiredDuringSchedulingIgnoredDuringExecution": []object{{
			"topologyKey":   "kubernetes.io/hostname",
			"labelSelector": object{"matchLabels": object{jobLabel: nameOf(j.Key)}}}}}
	}
	if len(selector) > 0 {
		spec["nodeSelector"] = selector
	}
	if len(affinity) > 0 {
		spec["affinity"] = affinity
	}
}

// secretFile is the name of what the Secret of a job holds; empty: it has none.
func secretFile(j executor.Job) string {
	switch {
	case j.Secret != "":
		return bootstrapFile
	case j.Input != "":
		return inputFile
	}
	return ""
}

func secret(j executor.Job, content string) object {
	return object{"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": object{secretFile(j): content},
		"metadata": object{"name": nameOf(j.Key), "labels": ownLabels(j.Key)}}
}

// secretFor is the Secret of a job in the cluster, which goes with it.
func secretFor(j executor.Job, uid string) (object, error) {
	content, err := []byte(j.Input), error(nil)
	if j.Secret != "" {
		content, err = os.ReadFile(j.Secret)
	}
	if err == nil && uid == "" {
		err = errors.New("the API server returned no UID for the Job")
	}
	if err != nil {
		return nil, fmt.Errorf("make the Secret of job %s: %w", j.Key, err)
	}
	out := secret(j, base64.StdEncoding.EncodeToString(content))
	out["metadata"].(object)["ownerReferences"] = []object{ownedBy(j, uid)}
	return out, nil
}

// ownedBy has the cluster delete something with the Job, or with the last of several.
func ownedBy(j executor.Job, uid string) object {
	return object{"apiVersion": "batch/v1", "kind": "Job", "name": nameOf(j.Key), "uid": uid}
}
