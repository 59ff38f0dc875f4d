package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/evaluation/evaluationtest"
	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/event/eventtest"
	"github.com/recipe-rl/recipe/engine/report"
	"github.com/recipe-rl/recipe/engine/state"
)

const hostile = `<script>alert(1)</script><img src=x onerror=alert(2)>"'` + "\x1b[2J\u202e"

// written makes a run directory from events, and its report.
func written(t *testing.T, events ...event.Event) string {
	t.Helper()
	dir := state.Dir(filepath.Join(t.TempDir(), ".recipe", "sums"))
	if err := dir.Make(); err != nil {
		t.Fatal(err)
	}
	log, err := event.Open(dir.Events())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if _, err := log.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	record(t, dir)
	var page bytes.Buffer
	if err := report.Write(t.Context(), &page, dir); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

// record writes the record of a run that has completed.
func record(t *testing.T, dir state.Dir, blocks ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(string(dir), "run.json"),
		fmt.Appendf(nil, `{"format_version":2,"id":"r1","recipe":"sums","file":"sums.hcl","status":"completed",`+
			`"blocks":{%s}}`, strings.Join(blocks, ",")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What models and programs wrote is text: no element, attribute or control character of theirs gets into the page.
//
//docs:runs.md A report
func TestUntrustedTextIsEscaped(t *testing.T) {
	t.Parallel()
	page := written(t,
		event.Event{Type: event.RunStarted},
		event.Event{Type: event.Phase, Address: "trainer.tiny.policy", Phase: "failed" + hostile, Message: hostile},
		event.Event{Type: event.LogLine, Address: "trainer.tiny.policy", Level: "error",
			Message: hostile + strings.Repeat("A", 10<<20)},
		event.Event{Type: event.Metrics, Address: "trainer.tiny.policy", Step: 1, Metrics: map[string]float64{hostile: 1}},
		event.Event{Type: event.Metrics, Address: "trainer.tiny.policy", Step: 2, Metrics: map[string]float64{hostile: 2}},
		event.Event{Type: event.Notice, Address: hostile, Message: "x"},
		event.Event{Type: event.RunEnded, Phase: "failed" + hostile, Message: hostile})
	if len(page) > 1<<18 {
		t.Errorf("a line of 10 MB makes a page of %d bytes", len(page))
	}
	if n := strings.Count(page, "alert(1)"); n < 4 {
		t.Errorf("the text is shown %d times", n)
	}
	for _, forbidden := range []string{"<script", "<img", "\x1b", "\u202e", "http:", "https:", "src=\"", "href="} {
		if strings.Contains(strings.ToLower(page), forbidden) {
			t.Errorf("the page has %q", forbidden)
		}
	}
	if !strings.Contains(page, `http-equiv="Content-Security-Policy" content="default-src 'none';`) {
		t.Error("the page has no content security policy")
	}
}

// A curve is drawn for each metric with two values or more, also where values are not numbers.
func TestCurvesAreDrawn(t *testing.T) {
	t.Parallel()
	events := []event.Event{{Type: event.RunStarted}}
	for i := range 10 {
		loss := float64(i)
		if i == 4 {
			loss = math.MaxFloat64
		}
		events = append(events, event.Event{Type: event.Metrics, Address: "trainer.tiny.policy", Step: int64(i),
			Metrics: map[string]float64{"reward": float64(i) / 10, "loss": loss, "flat": 3, "once" + fmt.Sprint(i): 1}})
	}
	page := written(t, events...)
	if n := strings.Count(page, "<polyline"); n != 3 {
		t.Errorf("%d curves, want 3: flat, loss, reward", n)
	}
	for _, m := range regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page, -1) {
		if strings.Contains(m, "NaN") || strings.Contains(m, "Inf") {
			t.Errorf("a curve has no place to be drawn at: %s", m)
		}
		for d := xml.NewDecoder(strings.NewReader(m)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	if !strings.Contains(page, "0 to 0.9; step 0 to 9") {
		t.Error("the reward's range is not shown")
	}
}

// Evaluations have a curve with a band, the best checkpoint, and the tasks that were solved once, as text.
func TestEvaluationsAreReported(t *testing.T) {
	t.Parallel()
	dir := state.Dir(filepath.Join(t.TempDir(), ".recipe", "sums"))
	if err := dir.Make(); err != nil {
		t.Fatal(err)
	}
	task := evaluationtest.Task
	first := evaluationtest.Write(t, string(dir), "held_out", 0, nil, task(0, "1+1", "3", 0), task(1, "2+2", "4", 1))
	evaluationtest.Write(t, string(dir), "held_out", 10, first, task(0, "1+1", hostile, 1), task(1, "2+2", "5", 0),
		task(2, "new", "", 1))
	record(t, dir, `"trainer.tiny.policy":{"intent":"run","life":1,"best":{"path":"/c","step":10,`+
		`"metric":"evaluation/held_out/pass@1","value":0.6}}`)
	var page bytes.Buffer
	if err := report.Write(t.Context(), &page, dir); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<h2>Evaluation held_out</h2>", "<polygon points=", "<line x1=\"320.0\"",
		"<td>best checkpoint</td>", "From step 0 to step 10", "solved by the later one alone: 1",
		"solved by the first one alone: 1",
		"<td>0</td><td><pre>1&#43;1</pre></td><td><pre>3</pre></td><td><pre>&lt;script&gt;"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the report has no %q:\n%s", want, page.String())
		}
	}
	if err := os.Remove(filepath.Join(string(dir), first.Scores)); err != nil {
		t.Fatal(err)
	}
	var without bytes.Buffer
	if err := report.Write(t.Context(), &without, dir); err != nil ||
		!strings.Contains(without.String(), "best checkpoint") ||
		!strings.Contains(without.String(), "cannot be read or compared: read scores") {
		t.Errorf("without the scores of a result the report is %v, %s", err, without.String())
	}
	if strings.Contains(page.String(), "<script") || strings.Contains(page.String(), "NaN") {
		t.Error("the report has an element of a completion, or no number")
	}
}

// A metric of training stands under its own name, whatever that is; it is not called an evaluation.
func TestAMetricOfTrainingIsNoEvaluation(t *testing.T) {
	t.Parallel()
	events := []event.Event{{Type: event.RunStarted}}
	for i := range 3 {
		events = append(events, event.Event{Type: event.Metrics, Address: "environment.x.e", Step: int64(i),
			Metrics: map[string]float64{"accuracy": float64(i), "percent_correct": float64(i)}})
	}
	page := strings.ToLower(written(t, events...))
	if !strings.Contains(page, "percent_correct") || strings.Contains(page, "evaluat") ||
		strings.Contains(page, "held-out") || strings.Contains(page, "held out") {
		t.Errorf("want percent_correct, and no evaluation:\n%s", page)
	}
}

// A report of a long log is made of what is kept of it and of its newest lines, not of all events.
func TestAReportDoesNotReadTheWholeLog(t *testing.T) {
	t.Parallel()
	for warnings, oldest := range map[int]string{120: "line 0<", 320: "line 120<"} { // with 120, it looks for more of them
		dir := state.Dir(filepath.Join(t.TempDir(), ".recipe", "sums"))
		if err := dir.Make(); err != nil {
			t.Fatal(err)
		}
		record(t, dir)
		if err := os.MkdirAll(dir.Events(), 0o700); err != nil {
			t.Fatal(err)
		}
		w := &eventtest.Writer{TB: t, Dir: dir.Events()}
		for step := range int64(10) {
			w.Put(event.Event{Type: event.Metrics, Address: "trainer.tiny.policy", Step: step,
				Metrics: map[string]float64{"reward": float64(step)}})
		}
		w.Save()
		for n := range warnings {
			w.Put(event.Event{Type: event.LogLine, Address: "trainer.tiny.policy", Level: "warn",
				Message: fmt.Sprint("line ", n)})
			w.Put(event.Event{Type: event.LogLine, Address: "trainer.tiny.policy", Level: "info", Message: `an "error"`})
		}
		w.Save()
		made := func() string {
			var page bytes.Buffer
			if err := report.Write(t.Context(), &page, dir); err != nil {
				t.Fatal(err)
			}
			return regexp.MustCompile(`[0-9-]+ [0-9:]+ UTC`).ReplaceAllString(page.String(), "")
		}
		want := made()
		newest := fmt.Sprintf("line %d<", warnings-1)
		first, last := strings.Index(want, oldest), strings.Index(want, newest)
		if n := strings.Count(want, ">line "); !strings.Contains(want, "<polyline") || first < 0 || last < first ||
			n != min(warnings, 200) || strings.Contains(want, "an &#34;error") {
			t.Errorf("the report has %d lines, %q at %d and %q at %d:\n%s", n, oldest, first, newest, last, want)
		}
		segments, err := event.Segments(dir.Events())
		if err != nil {
			t.Fatal(err)
		}
		eventtest.Spoil(t, segments[0])
		if got := made(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}
