package live

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/transcript"
)

var update = flag.Bool("update", false, "write the golden files anew")

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	inference    = "inference.tiny.policy"
	trajectories = "trajectories.builtin.default"
	environment  = "environment.arithmetic.sums"
	trainer      = "trainer.tiny.policy"
	weights      = "sync.weights.policy"
)

const hostile = "\x1b[2J\x1b]0;title\a\u202eevil\u2066\x00\u200b\r\n\tnext"

// events are those of the first 40 seconds of a run; one that fails ends with the failure of its trainer.
func events(fails bool) []event.Event {
	list := []event.Event{{Type: event.RunStarted, Message: "apply quickstart.hcl"}}
	for _, a := range []string{inference, trajectories, environment, trainer, weights} {
		list = append(list, event.Event{Type: event.Phase, Address: a, Phase: "ready", BlockAttempt: 1})
	}
	for i := range 30 {
		step := int64(i + 1)
		list = append(list,
			event.Event{Type: event.Progress, Address: trainer, Step: step, Total: 100, Unit: "steps"},
			event.Event{Type: event.Metrics, Address: trainer, Step: step, Metrics: map[string]float64{
				"reward": 0.2 + 0.02*float64(i), "loss": 1 / float64(step), "staleness": float64(i % 3),
				"tokens_per_second": 1000 + 10*float64(i), "memory/process_peak": 3 << 30}},
			event.Event{Type: event.Weights, Address: weights, Inference: inference, Version: step})
	}
	list = append(list, // what is not in the log
		event.Event{Type: event.Machine, Metrics: map[string]float64{"cpu": 1}},
		event.Event{Type: event.Activity, Address: trainer, State: event.Working, Message: "training step 31"},
		event.Event{Type: event.Phase, Address: trainer, Phase: "ready", Message: "training"})
	list = append(list,
		event.Event{Type: event.LogLine, Address: environment, Level: "warn", Message: "a reply" + hostile},
		event.Event{Type: event.LogLine, Address: environment, Level: "info",
			Message: "a line that is a good deal longer than the terminals of most people are wide: " +
				strings.Repeat("long ", 40)},
		event.Event{Type: event.Stalled, Address: trainer, Level: "warn", Seconds: 61,
			Message: trainer + " waits for 16 groups: 3 of 16 available", Remedy: "recipe restart " + environment},
		event.Event{Type: event.Checkpoint, Address: trainer, Path: "checkpoints/step-30", Step: 30})
	list = append(list, event.Event{Type: event.Output, Name: "checkpoint", Value: ""},
		event.Event{Type: event.Output, Name: "key", Sensitive: true},
		event.Event{Type: event.Output, Name: "url", Value: "http://127.0.0.1:34567/v1"})
	if fails {
		list = append(list,
			event.Event{Type: event.Phase, Address: trainer, Phase: "failed", Message: "out of memory",
				Remedy: "lower batch_size"},
			event.Event{Type: event.RunEnded, Phase: "failed", Message: trainer + " failed: out of memory"})
	}
	return list
}

// starting are the events of a run whose policy still loads, so that the graph of blocks is known from the plan alone.
func starting() []event.Event {
	return []event.Event{{Type: event.RunStarted, Message: "apply quickstart.hcl"},
		{Type: event.Operation, Address: inference, Action: "create"},
		{Type: event.Operation, Address: environment, Action: "create", Needs: []string{inference}},
		{Type: event.Operation, Address: trainer, Action: "create", Needs: []string{environment}},
		{Type: event.Phase, Address: inference, Phase: "loading", BlockAttempt: 1},
		{Type: event.Progress, Address: inference, Step: 3, Total: 3, Unit: "loading weights"}}
}

func aScreen(list []event.Event) *screen {
	s := &screen{name: "quickstart", run: newRun(), selected: trainer, keys: "ctrl-c stops the run"}
	for i, e := range list {
		e.Seq, e.Time = uint64(i+1), began.Add(time.Duration(i)*time.Second/4)
		s.now = e.Time
		s.run.apply(e)
	}
	message := func(role, text string) []transcript.Message { return []transcript.Message{{Role: role, Text: text}} }
	group := sample{block: trajectories, id: 7, time: began, environment: "sums", state: "trained at step 3",
		versions: []int64{2, 3}, prompt: message("user", "2+2="),
		completions: []completion{{1, message("assistant", "4")}, {0, message("assistant", "⟦U+202E⟧5")}}}
	s.facts = facts{standing: "running", memory: memory{3 << 30, 24 << 30},
		needs: map[string][]string{environment: {inference, trajectories}, trainer: {environment, trajectories},
			weights: {trainer, inference}},
		doing:  map[string][]string{trainer: {"waits for " + trajectories + ": 16 groups: 3 of 16 groups available"}},
		queue:  queue{recorded: true, groups: 300, waiting: 3, dropped: 1},
		newest: []sample{group, {environment: "sums", failed: "unreadable: torn"}}}
	s.sample, s.position = &group, 4
	return s
}

func TestFrames(t *testing.T) {
	t.Parallel()
	pages := map[string]func(*screen){
		"overview": func(*screen) {},
		"block":    func(s *screen) { s.page = blockPage },
		"samples":  func(s *screen) { s.page = samplesPage },
		"help":     func(s *screen) { s.page = helpPage },
		"starting": func(s *screen) { *s = *aScreen(starting()); s.facts = facts{standing: "running"} },
		"failed":   func(s *screen) { *s = *aScreen(events(true)); s.facts.standing = "" },
		"question": func(s *screen) { s.question = "Stop the run at a checkpoint?" },
	}
	for name, set := range pages {
		for _, size := range [][2]int{{40, 20}, {80, 24}, {120, 40}, {200, 50}} {
			s := aScreen(events(false))
			set(s)
			s.width, s.height = size[0], size[1]
			golden(t, fmt.Sprintf("%s-%d.txt", name, size[0]), strings.Join(s.frame(), "\n")+"\n")
		}
	}
}

// Every frame fits its terminal and holds nothing that a terminal obeys, colors excepted.
//
//docs:terminal.md What it costs
func TestFramesFitAndAreHarmless(t *testing.T) {
	t.Parallel()
	for _, color := range []bool{false, true} {
		for page := overview; page <= helpPage; page++ {
			for _, width := range []int{20, 40, 41, 79, 80, 119, 120, 121, 200, 300} {
				for _, height := range []int{4, 6, 10, 24, 50} {
					s := aScreen(events(true))
					s.name, s.message = "name"+hostile, "message"+hostile
					s.run.apply(event.Event{Type: event.Phase, Address: trainer, Phase: "ready", Message: hostile, Remedy: hostile})
					s.run.apply(event.Event{Type: event.Progress, Address: trainer, Step: 200, Total: 100, Unit: hostile})
					s.run.apply(event.Event{Type: event.Metrics, Address: trainer, Metrics: map[string]float64{hostile: 1}})
					s.style = view.Style{Terminal: true, Color: color}
					s.page, s.width, s.height = page, width, height
					check(t, s.frame(), color, width, height)
				}
			}
		}
	}
}

// A program may write ten megabytes without a line's end.
func TestALongLineFits(t *testing.T) {
	t.Parallel()
	long := event.Event{Type: event.LogLine, Address: trainer, Level: "error", Message: strings.Repeat("A"+hostile, 1<<19)}
	s := aScreen(append(events(false), long))
	for page := overview; page <= helpPage; page++ {
		s.page, s.width, s.height = page, 80, 24
		check(t, s.frame(), false, 80, 24)
	}
}

func check(t *testing.T, lines []string, color bool, width, height int) {
	t.Helper()
	if len(lines) != height {
		t.Errorf("%d lines on a terminal of %d", len(lines), height)
	}
	for _, l := range lines {
		if w := ansi.StringWidth(l); w > width {
			t.Errorf("a line of %d columns on a terminal of %d: %q", w, width, l)
		}
		if !color && strings.Contains(l, "\x1b") {
			t.Errorf("an escape without colors: %q", l)
		}
		plain := ansi.Strip(l)
		if strings.ContainsAny(plain, "\x1b\a\x00\r\n\t\u202e\u2066\u200b") || strings.Contains(l, "\x1b[2J") ||
			strings.Contains(l, "\x1b]") {
			t.Errorf("a line could change the terminal: %q", l)
		}
	}
}

func TestLinesAreKeptInOrder(t *testing.T) {
	t.Parallel()
	r := newRun()
	for i := range 2*keptLines + 5 {
		r.apply(event.Event{Type: event.LogLine, Address: "a", Message: fmt.Sprint(i)})
	}
	got := r.lines[""].last(3, 1)
	if len(got) != 3 || got[0].Message != "2001" || got[2].Message != "2003" || r.lines["a"].len() != keptLines {
		t.Errorf("got %v, %d are kept", got, r.lines["a"].len())
	}
	if r.lines["b"].last(3, 0) != nil {
		t.Error("a block without lines has lines")
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s (go test ./cmd/recipe/live -update writes it): got\n%s\nexpected\n%s", name, got, want)
	}
}
