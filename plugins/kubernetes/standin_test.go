package kubernetes

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/executor"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// standIn answers as the API server of a cluster does whose only node is this machine: the command of a Job's pod runs
// as a process. The same suite runs on a real cluster, see make e2e-kubernetes.
type standIn struct {
	*httptest.Server
	dir string // for logs and mounts

	mu      sync.Mutex
	jobs    map[string]*standInJob
	secrets map[string]object
	groups  map[string]object   // PodGroups
	refuse  map[string]apiError // by method and path
	hidden  bool                // lists by the label of runs hold nothing
}

type standInJob struct {
	manifest object
	deleted  bool
	cmd      *exec.Cmd // nil: it waits: see mayStart
	ended    chan struct{}
	gone     bool // its pod
}

const standInToken = "token-of-the-tests"

func newStandIn(t *testing.T) *standIn {
	t.Helper()
	s := &standIn{dir: t.TempDir(), jobs: map[string]*standInJob{}, secrets: map[string]object{},
		groups: map[string]object{}, refuse: map[string]apiError{}}
	mux := http.NewServeMux()
	jobs, core := "/apis/batch/v1/namespaces/rl/jobs", "/api/v1/namespaces/rl/"
	mux.HandleFunc("POST "+jobs, s.create)
	mux.HandleFunc("GET "+jobs, s.listJobs)
	mux.HandleFunc("GET "+jobs+"/{name}", s.one)
	mux.HandleFunc("DELETE "+jobs+"/{name}", s.deleteJob)
	mux.HandleFunc("PATCH "+jobs+"/{name}", s.patchJob)
	mux.HandleFunc("POST "+podGroupsOf["coscheduling"].path("rl"), s.createGroup)
	mux.HandleFunc("GET "+core+"pods", s.listPods)
	mux.HandleFunc("GET "+core+"pods/{name}/log", s.log)
	mux.HandleFunc("DELETE "+core+"pods/{name}", s.deletePod)
	mux.HandleFunc("POST "+core+"secrets", s.createSecret)
	mux.HandleFunc("GET "+core+"events", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, object{}) })
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+standInToken {
			refuseWith(w, apiError{401, "Unauthorized", "Unauthorized"})
			return
		}
		s.mu.Lock()
		said, refused := s.refuse[r.Method+" "+r.URL.Path]
		s.mu.Unlock()
		if refused {
			refuseWith(w, said)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.close)
	return s
}

func (s *standIn) close() {
	s.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		if j.cmd != nil {
			_ = syscall.Kill(-j.cmd.Process.Pid, syscall.SIGKILL)
			<-j.ended
		}
	}
}

// config is that of an executor whose kubeconfig file leads here.
func (s *standIn) config(t *testing.T, volume string) Config {
	t.Helper()
	dir := t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	text := fmt.Sprintf(`
apiVersion: v1
current-context: other
contexts:
- {name: other, context: {cluster: none}}
- {name: test, context: {cluster: c, user: u, namespace: rl}}
clusters:
- {name: c, cluster: {server: %q, certificate-authority: ca.crt}}
users:
- {name: u, user: {tokenFile: token}}
`, s.URL)
	for name, content := range map[string]string{"config": text, "ca.crt": string(ca), "token": standInToken + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Config{Kubeconfig: filepath.Join(dir, "config"), Context: "test", Image: "none",
		Volumes: []Volume{{Path: volume, HostPath: volume}}}
}

func answer(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value)
}

func refuseWith(w http.ResponseWriter, e apiError) {
	answer(w, e.Code, object{"kind": "Status", "status": "Failure", "code": e.Code, "reason": e.Reason,
		"message": e.Message})
}

func (s *standIn) create(w http.ResponseWriter, r *http.Request) {
	var manifest object
	if err := json.NewDecoder(r.Body).Decode(&manifest); err != nil {
		refuseWith(w, apiError{400, "BadRequest", err.Error()})
		return
	}
	meta := manifest["metadata"].(object)
	name := meta["name"].(string)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[name] != nil {
		refuseWith(w, apiError{409, "AlreadyExists", fmt.Sprintf("jobs.batch %q already exists", name)})
		return
	}
	meta["uid"] = "uid-of-" + name
	j := &standInJob{manifest: manifest, ended: make(chan struct{})}
	s.jobs[name] = j
	if err := s.startAll(); err != nil {
		delete(s.jobs, name)
		refuseWith(w, apiError{400, "BadRequest", err.Error()})
		return
	}
	answer(w, 201, manifest)
}

// startAll starts the jobs that wait for nothing any more.
func (s *standIn) startAll() error {
	for name, j := range s.jobs {
		if j.cmd == nil && !j.deleted && s.mayStart(name, j) {
			if err := s.start(name, j); err != nil {
				return err
			}
		}
	}
	return nil
}

// mayStart reports whether the pod of a job has its Secret, and its PodGroup as many pods as it needs.
func (s *standIn) mayStart(name string, j *standInJob) bool {
	text, _ := json.Marshal(j.manifest)
	if strings.Contains(string(text), `"secretName"`) && s.secrets[name] == nil {
		return false
	}
	labels := j.manifest["metadata"].(object)["labels"].(object)
	gang := labels[podGroupsOf["coscheduling"].label]
	if gang == nil {
		return true
	}
	group, pods := s.groups[gang.(string)], 0
	for _, other := range s.jobs {
		if other.manifest["metadata"].(object)["labels"].(object)[gangLabel] == gang &&
			other.manifest["spec"].(object)["suspend"] != true {
			pods++
		}
	}
	return group != nil && float64(pods) >= group["spec"].(object)["minMember"].(float64) &&
		j.manifest["spec"].(object)["suspend"] != true
}

func (s *standIn) createGroup(w http.ResponseWriter, r *http.Request) {
	var group object
	if err := json.NewDecoder(r.Body).Decode(&group); err != nil {
		refuseWith(w, apiError{400, "BadRequest", err.Error()})
		return
	}
	name := group["metadata"].(object)["name"].(string)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups[name] != nil {
		refuseWith(w, apiError{409, "AlreadyExists", "podgroups already exists"})
		return
	}
	s.groups[name] = group
	answer(w, 201, group)
}

func (s *standIn) patchJob(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[r.PathValue("name")]
	var patch struct{ Spec struct{ Suspend *bool } }
	err := json.NewDecoder(r.Body).Decode(&patch)
	if j == nil || err != nil || patch.Spec.Suspend == nil ||
		r.Header.Get("Content-Type") != "application/merge-patch+json" {
		refuseWith(w, apiError{404, "NotFound", fmt.Sprintf("these tests expect a change of suspend: %v", err)})
		return
	}
	j.manifest["spec"].(object)["suspend"] = *patch.Spec.Suspend
	if err := s.startAll(); err != nil {
		refuseWith(w, apiError{400, "BadRequest", err.Error()})
		return
	}
	answer(w, 200, j.manifest)
}

// dropGroups deletes the PodGroups whose Jobs are all gone, as the cluster's garbage collection does.
func (s *standIn) dropGroups() {
	for name, group := range s.groups {
		owners, _ := group["metadata"].(object)["ownerReferences"].([]any)
		if !slices.ContainsFunc(owners, func(o any) bool { return s.jobs[o.(object)["name"].(string)] != nil }) {
			delete(s.groups, name)
		}
	}
}

// start runs the command of a job's pod; its mounts are folders of its own.
func (s *standIn) start(name string, j *standInJob) error {
	dir := filepath.Join(s.dir, name)
	mounts := strings.NewReplacer(secretFolder, filepath.Join(dir, "secret"), homeFolder, filepath.Join(dir, "home"))
	for _, path := range []string{secretFolder, homeFolder} {
		if err := os.MkdirAll(mounts.Replace(path), 0o700); err != nil {
			return err
		}
	}
	if secret := s.secrets[name]; secret != nil {
		for file, text := range secret["data"].(object) {
			content, err := base64.StdEncoding.DecodeString(text.(string))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "secret", file), content, 0o600)
			}
			if err != nil {
				return err
			}
		}
	}
	spec := j.manifest["spec"].(object)["template"].(object)["spec"].(object)
	container := spec["containers"].([]any)[0].(object)
	var argv []string
	for _, a := range container["command"].([]any) {
		argv = append(argv, mounts.Replace(a.(string)))
	}
	j.cmd = exec.Command(argv[0], argv[1:]...)
	j.cmd.Dir = mounts.Replace(container["workingDir"].(string))
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err == nil {
		j.cmd.Stdout, j.cmd.Stderr = log, log
		err = errors.Join(j.cmd.Start(), log.Close())
	}
	if err != nil {
		return err
	}
	go func() {
		_ = j.cmd.Wait()
		close(j.ended)
	}()
	return nil
}

// selected reports whether the label selector of a request, "LABEL in (RUN,RUN)", names the run of a job, or the job.
func (s *standIn) selected(r *http.Request, j *standInJob) bool {
	labels := j.manifest["metadata"].(object)["labels"].(object)
	selector := r.URL.Query().Get("labelSelector")
	if name, one := strings.CutPrefix(selector, jobLabel+"="); one {
		return name == j.manifest["metadata"].(object)["name"]
	}
	_, runs, _ := strings.Cut(selector, runLabel+" in (")
	return !s.hidden && slices.Contains(strings.Split(strings.TrimSuffix(runs, ")"), ","), labels[runLabel].(string))
}

func (s *standIn) listJobs(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []any{}
	for _, j := range s.jobs {
		if s.selected(r, j) {
			items = append(items, j.manifest)
		}
	}
	answer(w, 200, object{"items": items})
}

func (s *standIn) one(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[r.PathValue("name")]; j != nil {
		answer(w, 200, j.manifest)
		return
	}
	refuseWith(w, apiError{404, "NotFound", "jobs.batch not found"})
}

func (s *standIn) listPods(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []any{}
	for name, j := range s.jobs {
		if !s.selected(r, j) || j.gone || j.cmd == nil {
			continue
		}
		status := object{"phase": "Running"}
		select {
		case <-j.ended:
			code := j.cmd.ProcessState.ExitCode()
			status["phase"] = map[bool]string{true: "Succeeded", false: "Failed"}[code == 0]
			status["containerStatuses"] = []object{{"state": object{"terminated": object{"exitCode": code, "reason": "Error"}}}}
		default:
		}
		meta := j.manifest["metadata"].(object)
		items = append(items, object{"metadata": object{"name": name + "-x", "labels": meta["labels"]},
			"spec": object{"nodeName": "here"}, "status": status})
	}
	answer(w, 200, object{"items": items})
}

func (s *standIn) log(w http.ResponseWriter, r *http.Request) {
	http.ServeFile(w, r, filepath.Join(s.dir, strings.TrimSuffix(r.PathValue("name"), "-x"), "log"))
}

// deleteJob deletes in the foreground: the Job is there until its pod is gone.
func (s *standIn) deleteJob(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[r.PathValue("name")]
	if j == nil {
		refuseWith(w, apiError{404, "NotFound", "jobs.batch not found"})
		return
	}
	var options struct{ PropagationPolicy string }
	if err := json.NewDecoder(r.Body).Decode(&options); err != nil || options.PropagationPolicy != "Foreground" {
		refuseWith(w, apiError{400, "BadRequest", "these tests expect that pods are waited for"})
		return
	}
	j.manifest["metadata"].(object)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	if !j.deleted {
		j.deleted = true
		go s.end(r.PathValue("name"), j, 30*time.Second)
	}
	answer(w, 200, j.manifest)
}

func (s *standIn) deletePod(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := strings.TrimSuffix(r.PathValue("name"), "-x")
	j := s.jobs[name]
	if j == nil {
		refuseWith(w, apiError{404, "NotFound", "pods not found"})
		return
	}
	var options struct{ GracePeriodSeconds *int }
	_ = json.NewDecoder(r.Body).Decode(&options)
	if options.GracePeriodSeconds != nil {
		go s.end(name, j, time.Duration(*options.GracePeriodSeconds)*time.Second)
	}
	answer(w, 200, object{})
}

// end ends the process of a pod as a kubelet does.
func (s *standIn) end(name string, j *standInJob, grace time.Duration) {
	s.mu.Lock()
	cmd := j.cmd
	s.mu.Unlock()
	if cmd != nil {
		_ = syscall.Kill(cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-j.ended:
		case <-time.After(grace):
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-j.ended
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if j.gone = true; j.deleted {
		delete(s.jobs, name)
		delete(s.secrets, name)
		s.dropGroups()
	}
}

func (s *standIn) createSecret(w http.ResponseWriter, r *http.Request) {
	var secret object
	if err := json.NewDecoder(r.Body).Decode(&secret); err != nil {
		refuseWith(w, apiError{400, "BadRequest", err.Error()})
		return
	}
	name := secret["metadata"].(object)["name"].(string)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.secrets[name] != nil {
		refuseWith(w, apiError{409, "AlreadyExists", "secrets already exists"})
		return
	}
	s.secrets[name] = secret
	if err := s.startAll(); err != nil {
		refuseWith(w, apiError{400, "BadRequest", err.Error()})
		return
	}
	answer(w, 201, secret)
}

func TestCompliance(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	c := newStandIn(t).config(t, shared)
	c.GangScheduler = "coscheduling"
	plugintest.Executor(t, plugintest.ExecutorSuite{Shared: shared, Single: true, Staged: true, Alone: true,
		Patience: time.Minute,
		Open:     func(string) (executor.Executor, error) { return New(c), nil }})
}

// TestTheSecretOfAJob submits a job with keys, by an engine that was killed before it had made their Secret, too.
func TestTheSecretOfAJob(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newStandIn(t)
	x := New(s.config(t, dir))
	file := filepath.Join(dir, "agent.json")
	if err := os.WriteFile(file, []byte("the keys"), 0o600); err != nil {
		t.Fatal(err)
	}
	j := executor.Job{Key: executor.Key{Run: "01J", Block: "trainer.tiny.policy", Attempt: 1}, Dir: dir,
		Argv: []string{"/bin/sleep", "600", file}, Secret: file}
	name := nameOf(j.Key)
	for range 2 {
		if _, err := x.Submit(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		made := s.secrets[name]
		delete(s.secrets, name)
		s.mu.Unlock()
		text, _ := json.Marshal(made)
		for _, want := range []string{`"dGhlIGtleXM="`, `"uid":"uid-of-` + name + `"`} {
			if !strings.Contains(string(text), want) {
				t.Errorf("the Secret is %s; expected %s in it", text, want)
			}
		}
	}
	manifest, _ := json.Marshal(s.jobs[name].manifest)
	if strings.Contains(string(manifest), "dGhlIGtleXM") || strings.Contains(string(manifest), file) {
		t.Errorf("the Job holds the keys, or their path on the engine's machine: %s", manifest)
	}
}

// TestRefusalsSayWhatToDo has the cluster refuse a job in its own words.
func TestRefusalsSayWhatToDo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newStandIn(t)
	x := New(s.config(t, dir))
	j := executor.Job{Key: executor.Key{Run: "r", Block: "b", Attempt: 1}, Argv: []string{"true"}, Dir: dir}
	const path = "/apis/batch/v1/namespaces/rl/jobs"
	for _, c := range []struct {
		said         apiError
		want, remedy string
	}{
		{apiError{403, "Forbidden", `jobs.batch "x" is forbidden: exceeded quota: few, requested: count/jobs.batch=1`},
			"exceeded quota: few", "lower gpus"},
		{apiError{403, "Forbidden", `jobs.batch is forbidden: User "me" cannot create resource "jobs"`},
			`User "me" cannot create`, "recipe doctor FILE --executor"},
		{apiError{404, "NotFound", `namespaces "rl" not found`}, `namespaces "rl" not found`, "make the namespace"},
		{apiError{422, "Invalid", "Job is invalid: spec.template: Invalid value"}, "Invalid value", "recipe plan"},
	} {
		s.mu.Lock()
		s.refuse["POST "+path] = c.said
		s.mu.Unlock()
		_, err := x.Submit(t.Context(), j)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(remedyIn(err), c.remedy) {
			t.Errorf("the error is %v (%s); expected %q, and what to do: %q", err, remedyIn(err), c.want, c.remedy)
		}
	}
	s.mu.Lock()
	s.refuse["POST "+path] = apiError{503, "ServiceUnavailable", "etcd leader changed"}
	s.mu.Unlock()
	if _, err := x.Submit(t.Context(), j); !errors.Is(err, executor.ErrUnreachable) || remedyIn(err) != "" {
		t.Errorf("of a cluster that does not answer the error is %v; expected one that says so", err)
	}
}
