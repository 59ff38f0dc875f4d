package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/evaluation"
	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
)

// held is a quickstart with an evaluation that takes some seconds each time.
type held struct {
	*victim
	folder string
}

func newHeld(t *testing.T, block string) *held {
	t.Helper()
	v := newVictim(t, 1)
	path := filepath.Join(v.dir, "quickstart.hcl")
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(text, "\nevaluation \"held_out\" {\n  environment = environment.arithmetic.sums\n"+
			block+"\n}\n"...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &held{v, filepath.Join(string(v.run()), "evaluations", "held_out")}
}

// await waits until the evaluation of a step has answered some tasks and is not complete, and returns what is in its
// file.
func (h *held) await(step int64) []byte {
	h.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(h.folder, evaluation.ResultFile(step))); err == nil {
			h.t.Fatalf("the evaluation of step %d was over before it could be interrupted", step)
		}
		text, err := os.ReadFile(filepath.Join(h.folder, evaluation.ScoresFile(step)))
		if err == nil && bytes.Count(text, []byte("\n")) > 10 {
			return text[:bytes.LastIndexByte(text, '\n')+1]
		}
	}
	h.t.Fatalf("no evaluation of step %d: %s", step, h.out.String())
	return nil
}

// completed waits until an apply has ended well.
func (h *held) completed(done <-chan error) {
	h.t.Helper()
	select {
	case err := <-done:
		if err != nil {
			h.t.Fatalf("%v\n%s", err, h.out.String())
		}
	case <-time.After(5 * time.Minute):
		h.t.Fatalf("the run does not end: %s", h.out.String())
	}
}

// result checks a result and its scores: every task once, by one version.
func (h *held) result(step int64) *evaluation.Result {
	h.t.Helper()
	text, err := os.ReadFile(filepath.Join(h.folder, evaluation.ResultFile(step)))
	var r evaluation.Result
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		h.t.Fatalf("%v\n%s", err, h.out.String())
	}
	lines, err := os.ReadFile(filepath.Join(h.folder, evaluation.ScoresFile(step)))
	if err != nil {
		h.t.Fatal(err)
	}
	tasks, header, err := evaluation.ReadScores(filepath.Join(h.folder, evaluation.ScoresFile(step)))
	if err != nil {
		h.t.Fatal(err)
	}
	if n := bytes.Count(lines, []byte("\n")); n != len(tasks)+1 || len(tasks) != r.Asked {
		h.t.Errorf("step %d: %d lines of %d tasks, %d in the result", step, n-1, len(tasks), r.Asked)
	}
	for _, task := range tasks {
		if len(task.Versions) != 2 || task.Versions[0] != r.Version || task.Versions[1] != r.Version {
			h.t.Fatalf("step %d: task %d was answered by %v, the result is of version %d", step, task.Task, task.Versions,
				r.Version)
		}
	}
	if header.Version != r.Version || r.Step != step || r.Failed != 0 {
		h.t.Errorf("step %d: %+v of %+v", step, r, header)
	}
	return &r
}

// done counts the results in the log, by step.
func (h *held) done() map[int64]int {
	h.t.Helper()
	found := map[int64]int{}
	err := event.Read(h.run().Events(), 0, func(e event.Event) error {
		if e.Type == event.Evaluation && e.State != event.EvaluationBegun {
			found[e.Step]++
			if e.State == event.EvaluationFailed {
				h.t.Errorf("step %d: %s", e.Step, e.Message)
			}
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return found
}

// An engine and an environment that are killed in the middle of an evaluation cost only what was not answered yet.
//
//docs:evaluation.md The engine or the environment is killed in the middle of an evaluation
func TestAnEvaluationOutlivesKills(t *testing.T) {
	if testing.Short() {
		t.Skip("kills real runs")
	}
	t.Parallel()
	h := newHeld(t, "every = 30\ntasks = 100\nsamples = 512\npass_at = [1, 4]")
	cmd, done := h.apply()
	answered := h.await(30)
	_ = cmd.Process.Kill()
	<-done
	_, done = h.apply()
	h.await(60)
	killEnvironment(t, h.run())
	h.completed(done)
	kept, err := os.ReadFile(filepath.Join(h.folder, evaluation.ScoresFile(30)))
	if err != nil || !bytes.HasPrefix(kept, answered) {
		t.Errorf("what was answered before the engine was killed is asked again: %v", err)
	}
	for _, step := range []int64{0, 30, 60} {
		if r := h.result(step); r.Tasks != 100 || step > 0 && (len(r.Baseline) != 3 || r.Baseline[0].Tasks != 100) {
			t.Errorf("step %d: %d tasks, changes %+v", step, r.Tasks, r.Baseline)
		}
	}
	if got := h.done(); fmt.Sprint(got) != "map[0:1 30:1 60:1]" {
		t.Errorf("results by step: %v", got)
	}
}

// A trainer keeps the checkpoint with the best result of an evaluation, and the one whose evaluation is not finished,
// also when the engine is killed in the middle of one: the next engine decides.
//
//docs:evaluation.md The engine is killed while a checkpoint waits for its result
func TestTheBestCheckpointOutlivesKills(t *testing.T) {
	if testing.Short() {
		t.Skip("kills real runs")
	}
	t.Parallel()
	h := newHeld(t, "every = 10\ntasks = 100\nsamples = 256")
	path := filepath.Join(h.dir, "quickstart.hcl")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head := []byte("trainer \"tiny\" \"policy\" {\n")
	changed := bytes.Replace(text, head, append(head, "save_every = 10\nkeep = 1\nkeep_best = 1\n"+
		"best_metric = evaluation.held_out\n"...), 1)
	changed = append(changed, "\noutput \"best\" {\n  value = trainer.tiny.policy.best_checkpoint\n}\n"...)
	if err := os.WriteFile(path, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, done := h.apply()
	h.await(20)
	_ = cmd.Process.Kill()
	<-done
	// Such steps ruin the policy, so that the best is not the newest.
	ruined := bytes.Replace(changed, []byte("learning_rate = 3e-4"), []byte("learning_rate = 0.03"), 1)
	if err := os.WriteFile(path, ruined, 0o600); err != nil || bytes.Equal(ruined, changed) {
		t.Fatalf("%v\n%s", err, changed)
	}
	_, done = h.apply()
	h.completed(done)
	best, value := int64(-1), -1.0
	results, err := evaluation.NewReader(string(h.run())).Results("held_out")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if v, _ := r.Value("pass@1"); r.Step > 0 && v.Mean >= value {
			best, value = r.Step, v.Mean
		}
	}
	folder := filepath.Join(string(h.run()), "checkpoints", "trainer.tiny.policy")
	want := []string{fmt.Sprintf("step-%08d.tiny", best), fmt.Sprintf("step-%08d.tiny", chaosStep)}
	var got []string
	for _, name := range want {
		if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
			got = append(got, name)
		}
	}
	all, err := filepath.Glob(filepath.Join(folder, "step-*.tiny"))
	if err != nil || len(got) != 2 || len(all) > 3 || best == chaosStep {
		t.Fatalf("the best of %d results is of step %d (%g); there are %v: %v\n%s", len(results), best, value, all, err,
			h.out.String())
	}
	rec, err := state.Read(h.run())
	if err != nil {
		t.Fatal(err)
	}
	a, _ := addr.Parse("trainer.tiny.policy")
	b := rec.Blocks[a].Best
	if b == nil || b.Step != best || b.Path != filepath.Join(folder, want[0]) ||
		b.Metric != "evaluation/held_out/pass@1" ||
		string(rec.Outputs["best"].Value) != fmt.Sprintf("%q", b.Path) {
		t.Errorf("recorded %+v, output %s; the best is of step %d", b, rec.Outputs["best"].Value, best)
	}
}

// killEnvironment kills the process of the environment.
func killEnvironment(t *testing.T, dir state.Dir) {
	t.Helper()
	a, err := addr.Parse("environment.arithmetic.sums")
	if err != nil {
		t.Fatal(err)
	}
	pid := pidOf(filepath.Join(dir.Block(a), "reattach.json"))
	if pid < 2 {
		t.Fatal("the environment has no process")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
