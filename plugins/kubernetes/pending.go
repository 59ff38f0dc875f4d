package kubernetes

import "strings"

// remedies say what to do about what a cluster says, by words in it. The first that fits is taken.
var remedies = []struct{ words, remedy string }{
	{"exceeded quota", "lower gpus, cpus or memory in placement, end other jobs of the namespace, or ask who runs the " +
		"cluster for a higher quota: `kubectl describe resourcequota`"},
	{"failed quota", "name the resource in placement (gpus, cpus, memory), or ask who runs the cluster for a LimitRange" +
		": `kubectl describe resourcequota`"},
	{"violates PodSecurity", "run the engine as a user other than root, and use claims instead of host_path, or name a " +
		"namespace with another pod security level"},
	{"ImagePullBackOff", "correct `image` of the executor, or name the registry's credentials by image_pull_secrets"},
	{"ErrImagePull", "correct `image` of the executor, or name the registry's credentials by image_pull_secrets"},
	{"InvalidImageName", "correct `image` of the executor"},
	{"ErrImageNeverPull", "import the image on the nodes, or allow pulling it by image_pull_policy"},
	{"CreateContainerConfigError", "make what is missing in the namespace, or correct the executor"},
	{"StartError", "the image must have the recipe program at the path of the command: see docs/clusters.md"},
	{"persistentvolumeclaim", "make the claim in the namespace, or correct `claim` of the executor: `kubectl get pvc`"},
	{"PersistentVolumeClaims", "its claim is not bound yet: `kubectl get pvc`"},
	{"Insufficient", "it starts when others release what it needs; if no node has as much, lower gpus, cpus or memory " +
		"in placement: `kubectl describe nodes`"},
	{"untolerated taint", "add `tolerations` to the executor, or correct its node_selector, or host and constraints in " +
		"placement: `kubectl describe nodes`"},
	{"didn't match Pod's node affinity/selector", "correct node_selector of the executor, or host and constraints in " +
		"placement: `kubectl get nodes --show-labels`"},
	{"serviceaccount", "make the service account in the namespace, or correct `service_account` of the executor"},
	{"priorityclass", "correct `priority_class` of the executor: `kubectl get priorityclasses`"},
	{"RuntimeClass", "correct `runtime_class` of the executor: `kubectl get runtimeclasses`"},
	{"namespaces", "make the namespace, or correct `namespace` of the executor: `kubectl get namespaces`"},
	{"Unauthorized", "the credentials of the kubeconfig file are not valid any more: log in to the cluster again"},
	{"has not said anything of it", "if it does not run, correct scheduler_name or gang_scheduler of the executor"},
	{"is forbidden", "ask who runs the cluster for the rights in docs/clusters.md: `recipe doctor FILE --executor " +
		"kubernetes.NAME` lists what is missing"},
}

// remedyOf is what to do about a text of the cluster; empty when it is not known.
func remedyOf(text string) string {
	for _, r := range remedies {
		if strings.Contains(text, r.words) {
			return r.remedy
		}
	}
	return ""
}

// withRemedy is a text of the cluster with what to do about it.
func withRemedy(text string) string {
	if r := remedyOf(text); r != "" {
		return text + " (" + r + ")"
	}
	return text
}

// remedy is empty for what is not a mistake of the request.
func (e *apiError) remedy() string {
	if r := remedyOf(e.Message); r != "" {
		return r
	}
	if e.Code == 400 || e.Code == 422 {
		return "correct the executor block: `recipe plan` shows what is submitted"
	}
	return ""
}
