package kubernetes

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/recipe-rl/recipe/sdk/executor"
)

// userOf stands for the user of the tests, as whom pods run.
var userOf = regexp.MustCompile(`(runAs\w+|fsGroup): \w+`)

// TestTheManifestOfAJob compares with testdata/job.yaml.
func TestTheManifestOfAJob(t *testing.T) {
	t.Parallel()
	k := New(Config{Image: "registry.example/recipe:1", ImagePullPolicy: "IfNotPresent",
		ImagePullSecrets: []string{"regcred"}, ServiceAccount: "trainer", PriorityClass: "high", RuntimeClass: "nvidia",
		NodeSelector: map[string]string{"pool": "gpu"}, Tolerations: []string{"nvidia.com/gpu:NoSchedule", "team=rl"},
		Labels:            map[string]string{"kueue.x-k8s.io/queue-name": "rl"},
		Annotations:       map[string]string{"note": "it's"},
		SecretEnvironment: map[string]string{"HF_TOKEN": "hugging-face/token"},
		Volumes: []Volume{{Path: "/shared", Claim: "runs"},
			{Path: "/data", HostPath: "/mnt/data", ReadOnly: true}}})
	got, err := k.Render(executor.Job{
		Key:    executor.Key{Run: "01J", Block: `trainer.grpo.policy["it's"]`, Attempt: 2},
		Argv:   []string{"/opt/recipe", "agent", "--bootstrap", "/shared/it's/agent.json"},
		Secret: "/shared/it's/agent.json", Dir: "/shared/it's",
		Resources: executor.Resources{GPUs: 8, CPUs: 16, Memory: 3<<30 + 1, TimeLimit: 90*time.Minute + time.Millisecond,
			Grace: 5 * time.Minute,
			Host:  "n1", Constraints: []string{"ib", "zone=a"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	asIn(t, "job.yaml", got)
}

// asIn compares a manifest with a file of testdata.
func asIn(t *testing.T, name string, got executor.Request) {
	t.Helper()
	text := userOf.ReplaceAllString(got.Text, "$1: the engine's")
	path := filepath.Join("testdata", name)
	want, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	if text != string(want) {
		t.Errorf("the manifest differs from %s:\n%s", path, text)
	}
}

// TestTheManifestOfAStagedJob compares with testdata/staged.yaml: the pods share no folder with the engine's machine.
func TestTheManifestOfAStagedJob(t *testing.T) {
	t.Parallel()
	c := Config{Image: "python:3.12"}
	j := executor.Job{Key: executor.Key{Run: "01J", Block: "trainer.grpo.policy", Attempt: 1},
		Argv: []string{"/bin/bash", "-c", "cat", "it's"}, Input: "{\"token\": \"T\"}\n"}
	got, err := New(c).Render(j)
	if err != nil {
		t.Fatal(err)
	}
	asIn(t, "staged.yaml", got)
	c.Volumes = []Volume{{Path: homeFolder + "/", Claim: "homes"}, {Path: "/dev/shm", HostPath: "/dev/shm"}}
	if got, err = New(c).Render(j); err != nil || strings.Contains(got.Text, "emptyDir") {
		t.Errorf("with a volume for the home directory, the manifest is (%v)\n%s", err, got.Text)
	}
}

func TestAJobWhoseFolderIsNotInThePodIsRefused(t *testing.T) {
	t.Parallel()
	k := New(Config{Image: "i", Volumes: []Volume{{Path: "/shared", Claim: "runs"}}})
	j := executor.Job{Argv: []string{"true"}, Dir: "/shared/run"}
	if _, err := k.Render(j); err != nil {
		t.Errorf("a job in a volume: %v", err)
	}
	for _, dir := range []string{"/home/me/run", "/shared2/run", "/"} {
		j.Dir = dir
		if _, err := k.Render(j); err == nil || !strings.Contains(remedyIn(err), "add a block such as volume") {
			t.Errorf("a job in %s: %v; expected what to add", dir, err)
		}
	}
}

func TestNamesAreThoseOfTheCluster(t *testing.T) {
	t.Parallel()
	valid := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,55}[a-z0-9])?$`) // a pod's has 6 characters more
	seen := map[string]bool{}
	for _, block := range []string{"trainer.tiny.policy", `environment.x.Sums["ä/1"]`, "-", strings.Repeat("a.", 60),
		strings.Repeat("a.", 60) + "b"} {
		for attempt := 1; attempt < 3; attempt++ {
			name := nameOf(executor.Key{Run: "01J", Block: block, Attempt: attempt})
			if !valid.MatchString(name) || seen[name] {
				t.Errorf("the name of %s is %q; expected another one of at most 57 characters a-z, 0-9 and -", block, name)
			}
			seen[name] = true
		}
	}
	for _, text := range []string{"01J8Z", "a/b", strings.Repeat("x", 64), "", "-a"} {
		if v := labelOf(text); !labelValue.MatchString(v) {
			t.Errorf("%q is labeled %q, which no label may be", text, v)
		}
	}
}

func TestSettingsAreChecked(t *testing.T) {
	t.Parallel()
	c := Config{Tolerations: []string{"a", "a=b:NoExecute", ":NoSchedule", "a:Never"},
		SecretEnvironment: map[string]string{"A": "secret/key", "B": "secret"},
		Volumes:           []Volume{{Path: "/a", Claim: "a"}, {Path: "/b"}, {Path: "/c", Claim: "c", HostPath: "/c"}}}
	if problems := (Config{}).Validate(c); len(problems) != 5 {
		t.Errorf("%d problems, expected 5: two tolerations, a Secret, two volumes: %v", len(problems), problems)
	}
}

// TestTheRoleInTheGuide compares docs/clusters.md with the rights that the engine needs.
func TestTheRoleInTheGuide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "clusters.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(guide), "kind: Role\n")
	text, _, _ = strings.Cut(text, "---")
	type rule struct {
		Groups           []string `yaml:"apiGroups"`
		Resources, Verbs []string
	}
	var role struct{ Rules []rule }
	if err := yaml.Unmarshal([]byte(text), &role); err != nil {
		t.Fatalf("the Role is no YAML: %v\n%s", err, text)
	}
	for _, r := range (Config{GangScheduler: "coscheduling"}).rights() {
		if !slices.ContainsFunc(role.Rules, func(has rule) bool {
			return slices.Contains(has.Groups, r.group) && slices.Contains(has.Resources, r.resource) &&
				slices.Contains(has.Verbs, r.verb)
		}) {
			t.Errorf("the Role does not allow %s %s", r.verb, r.resource)
		}
	}
}
