package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/event/eventtest"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
)

// chatter are events of all kinds that recipe logs treats differently. Phases are often repeated, and the attempts of a
// block start again at 1 now and then, as when it is removed and added again.
func chatter(seed uint64, n int) []event.Event {
	r := rand.New(rand.NewPCG(seed, 0))
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	attempts := map[string]int{}
	out := make([]event.Event, n)
	for i := range out {
		e := event.Event{Address: pick("trainer.tiny.a", "trainer.tiny.b", "inference.tiny.rare[0]"),
			Type: []event.Type{event.Phase, event.Phase, event.LogLine, event.Metrics, event.Progress, event.Span, event.Restart,
				event.Stalled}[r.IntN(8)]}
		if strings.Contains(e.Address, "rare") && r.IntN(10) > 0 {
			e.Address = ""
			e.Type = event.Notice
		}
		switch e.Type {
		case event.Phase:
			attempts[e.Address] = 1 + (attempts[e.Address]+r.IntN(8)/7)%4
			e.BlockAttempt, e.Phase, e.Message = attempts[e.Address], pick("ready", "ready", "failed"), pick("", "", "m")
		case event.LogLine, event.Notice:
			e.Level, e.Message = pick("debug", "info", "warn"), fmt.Sprintf("the \"phase\" %d", i)
		case event.Metrics:
			e.Metrics = map[string]float64{"loss": float64(i)}
		}
		e.V, e.Seq, e.Time = event.FormatVersion, uint64(i+1), time.Unix(int64(i), 0).UTC()
		out[i] = e
	}
	return out
}

// writeLog writes events as a log whose files have so many events each.
func writeLog(t *testing.T, dir string, events []event.Event, each int) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for from := 0; from < len(events); from += each {
		var text bytes.Buffer
		enc := json.NewEncoder(&text)
		if from > 0 {
			_ = enc.Encode(event.Event{V: event.FormatVersion, Seq: uint64(from), Type: event.LogFile})
		}
		for _, e := range events[from:min(from+each, len(events))] {
			_ = enc.Encode(e)
		}
		path := filepath.Join(dir, fmt.Sprintf("%020d.jsonl", from+1))
		if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const endedRun = `{"format_version": 1, "id": "00ff", "recipe": "sums", "file": "sums.hcl", "status": "completed",
	"started": "2026-03-01T12:00:00Z", "ended": "2026-03-01T12:00:09Z", "engine": {}, "policy": {}, "blocks": {}}`

// logsOf runs recipe logs on a run and returns what it prints.
func logsOf(t *testing.T, home string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	a := newApp(strings.NewReader(""), &out, &errs, os.Environ())
	args = append([]string{"logs", "-r", filepath.Join(home, "sums.hcl")}, args...)
	if code := execute(t.Context(), a, args); code != exitDone {
		t.Fatalf("recipe %s: exit code %d\n%s", strings.Join(args, " "), code, errs.String())
	}
	return out.String()
}

func endedRunIn(t *testing.T) (home, events string) {
	t.Helper()
	home = t.TempDir()
	dir := filepath.Join(home, ".recipe", "sums")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "run.json"), []byte(endedRun), 0o600); err != nil {
		t.Fatal(err)
	}
	return home, filepath.Join(dir, "events")
}

// What --tail prints is the end of what is printed without it, whatever the filters.
func TestTheTailIsTheEndOfTheLog(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		home, events := endedRunIn(t)
		writeLog(t, events, chatter(seed, 400), 60)
		for _, filter := range []string{"", "--json", "--level warn", "--level error", "--json --level warn",
			"--level debug", "--grep ready", "trainer.tiny.b",
			"inference.tiny.rare", "--json inference.tiny.rare", "--grep none", "--grep loss",
			"--grep the", "--grep similar", "--grep warning",
			"--since 1970-01-01T00:06:00Z",
			"--follow", "--follow trainer.tiny.a"} {
			flags := strings.Fields(filter)
			whole := strings.SplitAfter(logsOf(t, home, flags...), "\n")
			whole = whole[:len(whole)-1]
			for _, n := range []int{0, 1, 2, 3, 7, 20, 100, 1000} {
				want := strings.Join(whole[max(0, len(whole)-n):], "")
				got := logsOf(t, home, append([]string{"--tail", fmt.Sprint(n)}, flags...)...)
				if got != want {
					t.Fatalf("seed %d: recipe logs --tail %d %s prints\n%swant\n%s", seed, n, filter, got, want)
				}
			}
		}
	}
}

// Lines that follow those of --tail are printed as if the whole log had been: a phase that a block was in already is
// not, even if it came to it long before.
func TestWhatFollowsTheTailIsPrintedAsAfterTheWholeLog(t *testing.T) {
	t.Parallel()
	any := func(event.Event) bool { return true }
	for seed := range uint64(8) {
		list := chatter(seed, 600)
		dir := t.TempDir()
		writeLog(t, dir, list[:300], 60)
		printed := func(before func(show func(event.Event) error) error) string {
			var out bytes.Buffer
			printer := view.Printer{}
			show := func(e event.Event) error { return printer.Print(&out, view.Style{}, e) }
			if err := before(show); err != nil {
				t.Fatal(err)
			}
			out.Reset()
			for _, e := range list[300:] {
				_ = show(e)
			}
			return out.String()
		}
		want := printed(func(show func(event.Event) error) error { return event.Read(dir, 0, show) })
		for _, lines := range []int{0, 1, 10} {
			n := newest{lines: lines, wanted: any, prints: any, phases: true, all: true}
			got := printed(func(show func(event.Event) error) error { return n.read(dir, show) })
			if got != want || n.last != 300 {
				t.Fatalf("seed %d, after %d lines up to event %d: got\n%swant\n%s", seed, lines, n.last, got, want)
			}
		}
	}
}

// The files of the log before those of the lines are not read, or only their phases are.
func TestTheTailReadsOnlyTheEndOfTheLog(t *testing.T) {
	t.Parallel()
	metrics := func(seq int) event.Event {
		return event.Event{V: event.FormatVersion, Seq: uint64(seq), Type: event.Metrics, Address: "trainer.tiny.a",
			Metrics: map[string]float64{"loss": 1}}
	}
	phase := metrics(4)
	phase.Type, phase.Phase, phase.BlockAttempt, phase.Metrics = event.Phase, "ready", 1, nil
	first := phase
	first.Seq = 1
	home, events := endedRunIn(t)
	writeLog(t, events, []event.Event{first, metrics(2), metrics(3), phase, metrics(5), metrics(6)}, 2)
	replaceIn := func(path, old, with string) {
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), old) {
			t.Fatalf("%v in %s", err, text)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(text), old, with, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	oldest := filepath.Join(events, fmt.Sprintf("%020d.jsonl", 1))
	replaceIn(oldest, `"metrics":{"loss":1}`, `"metrics":{"loss":`)
	for n, want := range map[string]int{"2": 2, "3": 3} {
		if got := logsOf(t, home, "--tail", n); strings.Count(got, "\n") != want || strings.Contains(got, "ready") {
			t.Errorf("recipe logs --tail %s prints\n%s", n, got)
		}
	}
	replaceIn(oldest, `{"v":1`, `{"v":`)
	if got := logsOf(t, home, "--tail", "2"); strings.Count(got, "\n") != 2 {
		t.Errorf("recipe logs --tail 2 prints\n%s", got)
	}
	if got := logsOf(t, home, "--tail", "4", "--json"); strings.Count(got, "\n") != 4 {
		t.Errorf("recipe logs --tail 4 --json prints\n%s", got)
	}
	if got := logsOf(t, home, "--level", "error"); got != "" {
		t.Errorf("recipe logs --level error prints\n%s", got)
	}
}

// Whether a run had a block is found without decoding the events of others.
func TestHadBlockPassesOverOtherBlocks(t *testing.T) {
	t.Parallel()
	dir := state.Dir(t.TempDir())
	if err := os.MkdirAll(dir.Events(), 0o700); err != nil {
		t.Fatal(err)
	}
	w := &eventtest.Writer{TB: t, Dir: dir.Events()}
	w.Put(event.Event{Type: event.RunStarted})
	w.Save()
	w.Put(event.Event{Type: event.Phase, Address: `module.eval["é"].trainer.tiny.policy["<1>"]`, Phase: "ready"})
	w.Save()
	segments, err := event.Segments(w.Dir)
	if err != nil {
		t.Fatal(err)
	}
	eventtest.Spoil(t, segments[0])
	for text, want := range map[string]string{
		`module.eval["é"].trainer.tiny.policy`: "", `module.eval["é"].trainer.tiny.policy["<1>"]`: "",
		"trainer.tiny.policy": "never had", "trainer.tiny.other": "never had",
	} {
		a, err := addr.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		err = hadBlock(dir, a)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// With --since, files that were complete long before are not read.
func TestTheLogSinceATimeIsReadFromThere(t *testing.T) {
	t.Parallel()
	home, events := endedRunIn(t)
	if err := os.MkdirAll(events, 0o700); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC()
	w := &eventtest.Writer{TB: t, Dir: events}
	for i, age := range []time.Duration{3 * time.Hour, 2 * time.Hour, 30 * time.Minute, time.Minute} {
		w.Put(event.Event{Type: event.LogLine, Address: "trainer.tiny.a", Time: now.Add(-age),
			Message: fmt.Sprint("line ", i)})
		w.Save()
		segments, err := event.Segments(events)
		if err == nil {
			written := now.Add(-max(age, 55*time.Minute)) // the clock of a job may be ahead
			err = os.Chtimes(segments[len(segments)-1], now, written)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	segments, err := event.Segments(events)
	if err != nil {
		t.Fatal(err)
	}
	eventtest.Spoil(t, segments[0])
	if got := logsOf(t, home, "--since", "50m"); strings.Count(got, "\n") != 2 || !strings.Contains(got, "line 2") ||
		!strings.Contains(got, "line 3") {
		t.Errorf("since 50 minutes ago there are\n%s", got)
	}
	if got := logsOf(t, home, "--since", "50m", "--tail", "9"); strings.Count(got, "\n") != 2 {
		t.Errorf("of the newest 9 lines since 50 minutes ago there are\n%s", got)
	}
	if got := logsOf(t, home, "--since", "1s"); got != "" {
		t.Errorf("since a second ago there are\n%s", got)
	}
	seq, err := event.WrittenBefore(events, now.Add(-time.Hour))
	if err != nil || seq != 2 {
		t.Errorf("an hour ago %d events were written (%v), want 2", seq, err)
	}
}
