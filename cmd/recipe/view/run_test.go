package view

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/doctor"
	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/event/eventtest"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/snapshot"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// aRun is the log of a small run with a second between two events.
func aRun() []event.Event {
	const trainer, inference, env = "trainer.tiny.policy", "inference.tiny.policy", "environment.arithmetic.sums"
	events := []event.Event{
		{Type: event.RunStarted, Message: "apply"},
		{Type: event.Phase, Address: inference, Phase: "ready", BlockAttempt: 1},
		{Type: event.Phase, Address: env, Phase: "ready", BlockAttempt: 1},
		{Type: event.Phase, Address: trainer, Phase: "ready", BlockAttempt: 1},
		{Type: event.Output, Name: "url", Value: "http://127.0.0.1:34567/v1"},
		{Type: event.Output, Name: "key", Sensitive: true},
		{Type: event.Output, Name: "checkpoint", Value: ""},
		{Type: event.Output, Name: "trained", Value: float64(999999)}, {Type: event.Output, Name: "trained", Value: 1e6},
	}
	for i := range 20 {
		r := 0.2 + 0.04*float64(i)
		events = append(events,
			event.Event{Type: event.Progress, Address: trainer, Step: int64(i + 1), Total: 20, Unit: "steps"},
			event.Event{Type: event.Metrics, Address: trainer, Step: int64(i + 1),
				Metrics: map[string]float64{"reward": r, "tokens_per_second": 1234}},
			event.Event{Type: event.Sample, Address: env, Prompt: "2+2=", Completion: "4", Score: r},
		)
	}
	return append(events,
		event.Event{Type: event.LogLine, Address: env, Level: "info", Message: "a detail"},
		event.Event{Type: event.LogLine, Address: env, Level: "warn", Message: "a thing\x1b[2J to see"},
		event.Event{Type: event.Weights, Address: "sync.weights.policy", Inference: inference, Version: 20,
			Seconds: 0.05, Transport: "reload"},
		event.Event{Type: event.Checkpoint, Address: trainer, Path: "checkpoints/step_20", Step: 20, Version: 20},
		event.Event{Type: event.Phase, Address: trainer, Phase: "completed", Message: "20 steps done"},
		event.Event{Type: event.RunEnded, Phase: "completed"},
	)
}

func write(t *testing.T, dir string, events []event.Event) {
	t.Helper()
	log, err := event.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range events {
		e.Time = began.Add(time.Duration(i) * time.Second)
		if _, err := log.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

var clock = regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d`)

func TestLiveInAPipeWritesPlainLines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, aRun())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	snap, err := NewLive(&out, Style{Width: 80}, began).Follow(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "live.txt", clock.ReplaceAll(out.Bytes(), []byte("hh:mm:ss")))
	if strings.Contains(out.String(), "\x1b") {
		t.Error("an escape reached a pipe")
	}
	if snap.Status != "completed" || snap.Blocks["trainer.tiny.policy"].Step != 20 {
		t.Errorf("snapshot: %+v", snap)
	}
}

func TestLiveShowsNothingOfEarlierApplies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, aRun())
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	var out bytes.Buffer
	snap, err := NewLive(&out, Style{Width: 80}, began.Add(time.Hour)).Follow(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	if out.Len() > 0 {
		t.Errorf("shown of an earlier apply: %q", out.String())
	}
	if snap.Blocks["trainer.tiny.policy"].Step != 20 {
		t.Error("the snapshot knows nothing of the earlier apply")
	}
}

// The lines of a run that is continued do not wait for the log of what was before.
func TestLiveReadsOldFilesOnce(t *testing.T) {
	t.Parallel()
	w := &eventtest.Writer{TB: t, Dir: t.TempDir()}
	for _, e := range aRun() {
		w.Put(e)
	}
	w.Save()
	w.Put(event.Event{Type: event.RunStarted})
	w.Save()
	segments, err := event.Segments(w.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		snap, err := NewLive(io.Discard, Style{}, time.Now().Add(time.Hour)).Follow(ctx, w.Dir)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if snap.Status != "running" || snap.Blocks["trainer.tiny.policy"].Step != 20 {
			t.Errorf("snapshot: %+v", snap)
		}
		eventtest.Spoil(t, segments[0])
	}
}

func TestLiveAnswersCtrlC(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var out bytes.Buffer
	l := NewLive(&out, Style{Width: 80}, began)
	l.Draining()
	l.Killing()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := l.Follow(ctx, dir); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "Stopping: jobs write a checkpoint") ||
		!strings.Contains(got, "Killing every process") {
		t.Errorf("said %q", got)
	}
	for range 10 {
		l.Draining() // nobody follows: Live must not wait
	}
}

func TestStatusAndSummary(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, aRun())
	snap, err := snapshot.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Status(&out, Style{}, "sums", "completed", snap, began); err != nil {
		t.Fatal(err)
	}
	if err := Summary(&out, Style{}, snap); err != nil {
		t.Fatal(err)
	}
	golden(t, "status.txt", out.Bytes())
}

// What was left out of training is summed up by environment and reason, over all reports.
func TestSummaryOfWhatWasLeftOut(t *testing.T) {
	t.Parallel()
	snap := &snapshot.Snapshot{}
	for _, values := range []map[string]float64{
		{"groups": 90, "groups_uninformative": 20, "groups_lost": 1, "rollouts": 720, "rollouts_failed": 12,
			"rollouts_failed/r.py:6 ValueError": 10, "rollouts_failed/score_timeout": 2},
		{"groups": 10, "groups_uninformative": 5, "rollouts": 80, "rollouts_failed": 1, "rollouts_failed/score_timeout": 1},
	} {
		snap.Apply(event.Event{Type: event.Metrics, Address: "environment.reward.sums", Metrics: values})
	}
	snap.Apply(event.Event{Type: event.Metrics, Address: "environment.reward.all_sent", Metrics: map[string]float64{
		"groups": 10, "groups_uninformative": 0, "rollouts": 80, "rollouts_failed": 0}})
	snap.Apply(event.Event{Type: event.Metrics, Address: "environment.atropos.words", Metrics: map[string]float64{
		"env/groups": 7, "env/groups_same_scores": 3}})
	const want = `
environment.atropos.words: left out of training
  of 7 groups 3 whose scores were all equal

environment.reward.sums: left out of training
  of 100 groups 25 whose scores were all equal, 1 with too few scores
  of 800 rollouts 13 without a score: 10 r.py:6 ValueError, 3 score_timeout
  the texts are in recipe logs environment.reward.sums --level warn
`
	var summary, alone bytes.Buffer
	if err := Summary(&summary, Style{}, snap); err != nil {
		t.Fatal(err)
	}
	if err := LeftOut(&alone, Style{}, snap); err != nil {
		t.Fatal(err)
	}
	if summary.String() != want || alone.String() != want {
		t.Errorf("got %s\nand %s\nwant %s", summary.String(), alone.String(), want)
	}
}

func TestSummaryOfARunThatSaidNothing(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := Summary(&out, Style{}, &snapshot.Snapshot{}); err != nil || out.Len() != 0 {
		t.Fatalf("%q, %v", out.String(), err)
	}
}

func TestSparklineAndPlot(t *testing.T) {
	t.Parallel()
	if got := Sparkline([]float64{0, 1, 2, 3, 4, 5, 6, 7}); got != "▁▂▃▄▅▆▇█" {
		t.Errorf("got %q", got)
	}
	if got := Sparkline([]float64{1, 1, math.NaN(), 1}); got != "██ █" {
		t.Errorf("all 1, with a hole: %q", got)
	}
	if got := Sparkline([]float64{0, 0}); got != "▁▁" {
		t.Errorf("all 0: %q", got)
	}
	if got := Sparkline(nil); got != "" {
		t.Errorf("empty: %q", got)
	}
	got := strings.Join(Plot([]float64{0, 0.5, 1}, 2), "\n")
	if want := "       1 ┤ ▁█\n       0 ┤▁██"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

//docs:survival.md out of memory when inference wakes up
//docs:troubleshooting.md A checkpoint saved in bfloat16 rounds the training away
func TestFindings(t *testing.T) {
	t.Parallel()
	all := []doctor.Finding{
		{Name: "python", Verdict: doctor.OK, Found: "Python 3.12.4"},
		{Name: "ports", Verdict: doctor.Fail, Found: "no loopback", Remedy: "bring lo up"},
	}
	var out bytes.Buffer
	if err := Findings(&out, Style{}, all); err != nil {
		t.Fatal(err)
	}
	if err := FindingsJSON(&out, all); err != nil {
		t.Fatal(err)
	}
	golden(t, "findings.txt", out.Bytes())
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestViewsReportWhatTheyCannotWrite(t *testing.T) {
	t.Parallel()
	if Plan(brokenWriter{}, Style{}, everyAction(t)) == nil {
		t.Error("Plan swallows the error")
	}
	if Findings(brokenWriter{}, Style{}, []doctor.Finding{{}}) == nil {
		t.Error("Findings swallows the error")
	}
	if Status(brokenWriter{}, Style{}, "x", "running", &snapshot.Snapshot{}, began) == nil {
		t.Error("Status swallows the error")
	}
}

func TestStyleOfAFileIsPlain(t *testing.T) {
	t.Parallel()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if s := StyleOf(f, []string{"TERM=xterm"}); s.Terminal || s.Color || s.Width != 80 {
		t.Errorf("a file is taken for a terminal: %+v", s)
	}
}

// A sweep ends with one row per trainer, also for one that never reported a reward.
func TestSummaryOfASweepComparesItsTrainers(t *testing.T) {
	t.Parallel()
	var b snapshot.Snapshot
	seq := uint64(0)
	say := func(e event.Event) {
		seq++
		e.Seq, e.Time = seq, began.Add(time.Duration(seq)*time.Second)
		b.Apply(e)
	}
	for rate, slope := range map[string]float64{"low": 0.01, "high": 0.03} {
		a := `trainer.tiny.policy["` + rate + `"]`
		for i := range 20 {
			reward := 0.1 + slope*float64(i)
			if rate == "high" && i > 15 {
				reward = 0.2 // its reward collapses: the best one is shown beside the last
			}
			say(event.Event{Type: event.Progress, Address: a, Step: int64(i + 1), Total: 20, Unit: "steps"})
			say(event.Event{Type: event.Metrics, Address: a, Step: int64(i + 1),
				Metrics: map[string]float64{"reward/mean": reward}})
		}
		say(event.Event{Type: event.Checkpoint, Address: a, Path: "checkpoints/" + rate + "/step-20", Step: 20})
		say(event.Event{Type: event.Phase, Address: a, Phase: "completed"})
	}
	say(event.Event{Type: event.Phase, Address: `trainer.tiny.policy["broken"]`, Phase: "failed",
		Message: "out of memory"})
	var out bytes.Buffer
	if err := Summary(&out, Style{}, &b); err != nil {
		t.Fatal(err)
	}
	golden(t, "sweep.txt", out.Bytes())
}

// What programs and models wrote reaches a terminal as text, ten megabytes of it as well.
func TestLinesOfALogAreHarmless(t *testing.T) {
	t.Parallel()
	hostile := "<script>alert(1)</script>\x1b[2J\x1b]0;title\a\u202eevil\u2066\u200b\x00\r\n"
	for _, e := range []event.Event{
		{Type: event.LogLine, Address: "trainer.tiny.policy", Level: "error", Message: strings.Repeat(hostile, 1<<18)},
		{Type: event.LogLine, Stream: "stderr", Address: hostile, Message: hostile},
		{Type: event.Phase, Address: "trainer.tiny.policy", Phase: "failed", Message: hostile, Remedy: hostile},
		{Type: event.Sample, Address: "environment.x.y", Prompt: hostile, Completion: hostile},
		{Type: event.Metrics, Metrics: map[string]float64{hostile: 1}}, {Type: event.Progress, Unit: hostile},
		{Type: event.Checkpoint, Path: hostile}, {Type: event.Weights, Transport: hostile},
		{Type: event.Alert, Name: hostile, Message: hostile}, {Type: event.Notice, Message: hostile},
	} {
		line := Line(Style{}, e)
		if !strings.Contains(line, "script") || strings.ContainsAny(line, "\x1b\a\x00\r\n\u202e\u2066\u200b") {
			t.Errorf("a %s event is printed as %.300q", e.Type, line)
		}
	}
}

// The same of what is printed when a run has ended, and of tables.
func TestNamesOfMetricsAreHarmless(t *testing.T) {
	t.Parallel()
	hostile, trainer := "eval/<script>\x1b[2J\u202e\r\n", "trainer.tiny.policy"
	snap := &snapshot.Snapshot{}
	for i := range 3 {
		snap.Apply(event.Event{Type: event.Progress, Address: trainer, Step: int64(i), Unit: hostile})
		snap.Apply(event.Event{Type: event.Metrics, Address: trainer, Step: int64(i),
			Metrics: map[string]float64{hostile: float64(i), "reward": float64(i)}})
	}
	snap.Apply(event.Event{Type: event.Checkpoint, Address: trainer, Path: hostile})
	var out bytes.Buffer
	for _, err := range []error{Summary(&out, Style{}, snap), Evaluation(&out, Style{},
		&run.Evaluation{Metrics: map[string]float64{hostile: 1}}),
		CompareRuns(&out, Style{}, []RunResult{{Run: hostile, Metrics: map[string]float64{hostile: 1}}})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(out.String(), "<script>"); n < 4 || strings.ContainsAny(out.String(), "\x1b\r\u202e") {
		t.Errorf("%d names are printed: %q", n, out.String())
	}
}
