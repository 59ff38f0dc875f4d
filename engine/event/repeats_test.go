package event

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/internal/disk/disktest"
)

// clocked opens a log with a clock that the test moves.
func clocked(t *testing.T, dir string) (*Log, *time.Time) {
	t.Helper()
	l, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l.now = func() time.Time { return now }
	return l, &now
}

func readAll(t *testing.T, dir string) (out []Event) {
	t.Helper()
	if err := Read(dir, 0, func(e Event) error { out = append(out, e); return nil }); err != nil {
		t.Fatal(err)
	}
	for i, e := range out {
		if e.Seq != uint64(i+1) {
			t.Fatalf("event %d has number %d", i+1, e.Seq)
		}
	}
	return out
}

// An hour of a line at every step: the first lines are written, then one a minute with the number of lines that it
// replaces.
func TestLinesThatDifferInNumbersOnlyAreCounted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, now := clocked(t, dir)
	const steps = 3600
	for i := range steps {
		if _, err := l.Append(Event{Type: LogLine, Address: "inference.x.p", Level: "info", Cursor: uint64(i + 1),
			BlockAttempt: 1, Message: fmt.Sprintf("1 of 1 replicas serve policy version %d", i)}); err != nil {
			t.Fatal(err)
		}
		*now = now.Add(time.Second)
	}
	if c := l.Cursor("inference.x.p"); c.Seq != steps {
		t.Errorf("the cursor is at %d of %d: what was counted would be asked for again", c.Seq, steps)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	reported, stood := 0, 0
	for _, e := range readAll(t, dir) {
		reported++
		stood += 1 + e.Repeats
	}
	if reported > repeatFirst+61 || stood != steps {
		t.Errorf("%d lines written, which stand for %d; want at most %d for %d", reported, stood, repeatFirst+61, steps)
	}
}

// An hour of 100 environments that report, show samples and repeat themselves needs at most 10 MB.
//
//docs:events.md The event log
func TestAnHourOfAHundredEnvironments(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	dir := t.TempDir()
	l, now := clocked(t, dir)
	metrics := map[string]float64{}
	for _, name := range []string{"completion_tokens", "dropped_fraction", "groups", "groups_lost", "groups_sent",
		"groups_too_long", "groups_uninformative", "reward", "reward_sent", "sampling_retries", "tokens_per_second",
		"truncated"} {
		metrics[name] = 123.456789
	}
	text := strings.Repeat("sampled text ", 15)
	cursor := uint64(0)
	for second := 0; second < 3600; second += 2 {
		for i := range 100 {
			address := fmt.Sprintf("environment.arithmetic.sums[%d]", i)
			list := []Event{
				{Type: Sample, Environment: address, Prompt: text, Completion: text, Score: 0.5,
					Version: int64(second)},
				{Type: LogLine, Level: "warn", Message: fmt.Sprintf("%d rollouts have failed so far", second)},
			}
			if second%60 == 0 {
				list = append(list, Event{Type: Metrics, Step: int64(second), Metrics: metrics})
			}
			for _, e := range list {
				cursor++
				e.Address, e.Cursor, e.BlockAttempt = address, cursor, 1
				if _, err := l.Append(e); err != nil {
					t.Fatal(err)
				}
			}
		}
		*now = now.Add(2 * time.Second)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	segments, err := Segments(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range segments {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if total > 10_000_000 {
		t.Errorf("the log of an hour has %.1f MB", float64(total)/1e6)
	}
	t.Logf("the log of an hour has %.1f MB", float64(total)/1e6)
}

// Lines that differ in more than numbers are all written.
func TestLinesThatDifferAreAllWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := clocked(t, dir)
	for i := range 200 {
		if _, err := l.Append(Event{Type: LogLine, Address: "a", Message: "line " +
			strings.Repeat("x", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(readAll(t, dir)); got != 200 {
		t.Errorf("%d of 200 lines are there", got)
	}
}

// However often a block changes its phase, the log has the current one.
func TestAPhaseIsNeverLate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := clocked(t, dir)
	for i := range 200 {
		e := Event{Type: Phase, Address: "a", Phase: []string{"ready", "degraded"}[i%2]}
		if i >= 100 {
			e.Phase, e.Message = "loading", fmt.Sprintf("%d files", i)
		}
		if i == 199 {
			e.Phase, e.Message = "ready", ""
		}
		if _, err := l.Append(e); err != nil {
			t.Fatal(err)
		}
		list := readAll(t, dir)
		if last := list[len(list)-1]; last.Phase != e.Phase {
			t.Fatalf("after phase %q the log ends with %q", e.Phase, last.Phase)
		}
	}
	list := readAll(t, dir)
	if n := len(list); n != 100+repeatFirst+2 || list[n-2].Message != "198 files" ||
		list[n-2].Repeats != 99-repeatFirst-1 {
		t.Errorf("%d events, the last but one %+v", n, list[n-2])
	}
}

// A new file records how far the log had followed every block, so older files can be deleted: those beyond the limit
// are.
func TestOldFilesGoAndNothingIsAskedForAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, now := clocked(t, dir)
	l.limit, l.kept = 2000, 6000
	if _, err := l.Append(Event{Type: Checkpoint, Address: "trainer.x.t", BlockAttempt: 2, Cursor: 17,
		Path: "/c"}); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		if _, err := l.Append(Event{Type: Metrics, Address: "environment.x.e", BlockAttempt: 1, Cursor: uint64(i + 1),
			Step: int64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	segments, err := Segments(dir)
	if err != nil || len(segments) < 2 || len(segments) > 5 {
		t.Fatalf("%d files, %v", len(segments), err)
	}
	*now = now.Add(25 * time.Hour)
	if _, err := l.Append(Event{Type: Notice, Message: "a day later"}); err != nil {
		t.Fatal(err)
	}
	if later, _ := Segments(dir); later[len(later)-1] == segments[len(segments)-1] {
		t.Error("a day later the log continues in the same file")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	next, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = next.Close() }()
	for address, want := range map[string]Cursor{"trainer.x.t": {2, 17}, "environment.x.e": {1, 300}} {
		if got := next.Cursor(address); got != want {
			t.Errorf("the cursor of %s is %+v, want %+v", address, got, want)
		}
	}
	if e, err := next.Append(Event{Type: Notice, Message: "next engine"}); err != nil || e.Seq != 303 {
		t.Errorf("the next event has number %d, %v; want 303", e.Seq, err)
	}
	last := uint64(0)
	if err := Read(dir, 0, func(e Event) error {
		if last > 0 && e.Seq != last+1 {
			t.Errorf("event %d follows %d", e.Seq, last)
		}
		last = e.Seq
		return nil
	}); err != nil || last != 303 {
		t.Errorf("read to event %d, %v", last, err)
	}
}

// A follower of the log continues in the next file.
func TestAReaderFollowsAcrossFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := clocked(t, dir)
	l.limit = 300
	r := &reader{dir: dir}
	defer r.close()
	var seqs []uint64
	for i := range 50 {
		if _, err := l.Append(Event{Type: Metrics, Address: "a", Cursor: uint64(i + 1)}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.drain(func(e Event) error { seqs = append(seqs, e.Seq); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range seqs {
		if s != uint64(i+1) {
			t.Fatalf("event %d has number %d", i+1, s)
		}
	}
	if segments, _ := Segments(dir); len(seqs) != 50 || len(segments) < 5 {
		t.Errorf("%d of 50 events from %d files", len(seqs), len(segments))
	}
}

// While the disk is full events are kept in memory; with room again they are written in order.
//
//docs:survival.md the disk is full (no room, or the user's quota)
func TestEventsWaitForRoom(t *testing.T) {
	t.Parallel()
	small := disktest.Small(t, 256<<10)
	dir := small + "/events"
	l, _ := clocked(t, dir)
	room := disktest.Fill(t, small)
	const events = 200
	for i := range events {
		if _, err := l.Append(Event{Type: Metrics, Address: "a", Step: int64(i), Cursor: uint64(i + 1)}); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
	}
	if l.Held() == 0 || l.Flush() == nil {
		t.Fatalf("%d events are held on a full disk", l.Held())
	}
	written := len(readAll(t, dir))
	room()
	if err := l.Flush(); err != nil || l.Held() != 0 || l.Full() != nil {
		t.Fatalf("with room again: %v, %d held", err, l.Held())
	}
	if got := len(readAll(t, dir)); got != events || written >= events {
		t.Errorf("%d events while it was full, %d afterwards; want %d", written, got, events)
	}
}

// An event that must not be written before the record is held back, also when the log is closed.
func TestAnEventOnHoldIsNotWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := clocked(t, dir)
	for i := range 3 {
		if _, err := l.Hold(Event{Type: Checkpoint, Address: "a", Cursor: uint64(i + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	if got := readAll(t, dir); len(got) != 0 {
		t.Errorf("written: %+v", got)
	}
	if err := l.Flush(); err != nil || len(readAll(t, dir)) != 3 {
		t.Errorf("after a flush: %v, %d events", err, len(readAll(t, dir)))
	}
	if _, err := l.Hold(Event{Type: Checkpoint, Address: "a", Cursor: 4}); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if got := readAll(t, dir); len(got) != 3 {
		t.Errorf("after the close: %d events, want 3", len(got))
	}
}

// Views of a run read its log up to its end, so what was counted comes before it.
func TestCountedEventsComeBeforeTheEndOfTheRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, now := clocked(t, dir)
	for i := range 5 {
		if _, err := l.Append(Event{Type: Sample, Address: "environment.x.e", BlockAttempt: 1, Cursor: uint64(i + 1),
			Environment: "e", Completion: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
		*now = now.Add(time.Second)
	}
	if _, err := l.Append(Event{Type: RunEnded, Phase: "completed"}); err != nil {
		t.Fatal(err)
	}
	events := readAll(t, dir)
	if n := len(events); n != 3 || events[n-1].Type != RunEnded || events[n-2].Completion != "4" {
		t.Errorf("the log holds %v; want the first and the last sample, then the end", events)
	}
}
