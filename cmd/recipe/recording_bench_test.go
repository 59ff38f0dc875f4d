package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

// recordedRun has steps of 8 groups of 8 × 1,024 tokens. Inference and training take turns, so that every run samples
// and trains the same number of tokens.
const recordedRun = `
trajectories "builtin" "default" { samples_bytes = %d }
inference "tiny" "policy" { model = "long.tiny" }
environment "arithmetic" "sums" {
  inference     = inference.tiny.policy
  group_size    = 8
  max_tokens    = 1024
  deterministic = true
}
trainer "tiny" "policy" {
  model        = "long.tiny"
  environments = [environment.arithmetic.sums]
  steps        = 5
  batch_size   = 8 * 8
}
sync "weights" "policy" {
  trainer   = trainer.tiny.policy
  inference = [inference.tiny.policy]
}
`

// BenchmarkRecordedRun compares whole runs with and without the record of samples, by turns; b.N is the number of
// pairs. share-% is what the record adds to the processor time of all processes of a run, with its standard error over
// the pairs; api-% is the part of it in the process of the trajectory API, whose time varies less from run to run;
// engine-% is what the engine takes after its start, for the event log with the timeline and for everything else.
func BenchmarkRecordedRun(b *testing.B) {
	dir := b.TempDir()
	if err := longModel().Save(filepath.Join(dir, "long.tiny")); err != nil {
		b.Fatal(err)
	}
	var whole, api, engine, seconds []float64
	for b.Loop() {
		sizes := []int64{0, 2 << 30}
		if len(whole)%2 == 1 { // neither is always the first
			slices.Reverse(sizes)
		}
		used := map[int64]processorTime{}
		for _, size := range sizes {
			used[size] = runRecorded(b, dir, size)
		}
		with, without := used[2<<30], used[0]
		whole = append(whole, 100*(with.all-without.all)/without.all)
		api = append(api, 100*(with.api-without.api)/without.all)
		engine = append(engine, 100*with.engine/with.all)
		seconds = append(seconds, without.all)
		b.Logf("with %.2f, without %.2f", with, without)
	}
	for name, list := range map[string][]float64{"share-%": whole, "api-%": api, "engine-%": engine,
		"run-cpu-s": seconds} {
		mean, deviation := meanAndError(list)
		b.ReportMetric(mean, name)
		b.ReportMetric(deviation, name+"-error")
	}
}

// longModel is a small random model with room for 1,024 tokens. It never ends a text by itself.
func longModel() *lm.Checkpoint {
	c := lm.Config{Vocabulary: len(lm.ASCII) + int(lm.FirstCharacter), Width: 32, Layers: 1, Heads: 2, Hidden: 64,
		Context: 1152}
	p, err := lm.NewParams(c, 1)
	if err != nil {
		panic(err)
	}
	flat := p.Flat()
	for token := range c.Vocabulary {
		flat[token*c.Width] = 10 // the first component of every embedding, so that one weight can speak against a token
	}
	head := flat[len(flat)-c.Width*c.Vocabulary:]
	head[lm.End] = -10
	return &lm.Checkpoint{Params: p, Alphabet: lm.ASCII}
}

// processorTime of a run in seconds: of all its processes, of the trajectory API's and of the engine's.
type processorTime struct{ all, api, engine float64 }

func runRecorded(b *testing.B, dir string, samplesBytes int64) processorTime {
	b.Helper()
	recipe := fmt.Appendf(nil, recordedRun, samplesBytes)
	if err := os.WriteFile(filepath.Join(dir, "long.hcl"), recipe, 0o600); err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), "recipe", "apply", "-y", "long.hcl")
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	run := filepath.Join(dir, ".recipe", "long")
	done := make(chan struct{})
	last := make(chan processorTime, 1)
	go func() { last <- followProcesses(cmd.Process.Pid, run, done) }()
	err := cmd.Wait()
	close(done)
	used := <-last
	if err != nil {
		b.Fatalf("recipe apply: %v\n%s", err, out.Bytes())
	}
	used.all = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	if err := os.RemoveAll(run); err != nil {
		b.Fatal(err)
	}
	return used
}

// followProcesses reads the processor time of the engine and of the trajectory API until done is closed.
// The engine's counts from the start of the trajectory API on.
func followProcesses(engine int, run string, done <-chan struct{}) (t processorTime) {
	starting := 0.0
	for {
		select {
		case <-done:
			return t
		case <-time.After(50 * time.Millisecond):
		}
		var record struct{ Process struct{ PID int } }
		text, err := os.ReadFile(filepath.Join(run, "blocks", "trajectories.builtin.default", "reattach.json"))
		if err == nil && json.Unmarshal(text, &record) == nil {
			t.api = max(t.api, processTime(record.Process.PID))
		}
		used := processTime(engine)
		if t.api == 0 {
			starting = used
		}
		t.engine = max(t.engine, used-starting)
	}
}

// processTime is the processor time of one process in seconds; 0 when it is gone.
func processTime(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100 // ticks of the kernel's interface
}

// meanAndError are the mean and its standard error.
func meanAndError(list []float64) (mean, deviation float64) {
	for _, v := range list {
		mean += v / float64(len(list))
	}
	for _, v := range list {
		deviation += (v - mean) * (v - mean)
	}
	n := float64(len(list))
	return mean, math.Sqrt(deviation / max(1, n-1) / n)
}
