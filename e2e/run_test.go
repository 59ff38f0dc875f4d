//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// event is one line of the event log (docs/events.md).
type event struct {
	Seq         int64              `json:"seq"`
	Time        time.Time          `json:"time"`
	Type        string             `json:"type"`
	Address     string             `json:"address"`
	Host        string             `json:"host"`
	Life        int64              `json:"life"`
	Phase       string             `json:"phase"`
	Level       string             `json:"level"`
	Message     string             `json:"message"`
	Remedy      string             `json:"remedy"`
	Step        int64              `json:"step"`
	Version     int64              `json:"version"`
	Transport   string             `json:"transport"`
	Metrics     map[string]float64 `json:"metrics"`
	Path        string             `json:"path"`
	Name        string             `json:"name"`
	Value       any                `json:"value"`
	Environment string             `json:"environment"`
}

// repository is the root of the checkout.
func repository(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// run is one `recipe apply`.
type run struct {
	trainer string // address of its trainer block
	t       *testing.T
	dir     string // with the recipe
	recipe  string
	args    []string

	mu      sync.Mutex
	cmd     *exec.Cmd
	events  []event
	changed chan struct{}
	ended   chan struct{}
	err     error
	stderr  bytes.Buffer
	unguard func() // tells the guard that the run is cleaned up
}

// newRun copies the recipes into a directory of the test, so that runs do not share files.
func newRun(t *testing.T, recipe string, vars map[string]string) *run {
	t.Helper()
	root := repository(t)
	dir := t.TempDir()
	if err := os.CopyFS(dir, source{os.DirFS(filepath.Join(root, "recipes"))}); err != nil {
		t.Fatal(err)
	}
	r := &run{t: t, dir: dir, recipe: recipe, trainer: "trainer.grpo.policy"}
	if recipe == "addition.hcl" { // there the trainer is chosen by a variable
		r.trainer = "trainer." + cmp.Or(vars["trainer"], "grpo") + ".policy[0]"
	}
	all := map[string]string{
		"model":          smolLM2(t),
		"python":         environmentPython(t, "vllm"),
		"atropos_python": environmentPython(t, "atropos"),
	}
	switch recipe { // which have no environment of Atropos
	case "agent-tools.hcl":
		delete(all, "atropos_python")
	case "distill.hcl":
		delete(all, "atropos_python")
		delete(all, "model")
	}
	maps.Copy(all, vars)
	for k, v := range all {
		r.args = append(r.args, "--var", k+"="+v)
	}
	t.Cleanup(r.cleanup)
	return r
}

// files are those in the folders of the run's blocks that match, block by block as their folders are named.
func (r *run) files(pattern ...string) []string {
	r.t.Helper()
	found, err := filepath.Glob(filepath.Join(append([]string{r.dir, ".recipe", "*", "blocks"}, pattern...)...))
	if err != nil {
		r.t.Fatal(err)
	}
	return found
}

func (r *run) binary() string { return filepath.Join(repository(r.t), "bin", "recipe") }

// apply starts `recipe apply` and follows its output.
func (r *run) apply() {
	r.t.Helper()
	r.guarded()
	args := append([]string{"apply", "--auto-approve", "--json"}, append(r.args, r.recipe)...)
	cmd := exec.Command(r.binary(), args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(r.dir, "state")) // not among this user's runs
	cmd.Stderr = &r.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatalf("%s (make build makes it): %v", r.binary(), err)
	}
	r.mu.Lock()
	r.cmd, r.changed, r.ended = cmd, make(chan struct{}), make(chan struct{})
	ended := r.ended
	r.mu.Unlock()
	go func() {
		r.read(out)
		err := cmd.Wait()
		r.mu.Lock()
		r.err = err
		r.mu.Unlock()
		close(ended)
	}()
}

func (r *run) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		r.mu.Lock()
		r.events = append(r.events, e)
		close(r.changed)
		r.changed = make(chan struct{})
		r.mu.Unlock()
	}
}

// await waits for an event that fits, after the one with the given number, and returns it.
func (r *run) await(limit time.Duration, what string, after int64, fits func(event) bool) event {
	r.t.Helper()
	deadline := time.After(limit)
	for {
		r.mu.Lock()
		for _, e := range r.events {
			if e.Seq > after && fits(e) {
				r.mu.Unlock()
				return e
			}
		}
		changed, ended := r.changed, r.ended
		r.mu.Unlock()
		select {
		case <-changed:
		case <-ended:
			r.t.Fatalf("the run ended while the test waited for %s\n%s", what, r.story())
		case <-deadline:
			r.t.Fatalf("waited %s for %s\n%s", limit, what, r.story())
		}
	}
}

// wait waits for the end of apply.
func (r *run) wait(limit time.Duration) error {
	r.t.Helper()
	select {
	case <-r.ended:
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.err
	case <-time.After(limit):
		r.t.Fatalf("waited %s for the run to end\n%s", limit, r.story())
		return nil
	}
}

// story describes the run for a failed test: all events but metrics and samples, and the ends of the programs' logs.
func (r *run) story() string {
	r.mu.Lock()
	var b strings.Builder
	for _, e := range r.events {
		switch e.Type {
		case "phase", "log", "restart", "notice", "run_ended", "weights", "checkpoint":
			fmt.Fprintf(&b, "%d %s %s %s %s %s %s\n", e.Seq, e.Type, e.Address, e.Phase, e.Level, e.Message, e.Remedy)
		}
	}
	b.WriteString(r.stderr.String())
	r.mu.Unlock()
	_ = filepath.WalkDir(filepath.Join(r.dir, ".recipe"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".log") {
			if data, err := os.ReadFile(path); err == nil {
				fmt.Fprintf(&b, "--- %s\n%s\n", path, data[max(0, len(data)-3000):])
			}
		}
		return nil
	})
	text := b.String()
	return text[max(0, len(text)-20000):]
}

// cleanup ends all processes of the run, and fails the test if one is left.
func (r *run) cleanup() {
	var out bytes.Buffer
	if err := destroy(r.dir, r.recipe, r.binary(), &out); err != nil {
		r.t.Logf("recipe destroy: %v\n%s", err, &out)
	}
	if left := processes(r.t, r.dir); len(left) > 0 {
		r.t.Errorf("processes of the run were left behind: %v", left)
		for pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if r.unguard != nil {
		r.unguard()
	}
}

// processes lists those whose command line or working directory is inside dir.
func processes(t *testing.T, dir string) map[int]string {
	t.Helper()
	found, err := processesIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func processesIn(dir string) (map[int]string, error) {
	found := map[int]string{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		cwd, _ := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		if bytes.Contains(line, []byte(dir)) || strings.HasPrefix(cwd, dir) {
			found[pid] = strings.ReplaceAll(string(line), "\x00", " ")
		}
	}
	return found, nil
}

// all returns the events so far that fit.
func (r *run) all(fits func(event) bool) []event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []event
	for _, e := range r.events {
		if fits(e) {
			list = append(list, e)
		}
	}
	return list
}

func has(address, metric string) func(event) bool {
	return func(e event) bool {
		_, ok := e.Metrics[metric]
		return e.Type == "metrics" && ok && (address == "" || e.Address == address)
	}
}

// median is the middle value, 0 of none.
func median[T cmp.Ordered](list []T) (middle T) {
	if len(list) > 0 {
		middle = slices.Sorted(slices.Values(list))[len(list)/2]
	}
	return middle
}

// learned: the accuracy on held-out questions rose by at least 0.3 from the first evaluation to the last.
func learned(t *testing.T, r *run) {
	t.Helper()
	list := r.all(has(environment, accuracy))
	if len(list) < 2 {
		t.Fatalf("%d evaluations, want one before training and one after\n%s", len(list), r.story())
	}
	before, after := list[0].Metrics[accuracy], list[len(list)-1].Metrics[accuracy]
	t.Logf("held-out accuracy %.3f before, %.3f after", before, after)
	if after < before+0.3 {
		t.Errorf("held-out accuracy went from %.3f to %.3f; want at least 0.3 more", before, after)
	}
}

// edit changes the recipe of the run.
func (r *run) edit(change func(text string) string) {
	r.t.Helper()
	path := filepath.Join(r.dir, r.recipe)
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(change(string(text))), 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}
