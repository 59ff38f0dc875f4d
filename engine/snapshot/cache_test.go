package snapshot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/event/eventtest"
)

// eventful writes a log of four files with events of all types that a snapshot holds something of.
func eventful(t *testing.T) (dir string, files []string) {
	t.Helper()
	dir = t.TempDir()
	began, seq := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), uint64(0)
	var text bytes.Buffer
	put := func(e event.Event) {
		seq++
		e.V, e.Seq, e.Time = event.FormatVersion, seq, began.Add(time.Duration(seq)*time.Second)
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(append(line, '\n'))
	}
	const trainer, env = "trainer.tiny.policy", "environment.arithmetic.sums"
	for range 4 {
		files = append(files, filepath.Join(dir, fmt.Sprintf("%020d.jsonl", seq+1)))
		put(event.Event{Type: event.RunStarted, Message: "apply"})
		put(event.Event{Type: event.Operation, Address: trainer, Needs: []string{env}})
		put(event.Event{Type: event.Phase, Address: trainer, Phase: "ready", Message: "m", Remedy: "r", BlockAttempt: 2})
		for n := range int64(700) { // more than the points of a series, over all files
			put(event.Event{Type: event.Progress, Address: trainer, Step: n, Total: 700, Unit: "steps"})
			put(event.Event{Type: event.Metrics, Address: trainer, Step: n,
				Metrics: map[string]float64{"loss": 1 / float64(n+int64(seq)), "policy_version": float64(n)}})
		}
		put(event.Event{Type: event.Weights, Address: "sync.weights.policy", Inference: "inference.tiny.policy", Version: 7})
		put(event.Event{Type: event.Sample, Address: env, Prompt: fmt.Sprint(seq), Completion: "é", Score: 0.1})
		put(event.Event{Type: event.Checkpoint, Address: trainer, Path: "/c", Step: 3})
		put(event.Event{Type: event.Restart, Address: env, Message: "it fell"})
		put(event.Event{Type: event.Output, Name: "o", Value: map[string]any{"a": []any{1.5, "x", nil, true}}})
		put(event.Event{Type: event.Phase, Address: "environment.arithmetic.gone", Phase: "ready"})
		put(event.Event{Type: event.Removed, Address: "environment.arithmetic.gone"})
		put(event.Event{Type: event.Stalled, Address: trainer, Message: "waits", Seconds: 60})
		put(event.Event{Type: event.Paused})
		if err := os.WriteFile(files[len(files)-1], text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		text.Reset()
	}
	return dir, files
}

// folded is the log without anything that was kept.
func folded(t *testing.T, dir string) *Snapshot {
	t.Helper()
	snap := &Snapshot{}
	if err := event.Read(dir, 0, func(e event.Event) error { snap.Apply(e); return nil }); err != nil {
		t.Fatal(err)
	}
	return snap
}

func same(t *testing.T, dir string, want *Snapshot) {
	t.Helper()
	got, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

func TestCompleteFilesAreFoldedOnce(t *testing.T) {
	t.Parallel()
	dir, files := eventful(t)
	want := folded(t, dir)
	same(t, dir, want)
	for _, path := range files[:3] {
		eventtest.Spoil(t, path)
	}
	same(t, dir, want)

	// What is added to the newest file is read, and that file once it is complete.
	add(t, files[3], `{"v":1,"seq":90001,"time":"2026-03-02T12:00:00Z","type":"run_ended","phase":"completed"}`)
	snap, err := Read(dir)
	if err != nil || snap.Status != "completed" {
		t.Fatalf("after the end of the run: %v, %+v", err, snap)
	}
	next := filepath.Join(dir, fmt.Sprintf("%020d.jsonl", 90002))
	add(t, next, "")
	same(t, dir, snap)
	eventtest.Spoil(t, files[3])
	same(t, dir, snap)

	// The oldest files are deleted when the log is long.
	for _, path := range files[:2] {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	same(t, dir, snap)
}

// What was complete before a time is folded without the newest file; nothing is known of a file that was written since.
func TestBeforeIsWhatWasCompleteThen(t *testing.T) {
	t.Parallel()
	dir, files := eventful(t)
	newest, err := os.ReadFile(files[3])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(files[3]); err != nil {
		t.Fatal(err)
	}
	want := folded(t, dir)
	if err := os.WriteFile(files[3], newest, 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Now().Add(time.Hour)
	for range 2 { // and from what is kept
		if got, err := Before(dir, now); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %v\n%+v\nwant\n%+v", err, got, want)
		}
		for _, path := range files {
			eventtest.Spoil(t, path)
		}
	}
	if got, err := Before(dir, now.Add(-2*time.Hour)); err != nil || got.Last != 0 {
		t.Errorf("before the files were written there is %v, %+v", err, got)
	}
	if got, err := Before(filepath.Join(dir, "none"), now); err != nil || got.Last != 0 {
		t.Errorf("of a run without a log there is %v, %+v", err, got)
	}
}

func add(t *testing.T, path, line string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil && line != "" {
		_, err = f.WriteString(line + "\n")
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsKeptMustFitTheLog(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(kept string, files []string) error{
		"missing":   func(kept string, _ []string) error { return os.Remove(kept) },
		"torn":      func(kept string, _ []string) error { return os.Truncate(kept, 1000) },
		"empty":     func(kept string, _ []string) error { return os.Truncate(kept, 0) },
		"corrupted": func(kept string, _ []string) error { return replace(kept, `"Updates":`, `"Updates":4`) },
		"a folder": func(kept string, _ []string) error {
			if err := os.Remove(kept); err != nil {
				return err
			}
			return os.MkdirAll(filepath.Join(kept, "x"), 0o700)
		},
		"a file in between removed": func(_ string, files []string) error { return os.Remove(files[1]) },
		"a file changed":            func(_ string, files []string) error { return replace(files[0], `"loss":`, `"lost":`) },
		"all complete files removed": func(_ string, files []string) error {
			for _, path := range files[:3] {
				if err := os.Remove(path); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, files := eventful(t)
			same(t, dir, folded(t, dir))
			if err := damage(filepath.Join(dir, cacheFile.Name), files); err != nil {
				t.Fatal(err)
			}
			want := folded(t, dir)
			same(t, dir, want)
			same(t, dir, want)
		})
	}
}

func replace(path, old, with string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !strings.Contains(string(content), old) {
		return fmt.Errorf("%s has no %s", path, old)
	}
	return os.WriteFile(path, []byte(strings.Replace(string(content), old, with, 1)), 0o600)
}
