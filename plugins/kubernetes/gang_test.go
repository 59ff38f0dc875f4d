package kubernetes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/executor"
)

// aGang are two jobs of one run, the second with keys and on two machines.
func aGang(dir string) []executor.Job {
	file := filepath.Join(dir, "agent.json")
	return []executor.Job{
		{Key: executor.Key{Run: "01J", Block: "inference.tiny.policy", Attempt: 1}, Dir: dir,
			Argv: []string{"/bin/sleep", "600"}, Resources: executor.Resources{GPUs: 2}},
		{Key: executor.Key{Run: "01J", Block: "trainer.tiny.policy", Attempt: 1}, Dir: dir,
			Argv: []string{"/bin/sleep", "600", file}, Secret: file, Resources: executor.Resources{Nodes: 2}},
	}
}

// TestTheManifestOfAGang compares with testdata/gang.yaml.
func TestTheManifestOfAGang(t *testing.T) {
	t.Parallel()
	c := Config{Image: "i", GangScheduler: "coscheduling", Volumes: []Volume{{Path: "/shared", Claim: "runs"}}}
	jobs := aGang("/shared/run")
	got, err := New(c).(executor.Gangs).RenderTogether(jobs)
	if err != nil {
		t.Fatal(err)
	}
	asIn(t, "gang.yaml", got)
	if one, two := gangName(jobs), gangName([]executor.Job{jobs[1], jobs[0]}); one != two {
		t.Errorf("the same jobs in another order are gang %s, not %s", two, one)
	}
	jobs[0].Attempt = 2
	if name := gangName(jobs); strings.Contains(got.Text, name) {
		t.Errorf("another attempt has the same name %s", name)
	}
	c.GangScheduler, c.SchedulerName = "volcano", "mine"
	if got, err = New(c).(executor.Gangs).RenderTogether(jobs); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"apiVersion: scheduling.volcano.sh/v1beta1", "schedulerName: mine",
		"        scheduling.k8s.io/group-name: " + gangName(jobs)} {
		if !strings.Contains(got.Text, want) {
			t.Errorf("for Volcano a gang is\n%s\nexpected %q in it", got.Text, want)
		}
	}
	if _, gangs := New(Config{}).(executor.Gangs); gangs {
		t.Error("an executor without gang_scheduler says that it can start several jobs together")
	}
}

// newGang is the stand-in with an executor and a gang on it, one machine each.
func newGang(t *testing.T) (*standIn, executor.Gangs, []executor.Job) {
	t.Helper()
	dir := t.TempDir()
	s := newStandIn(t)
	c := s.config(t, dir)
	c.GangScheduler = "coscheduling"
	jobs := aGang(dir)
	jobs[1].Nodes = 1
	if err := os.WriteFile(jobs[1].Secret, []byte("the keys"), 0o600); err != nil {
		t.Fatal(err)
	}
	return s, New(c).(executor.Gangs), jobs
}

// TestAGangThatWasBegunIsFinished has an engine killed after each request of a submission: no job runs until another
// engine has made what is missing, and then both do.
func TestAGangThatWasBegunIsFinished(t *testing.T) {
	t.Parallel()
	const jobs, core = "/apis/batch/v1/namespaces/rl/jobs", "/api/v1/namespaces/rl/"
	for _, at := range []string{"POST " + core + "secrets", "POST " + podGroupsOf["coscheduling"].path("rl"),
		"PATCH " + jobs + "/", "PATCH " + jobs + "/trainer"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			s, x, gang := newGang(t)
			at := strings.Replace(at, jobs+"/trainer", jobs+"/"+nameOf(gang[1].Key), 1)
			if strings.HasSuffix(at, "/") {
				at += nameOf(gang[0].Key)
			}
			s.mu.Lock()
			s.refuse[at] = apiError{503, "ServiceUnavailable", "etcd leader changed"}
			s.mu.Unlock()
			if handles, err := x.SubmitTogether(t.Context(), gang); err == nil {
				t.Fatalf("SubmitTogether returns %v, and %s was refused", handles, at)
			}
			s.mu.Lock()
			delete(s.refuse, at)
			for name, j := range s.jobs {
				if j.cmd != nil {
					t.Errorf("%s runs before the gang is submitted", name)
				}
			}
			s.mu.Unlock()
			handles, err := x.SubmitTogether(t.Context(), []executor.Job{gang[1], gang[0]})
			if err != nil || handles[0].Key != gang[1].Key {
				t.Fatalf("SubmitTogether returns %v, %v; expected the handles in the order of the jobs", handles, err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, j := range gang {
				if made := s.jobs[nameOf(j.Key)]; made == nil || made.cmd == nil {
					t.Errorf("%s does not run", j.Key)
				}
			}
			if owners := s.groups[gangName(gang)]["metadata"].(object)["ownerReferences"].([]any); len(s.groups) != 1 ||
				len(owners) != 2 {
				t.Errorf("the PodGroups are %v; expected one that belongs to both Jobs", s.groups)
			}
		})
	}
}

// TestAGangThatWaitsIsCanceledAsOne cancels one job of a gang that has not started: the other would wait for ever.
func TestAGangThatWaitsIsCanceledAsOne(t *testing.T) {
	t.Parallel()
	s, x, gang := newGang(t)
	s.mu.Lock()
	group := podGroupsOf["coscheduling"].path("rl")
	s.refuse["POST "+group] = apiError{404, "NotFound", "the server could not find the requested resource"}
	s.mu.Unlock()
	if _, err := x.SubmitTogether(t.Context(), gang); !strings.Contains(remedyIn(err), "gang_scheduler") {
		t.Errorf("of a cluster without PodGroups the error is %v (%s); expected what to do", err, remedyIn(err))
	}
	one := executor.Handle{Key: gang[1].Key, ID: nameOf(gang[1].Key)}
	if err := x.(executor.Executor).Cancel(t.Context(), one, 0); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.jobs) > 0 || len(s.secrets) > 0 {
		t.Errorf("left are the Jobs %v and Secrets %v", s.jobs, s.secrets)
	}
}
