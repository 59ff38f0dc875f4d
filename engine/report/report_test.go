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

	"github.com/recipe-rl/recipe/engine/event"
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
	if err := os.WriteFile(filepath.Join(string(dir), "run.json"),
		[]byte(`{"format_version":2,"id":"r1","recipe":"sums","file":"sums.hcl","status":"completed","blocks":{}}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := report.Write(t.Context(), &page, dir); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

// What models and programs wrote is text: no element, attribute or control character of theirs gets into the page.
func TestUntrustedTextIsEscaped(t *testing.T) {
	t.Parallel()
	page := written(t,
		event.Event{Type: event.RunStarted},
		event.Event{Type: event.Phase, Address: "trainer.tiny.policy", Phase: "failed", Message: hostile},
		event.Event{Type: event.LogLine, Address: "trainer.tiny.policy", Level: "error",
			Message: hostile + strings.Repeat("A", 10<<20)},
		event.Event{Type: event.Metrics, Address: "trainer.tiny.policy", Step: 1, Metrics: map[string]float64{hostile: 1}},
		event.Event{Type: event.Metrics, Address: "trainer.tiny.policy", Step: 2, Metrics: map[string]float64{hostile: 2}},
		event.Event{Type: event.RunEnded, Phase: "failed", Message: hostile})
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
