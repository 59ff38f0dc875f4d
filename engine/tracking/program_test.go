package tracking_test

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/engine/tracking"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk"
)

const apiKey = "0123456789abcdef0123456789abcdef01234567"

// fakeWandb makes the stand-in for the package wandb the one that is imported, and returns a block that uses it.
func fakeWandb(t *testing.T) decode.Tracking {
	t.Helper()
	fake, err := filepath.Abs(filepath.Join("testdata", "fake"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", fake)
	t.Setenv("WANDB_API_KEY", apiKey)
	return decode.Tracking{Tracker: "wandb", Dir: t.TempDir(), Group: "sweep", Runtime: sdk.Runtime{Python: "python3"}}
}

// call is a call that the stand-in has received.
type call struct {
	Call  string
	Given struct {
		ID, Project, Group, Name, Resume string
		Step                             uint64
		Data                             map[string]any
	}
	Key bool
}

func calls(t *testing.T, tr decode.Tracking, named string) (out []call) {
	t.Helper()
	file, err := os.Open(filepath.Join(tr.Dir, "calls.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var c call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		if c.Call == named {
			out = append(out, c)
		}
	}
	return out
}

// rewards are the steps and event numbers of the rewards that were logged.
func rewards(t *testing.T, tr decode.Tracking) (steps []float64, seqs []uint64) {
	t.Helper()
	for _, c := range calls(t, tr, "log") {
		if step, ok := c.Given.Data[trainer+"/step"].(float64); ok {
			if reward := c.Given.Data[trainer+"/reward"]; reward != step/4 {
				t.Errorf("step %v has the reward %v", step, reward)
			}
			steps, seqs = append(steps, step), append(seqs, c.Given.Step)
		}
	}
	return steps, seqs
}

// Two engines pass a run on to one run of the tracker, each event once; the key is in the process's environment only.
func TestARunIsPassedOnToAProcess(t *testing.T) {
	tr := fakeWandb(t)
	r := newRan(t)
	for _, e := range machines {
		if _, err := r.log.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		r.steps(3*i+1, 3*i+3)
		if said := r.pass(tr); len(said) > 0 {
			t.Errorf("it said %q", said)
		}
	}
	for _, c := range calls(t, tr, "init") {
		if g := c.Given; g.ID != "r-17" || g.Resume != "allow" || g.Project != "sums" || g.Group != "sweep" ||
			g.Name != "sums-r-17" || !c.Key {
			t.Errorf("init was called with %+v", c)
		}
	}
	steps, seqs := rewards(t, tr)
	if !slices.Equal(steps, []float64{1, 2, 3, 4, 5, 6}) || !slices.IsSorted(seqs) {
		t.Errorf("steps %v as events %v", steps, seqs)
	}
	seen := map[string]any{}
	for _, c := range calls(t, tr, "log") {
		for name, value := range c.Given.Data {
			if strings.HasPrefix(name, "machine/") {
				seen[name] = value
			}
		}
	}
	if want := map[string]any{"machine/cpu": 0.5, "machine/n1/" + trainer + "/cpu": 0.25}; !maps.Equal(seen, want) {
		t.Errorf("the engine's machine and that of a job are %v, expected %v", seen, want)
	}
	if n := len(calls(t, tr, "finish")); n != 2 {
		t.Errorf("the run was finished %d times by two engines", n)
	}
	r.holdsNot(apiKey)
}

// holdsNot checks that no file of the run has a secret.
func (r *ran) holdsNot(secret string) {
	r.t.Helper()
	err := filepath.WalkDir(string(r.dir), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), secret) {
			r.t.Errorf("%s holds the secret", path)
		}
		return err
	})
	if err != nil {
		r.t.Error(err)
	}
}

// A tracker that refuses is a warning without credentials; the next engine passes everything on.
func TestATrackerThatRefuses(t *testing.T) {
	tr := fakeWandb(t)
	r := newRan(t)
	r.steps(1, 3)
	if err := os.WriteFile(filepath.Join(tr.Dir, "fails"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	said := r.pass(tr)
	if len(said) != 1 || !strings.Contains(said[0], "tracking.wandb.x is degraded: ConnectionError: refused") ||
		strings.Contains(said[0], "hunter2") {
		t.Errorf("it said %q", said)
	}
	if said = r.pass(tr); len(said) > 0 {
		t.Errorf("it said %q", said)
	}
	if steps, _ := rewards(t, tr); !slices.Equal(steps, []float64{1, 2, 3}) {
		t.Errorf("steps %v", steps)
	}
}

// A process that hangs costs the end of a run a limited time, and is ended.
func TestATrackerThatHangs(t *testing.T) {
	tr := fakeWandb(t)
	r := newRan(t)
	r.steps(1, 3)
	hangs := filepath.Join(tr.Dir, "hangs")
	if err := os.WriteFile(hangs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var said []string
	o := r.options(tr, func(e event.Event) { said = append(said, e.Message) })
	o.End = time.Second
	followed, err := tracking.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	followed.Stop()
	if len(said) != 1 || !strings.Contains(said[0], "did not take what is left within 1s") ||
		!strings.Contains(said[0], "the next apply passes the rest on") {
		t.Errorf("it said %q", said)
	}
	if err := os.Remove(hangs); err != nil {
		t.Fatal(err)
	}
	if said := r.pass(tr); len(said) > 0 { // the first process would hold the lock
		t.Errorf("it said %q", said)
	}
	if steps, _ := rewards(t, tr); !slices.Equal(steps, []float64{1, 2, 3}) {
		t.Errorf("steps %v", steps)
	}
}

// Without the package the message says what to do.
func TestATrackerWithoutItsPackage(t *testing.T) {
	t.Parallel()
	r := newRan(t)
	bare := filepath.Join(t.TempDir(), "bare")
	venv := exec.CommandContext(t.Context(), "python3", "-m", "venv", "--without-pip", bare)
	if out, err := venv.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	said := r.pass(decode.Tracking{Tracker: "wandb", Runtime: sdk.Runtime{Venv: bare}})
	if len(said) != 1 || !strings.Contains(said[0], "No module named 'wandb': run recipe init") {
		t.Errorf("it said %q", said)
	}
}

// An engine that was killed leaves what it had not passed on to the next one, and its process to finish by itself.
func TestAnEngineThatIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	tr := fakeWandb(t)
	r := newRan(t)
	r.steps(1, 3)
	r.killedEngine(tr)
	r.steps(4, 6)
	if said := r.pass(tr); len(said) > 0 {
		t.Errorf("it said %q", said)
	}
	// What was passed on in the last second before the kill may be there twice.
	steps, seqs := rewards(t, tr)
	slices.Sort(steps)
	slices.Sort(seqs)
	if !slices.Equal(slices.Compact(steps), []float64{1, 2, 3, 4, 5, 6}) || len(slices.Compact(seqs)) != 6 {
		t.Errorf("steps %v as events %v", steps, seqs)
	}
	for _, c := range calls(t, tr, "init") {
		if c.Given.ID != "r-17" {
			t.Errorf("the run is %q", c.Given.ID)
		}
	}
	if inits, ends := len(calls(t, tr, "init")), len(calls(t, tr, "finish")); inits != 2 || ends != 2 {
		t.Errorf("%d processes began the run, %d finished it", inits, ends)
	}
}

// killedEngine passes the run on in an engine of its own, which is killed when the tracker has something.
func (r *ran) killedEngine(tr decode.Tracking) {
	r.t.Helper()
	text, err := json.Marshal(tr)
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.CommandContext(r.t.Context(), os.Args[0], "-test.run=^TestEngineToKill$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), "RECIPE_TRACKING_RUN="+string(r.dir), "RECIPE_TRACKING_BLOCK="+string(text))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	offset := filepath.Join(string(r.dir), "tracking", tr.Tracker+".x", "offset.json")
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(offset); err == nil {
			break
		}
		if time.Now().After(deadline) {
			r.t.Fatal("the tracker has had nothing of the run within 5 minutes")
		}
		r.noise()
	}
	if err := cmd.Process.Kill(); err != nil {
		r.t.Fatal(err)
	}
	_ = cmd.Wait()
}

// noise is an event that trackers do not show.
func (r *ran) noise() {
	r.t.Helper()
	if _, err := r.log.Append(event.Event{Type: event.Progress, Address: trainer, Step: 1}); err != nil {
		r.t.Fatal(err)
	}
	if err := r.log.Flush(); err != nil {
		r.t.Fatal(err)
	}
}

// TestEngineToKill is the process of killedEngine.
func TestEngineToKill(t *testing.T) {
	dir := os.Getenv("RECIPE_TRACKING_RUN")
	if dir == "" {
		t.Skip("run by other tests as a process that they kill")
	}
	var tr decode.Tracking
	if err := json.Unmarshal([]byte(os.Getenv("RECIPE_TRACKING_BLOCK")), &tr); err != nil {
		t.Fatal(err)
	}
	r := ran{t: t, dir: state.Dir(dir)}
	if _, err := tracking.Start(t.Context(), r.options(tr, func(e event.Event) { t.Error(e.Message) })); err != nil {
		t.Fatal(err)
	}
	<-t.Context().Done()
}

// TestTrackersReadIt passes a run on over two engines, one of which is killed, and reads it back with each tracker's
// own package. `make test-trackers` runs it.
func TestTrackersReadIt(t *testing.T) {
	python := os.Getenv("RECIPE_TRACKERS_PYTHON")
	if python == "" {
		t.Skip("RECIPE_TRACKERS_PYTHON is not set: make test-trackers sets it")
	}
	t.Setenv("WANDB_API_KEY", apiKey)
	t.Setenv("HF_HUB_OFFLINE", "1")
	for _, tr := range []decode.Tracking{
		{Tracker: "wandb", Mode: "offline", Project: "p", Entity: "e", Group: "g", Tags: []string{"a", "b"}},
		{Tracker: "trackio", Project: "p", Group: "g"},
		{Tracker: "mlflow", Experiment: "p"},
	} {
		t.Run(tr.Tracker, func(t *testing.T) {
			tr.Runtime.Python = python
			r := newRan(t)
			r.steps(1, 30)
			r.killedEngine(tr)
			r.steps(31, 60)
			if said := r.pass(tr); len(said) > 0 {
				t.Fatalf("it said %q", said)
			}
			r.check(tr, python)
			r.holdsNot(apiKey)
		})
	}
}

// check reads the run back.
func (r *ran) check(tr decode.Tracking, python string) {
	t := r.t
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "read_"+tr.Tracker+".py"),
		filepath.Join(string(r.dir), "tracking", tr.Tracker+".x", "files"))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("read back: %v\n%s", err, out)
	}
	var got struct {
		Runs []struct {
			ID, Project, Entity, Group, Name, Status string
			Tags                                     []string
			Config                                   map[string]any
		}
		Rewards [][]any // step, value, time
		Tables  []struct {
			Columns []string
			Data    [][]any
		}
		Axes map[string]string
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(got.Runs) != 1 {
		t.Fatalf("%d runs: %+v", len(got.Runs), got.Runs)
	}
	run := got.Runs[0]
	if run.Project != "p" || run.Group != tr.Group || run.Name != "sums-r-17" || !slices.Equal(run.Tags, tr.Tags) ||
		run.Entity != tr.Entity || tr.Tracker != "trackio" && run.ID != "r-17" ||
		tr.Tracker == "mlflow" && run.Status != "FINISHED" || len(run.Config) == 0 {
		t.Errorf("the run is %+v", run)
	}
	if tr.Tracker == "wandb" && got.Axes[trainer+"/*"] != trainer+"/step" {
		t.Errorf("axes %v", got.Axes)
	}
	values := map[float64]float64{}
	for _, row := range got.Rewards {
		values[row[0].(float64)] = row[1].(float64)
	}
	for step := 1.0; step <= 60; step++ {
		if value, ok := values[step]; !ok || value != step/4 {
			t.Errorf("step %v has the reward %v, %v", step, value, ok)
		}
	}
	found := false
	for _, table := range got.Tables {
		found = found || slices.Equal(table.Columns, []string{"time", "version", "score", "prompt", "completion"}) &&
			slices.ContainsFunc(table.Data, func(row []any) bool { return row[3] == "1+1=" && row[4] == "is 1" })
	}
	if !found {
		t.Errorf("the sample is in no table of %+v", got.Tables)
	}
}
