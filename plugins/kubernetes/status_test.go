package kubernetes

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/executor"
)

func remedyIn(err error) string {
	var said *sdk.Error
	if errors.As(err, &said) {
		return said.Remedy
	}
	return ""
}

// TestTheStatusOfAPod reads what a cluster (1.34.4) has said of pods; testdata/pods.json is shortened only.
func TestTheStatusOfAPod(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("testdata", "pods.json"))
	var list struct{ Items []pod }
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"running":  {"running: on n2"},
		"exit3":    {"failed: on n2, exit status 3"},
		"deadline": {"failed: DeadlineExceeded: Pod was active", "on n2, exit status 137"},
		"noprogram": {"failed: StartError: failed to create", "/opt/none", "the image must have the recipe program",
			"exit status 128"},
		"gpus":    {"pending: Unschedulable: 0/2 nodes", "1 Insufficient nvidia.com/gpu", "lower gpus, cpus or memory"},
		"nowhere": {"pending: Unschedulable: 0/2 nodes", "correct its node_selector"},
		"noimage": {"pending: ErrImageNeverPull: Container image", "recipe.test/none:1", "import the image"},
		"lost":    {"lost: its node does not answer (DeletionByTaintManager), on n1"},
	}
	for _, p := range list.Items {
		got := p.status().String()
		for _, part := range want[p.Metadata.Name] {
			if !strings.Contains(got, part) {
				t.Errorf("pod %s is %q; expected %q in it", p.Metadata.Name, got, part)
			}
		}
		delete(want, p.Metadata.Name)
	}
	if len(want) > 0 {
		t.Errorf("testdata/pods.json has no pods %v", want)
	}
}

// TestANodeThatDoesNotAnswer tells a pod whose node is lost from one that is asked to end on a node that answers.
func TestANodeThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	const status = `{"phase":"Running","conditions":[{"type":"Ready","status":"False"},
		{"type":"ContainersReady","status":"NODE"},
		{"type":"DisruptionTarget","status":"True","reason":"DeletionByTaintManager"}]}`
	const deleted = "2026-11-22T20:00:00Z"
	for _, c := range []struct {
		containers, deleted string
		want                executor.State
	}{{"True", deleted, executor.Lost}, {"True", "", executor.Running}, {"False", deleted, executor.Running}} {
		p := podOf(t, strings.Replace(status, "NODE", c.containers, 1), c.deleted)
		if got := p.status(); got.State != c.want {
			t.Errorf("with ContainersReady %s and deleted %q the pod is %q; expected %q", c.containers, c.deleted, got, c.want)
		}
	}
}

func podOf(t *testing.T, status, deleted string) pod {
	t.Helper()
	text := `{"metadata":{"name":"p"`
	if deleted != "" {
		text += `,"deletionTimestamp":"` + deleted + `"`
	}
	text += `},"spec":{"nodeName":"n1"},"status":` + status + `}`
	var p pod
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}

// TestTheStatusOfAJob puts together what is known of a Job and its pods.
func TestTheStatusOfAJob(t *testing.T) {
	t.Parallel()
	running, failed := podOf(t, `{"phase":"Running"}`, ""), podOf(t, `{"phase":"Failed"}`, "")
	done := podOf(t, `{"phase":"Succeeded"}`, "")
	conditions := func(kind, reason string) job {
		var j job
		j.Status.Conditions = []condition{{Type: kind, Status: "True", Reason: reason, Message: "m"}}
		return j
	}
	for _, c := range []struct {
		seen seen
		want string
	}{
		{seen{}, "pending"},
		{seen{said: `pods "x" is forbidden: exceeded quota: few`}, "exceeded quota: few (lower gpus"},
		{seen{pods: []pod{running, failed}}, "failed"},
		{seen{pods: []pod{done, running}}, "running"},
		{seen{pods: []pod{done, done}}, "succeeded"},
		{seen{job: conditions("Failed", "BackoffLimitExceeded")}, "failed: BackoffLimitExceeded: m"},
		{seen{job: conditions("Suspended", "JobSuspended")}, "pending: Suspended: m"},
	} {
		if got := c.seen.status().String(); !strings.Contains(got, c.want) {
			t.Errorf("the job is %q; expected %q in it", got, c.want)
		}
	}
}

func TestKubeconfigFilesAreRead(t *testing.T) {
	const file = `
current-context: a
contexts: [{name: a, context: {cluster: c, user: USER}}, {name: b, context: {cluster: none}}]
clusters: [{name: c, cluster: {server: "https://c:1/", insecure-skip-tls-verify: true}}]
users:
- {name: token, user: {token: secret}}
- {name: basic, user: {username: me, password: p}}
- {name: program, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./login.sh, args: [x],
    env: [{name: WHO, value: me}]}}}
`
	const login = "#!/bin/sh\n" +
		`echo "{\"kind\":\"ExecCredential\",\"status\":{\"token\":\"$WHO-$1-$(wc -l <calls)\"}}"` + "\n"
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("KUBECONFIG", filepath.Join(dir, "config"))
	for name, text := range map[string]string{"login.sh": login, "calls": "one\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	for user, want := range map[string]string{"token": "secret", "program": "me-x-1", "basic": "username"} {
		if err := os.WriteFile("config", []byte(strings.Replace(file, "USER", user, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := connect(Config{})
		got := ""
		if err == nil {
			got, err = c.who.token(t.Context())
		}
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("the token of user %s is %q; expected %q", user, got, want)
		}
		if err == nil && (c.server != "https://c:1" || c.namespace != "default") {
			t.Errorf("the cluster is %s, namespace %s; expected https://c:1, default", c.server, c.namespace)
		}
	}
	for name, want := range map[string]string{"b": `the cluster "none"`, "z": `no context "z"; there are ["a" "b"]`} {
		if _, err := connect(Config{Context: name}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("context %s: %v; expected %q", name, err, want)
		}
	}
	t.Setenv("KUBECONFIG", filepath.Join(dir, "none"))
	if _, err := connect(Config{}); !errors.Is(err, executor.ErrUnreachable) {
		t.Errorf("without the file the error is %v; expected that the cluster cannot be asked from here", err)
	}
}

// TestASchedulerThatSaysNothing tells a pod that only a scheduler of its own can place, which may not run, from one
// that the cluster's has not come to yet.
func TestASchedulerThatSaysNothing(t *testing.T) {
	t.Parallel()
	var p pod
	for scheduler, want := range map[string]string{"": "pending", "default-scheduler": "pending",
		"mine": `pending: scheduler "mine" has not said anything of it (if it does not run, correct scheduler_name`} {
		p.Spec.Scheduler = scheduler
		if got := p.status().String(); !strings.HasPrefix(got, want) || (scheduler != "mine" && got != want) {
			t.Errorf("a pod of scheduler %q is %q; expected %q", scheduler, got, want)
		}
	}
}
