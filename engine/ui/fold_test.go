package ui

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/event/eventtest"
	"github.com/recipe-rl/recipe/engine/event/logcache"
)

// anEvent draws an event of a type of which the page shows something.
func anEvent(t *rapid.T) event.Event {
	number := func(name string) float64 {
		return rapid.OneOf(rapid.SampledFrom([]float64{0, 1, 2, 1e300, 5e-324}), rapid.Float64Range(-1, 1)).Draw(t, name)
	}
	few := func(name string) int64 { return rapid.Int64Range(0, 9).Draw(t, name) }
	address := rapid.SampledFrom([]string{"trainer.grpo.policy", "environment.math.train", "inference.vllm.policy[0]",
		"sync.weights.policy"}).Draw(t, "address")
	metrics := map[string]float64{}
	for _, name := range []string{"loss", "reward", "time/wait", "time/step", "gpu/0/utilization"} {
		if rapid.Bool().Draw(t, name+" is there") {
			metrics[name] = number(name)
		}
	}
	text := rapid.StringN(0, 9, -1).Draw(t, "text")
	return rapid.SampledFrom([]event.Event{
		{Type: event.RunStarted, Message: text},
		{Type: event.RunEnded, Phase: "failed", Message: text},
		{Type: event.Operation, Address: address, Action: "create", Message: text, Needs: []string{"a.b.c"}},
		{Type: event.Phase, Address: address, Phase: "ready", Message: text, BlockAttempt: int(few("attempt"))},
		{Type: event.Phase, Address: address, Phase: "failed", Message: text, Remedy: "r"},
		{Type: event.Progress, Address: address, Step: few("step"), Total: 9, Unit: "steps"},
		{Type: event.Metrics, Address: address, Step: few("step"), Metrics: metrics},
		{Type: event.Machine, Metrics: metrics},
		{Type: event.Machine, Address: address, Host: "n1", Metrics: metrics},
		{Type: event.LogLine, Address: address, Level: "warn", Message: text, Repeats: 3},
		{Type: event.Checkpoint, Address: address, Path: text, Step: few("step")},
		{Type: event.Weights, Address: address, Inference: "inference.vllm.policy[0]", Version: few("version"),
			Seconds: number("seconds")},
		{Type: event.Sample, Address: address, Environment: address, Prompt: text, Score: number("score")},
		{Type: event.Activity, Address: address, State: event.Working, Message: text, Seconds: 1},
		{Type: event.Activity, Address: address, State: event.Waiting, On: "trainer.*.*", Message: text},
		{Type: event.Restart, Address: address, Message: text},
		{Type: event.Stalled, Address: address, Message: text, Seconds: 60},
		{Type: event.StallOver, Address: address},
		{Type: event.Moved, Address: "trainer.x.moved", From: address},
		{Type: event.Output, Name: "o", Value: map[string]any{"a": []any{1.5, text, nil, true}}},
		{Type: event.Removed, Address: address},
		{Type: event.Span, Address: address, Name: "step", BlockAttempt: 7},
		{Type: event.Paused}, {Type: event.Resumed},
	}).Draw(t, "event")
}

// growing is a log that is written piece by piece.
type growing struct {
	eventtest.TB
	dir   string
	names []string // of all files, in order
	whole map[string][]byte
	size  int // bytes of all files
}

// draw draws a log, and writes nothing of it.
func draw(t *rapid.T, dir string) *growing {
	source := filepath.Join(dir, "..", "source")
	must(t, os.RemoveAll(source))
	must(t, os.Mkdir(source, 0o700))
	w := &eventtest.Writer{TB: t, Dir: source}
	w.Put(event.Event{Type: event.RunStarted})
	for range rapid.IntRange(1, 5).Draw(t, "files") {
		for range rapid.IntRange(1, 20).Draw(t, "events") {
			w.Put(anEvent(t))
		}
		w.Save()
	}
	g := &growing{TB: t, dir: dir, whole: map[string][]byte{}}
	segments, err := event.Segments(source)
	must(t, err)
	for _, path := range segments {
		name := filepath.Base(path)
		text, err := os.ReadFile(path)
		must(t, err)
		g.names, g.whole[name], g.size = append(g.names, name), text, g.size+len(text)
	}
	return g
}

// write makes the log end after so many bytes. Files that are written already are appended to or cut off.
func (g *growing) write(end int) {
	for _, name := range g.names {
		text := g.whole[name][:min(end, len(g.whole[name]))]
		end -= len(text)
		path := filepath.Join(g.dir, name)
		if len(text) == 0 {
			must(g, os.RemoveAll(path))
			continue
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		must(g, err)
		have, err := io.ReadAll(f)
		must(g, err)
		if len(have) < len(text) {
			_, err = f.Write(text[len(have):])
			must(g, err)
		} else if len(have) > len(text) {
			must(g, f.Truncate(int64(len(text))))
		}
		must(g, f.Close())
	}
}

// folded is a log without anything that was kept.
func folded(t eventtest.TB, dir string) *fold {
	f := newFold()
	must(t, event.Read(dir, 0, func(e event.Event) error { f.Apply(e); return nil }))
	return f
}

// recalled reads a log with what is kept of it, and keeps what is new.
func recalled(t eventtest.TB, dir string) *fold {
	f, save, err := logcache.Read(context.Background(), dir, cacheFile, newFold)
	must(t, err)
	must(t, save())
	return f
}

func TestWhatIsKeptAndTheRestAreTheWholeLog(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir := filepath.Join(top, "events")
		must(t, os.RemoveAll(dir))
		must(t, os.Mkdir(dir, 0o700))
		g := draw(t, dir)
		for range rapid.IntRange(1, 6).Draw(t, "readings") {
			if rapid.IntRange(0, 9).Draw(t, "another run") == 0 {
				for _, name := range g.names {
					must(t, os.RemoveAll(filepath.Join(dir, name)))
				}
				g = draw(t, dir)
			}
			g.write(rapid.IntRange(0, g.size).Draw(t, "bytes"))
			if got, want := recalled(t, dir), folded(t, dir); !reflect.DeepEqual(got, want) {
				t.Fatalf("got\n%+v\nwant\n%+v", got, want)
			}
		}
	})
}

// A log grows in pieces that end anywhere, while it is read.
func TestWhatIsKeptOfALogThatGrows(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir := filepath.Join(top, "events")
		must(t, os.RemoveAll(dir))
		must(t, os.Mkdir(dir, 0o700))
		g := draw(t, dir)
		g.write(g.size)
		var all []event.Event
		must(t, event.Read(dir, 0, func(e event.Event) error { all = append(all, e); return nil }))
		g.write(0)
		piece := rapid.IntRange(g.size/50, g.size/3).Draw(t, "piece")
		written := make(chan struct{})
		go func() {
			defer close(written)
			for end := piece; end < g.size; end += piece {
				g.write(end)
			}
			g.write(g.size)
		}()
		for grows := true; grows; {
			select {
			case <-written:
				grows = false
			default:
			}
			got := recalled(t, dir)
			want := newFold()
			for _, e := range all[:got.Seen()] {
				want.Apply(e)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("up to event %d got\n%+v\nwant\n%+v", got.Seen(), got, want)
			}
		}
	})
}

// anotherServer makes a server of the run of a fixture, as the next process does.
func (f *fixture) anotherServer() *fixture {
	f.t.Helper()
	s, err := New(f.opts)
	must(f.t, err)
	f.t.Cleanup(s.Close)
	return &fixture{Server: s, t: f.t, dir: f.dir}
}

// longRun is a fixture whose log has two complete files and a newest one.
func longRun(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t, Options{})
	must(t, f.log.Close())
	must(t, os.RemoveAll(f.dir.Events()))
	must(t, os.Mkdir(f.dir.Events(), 0o700))
	w := &eventtest.Writer{TB: t, Dir: f.dir.Events()}
	w.Put(event.Event{Type: event.RunStarted, Message: "apply"})
	w.Put(event.Event{Type: event.Operation, Address: "trainer.tiny.policy", Action: "create", Message: "it is new"})
	for file := range 3 {
		for step := range int64(50) {
			w.Put(event.Event{Type: event.Metrics, Address: "trainer.tiny.policy", Step: step,
				Metrics: map[string]float64{"reward": float64(file) + float64(step)/4, "time/wait": .01, "time/step": .02}})
			w.Put(event.Event{Type: event.LogLine, Address: "trainer.tiny.policy", Message: "a line"})
			w.Put(event.Event{Type: event.Activity, Address: "trainer.tiny.policy", State: event.Working, Message: itoa(step)})
		}
		if file < 2 {
			w.Save()
		}
	}
	w.Put(event.Event{Type: event.RunEnded, Phase: "completed"})
	w.Save()
	return f
}

// pages are what the page asks for of a run that has ended.
func (f *fixture) pages() map[string]string {
	f.t.Helper()
	out := map[string]string{}
	for _, path := range []string{"", "/series?name=trainer.tiny.policy+reward", "/timeline", "/logs", "/config"} {
		var v any
		f.get(path, &v)
		if path == "" {
			delete(v.(map[string]any), "now")
		}
		text, err := json.Marshal(v)
		must(f.t, err)
		out[path] = string(text)
	}
	return out
}

// The next process reads the newest file of a log only, and shows the same.
func TestTheNextPageReadsTheNewestFile(t *testing.T) {
	t.Parallel()
	first := longRun(t)
	want := first.pages()
	first.Close()
	segments, err := event.Segments(first.dir.Events())
	must(t, err)
	for _, path := range segments[:len(segments)-1] {
		eventtest.Spoil(t, path)
	}
	if got := first.anotherServer().pages(); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
	must(t, os.Remove(filepath.Join(first.dir.Events(), cacheFile.Name)))
	var s summary
	if first.anotherServer().get("", &s); s.Error == "" {
		t.Error("a damaged log is read without an error, so this test has shown nothing")
	}
}

// Samples are not in the log, and are shown without reading it.
func TestSamplesAreShownWithoutTheLog(t *testing.T) {
	t.Parallel()
	f := longRun(t)
	var list struct{ Total int }
	f.get("/samples", &list)
	f.Close()
	if _, err := os.Stat(filepath.Join(f.dir.Events(), cacheFile.Name)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the log was read: what it comes to is kept (%v)", err)
	}
}

// BenchmarkMillionEvents is the summary of a run with a log of 515 MB: for the first time, and by another process.
func BenchmarkMillionEvents(b *testing.B) {
	f := newFixture(b, Options{})
	must(b, f.log.Close())
	must(b, os.RemoveAll(f.dir.Events()))
	must(b, os.Mkdir(f.dir.Events(), 0o700))
	eventtest.Long(b, f.dir.Events(), 1_000_000)
	show := func() *fixture {
		s, err := New(f.opts)
		must(b, err)
		next := &fixture{Server: s, t: b, dir: f.dir}
		var sum summary
		next.get("", &sum)
		return next
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			must(b, os.RemoveAll(filepath.Join(f.dir.Events(), cacheFile.Name)))
			s := show()
			b.StopTimer()
			s.Close()
			b.StartTimer()
		}
	})
	b.Run("again", func(b *testing.B) {
		show().Close()
		for b.Loop() {
			s := show()
			b.StopTimer()
			s.Close()
			b.StartTimer()
		}
	})
}
