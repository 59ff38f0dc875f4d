package snapshot_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/snapshot"
)

// step writes the events of one step of a run: ten, with the sizes that they have in a run of trainer.grpo.
func step(put func(event.Event), n int64) {
	metrics := func(names, n int) map[string]float64 {
		out := map[string]float64{}
		for i := range names {
			out[fmt.Sprintf("group/metric_number_%d", i)] = float64(n%1000)/7 + float64(i)
		}
		return out
	}
	text := strings.Repeat("A farmer has seventeen sheep and sells four of them. ", 6)
	trainer, env, sync := "trainer.grpo.policy", "environment.math.train", "sync.weights.policy"
	put(event.Event{Type: event.Metrics, Address: trainer, Step: n, Metrics: metrics(40, int(n))})
	put(event.Event{Type: event.Progress, Address: trainer, Step: n, Total: 1_000_000, Unit: "steps"})
	put(event.Event{Type: event.Metrics, Address: env, Step: n, Metrics: metrics(16, int(n))})
	put(event.Event{Type: event.Sample, Address: env, Environment: env, Prompt: text, Completion: text, Score: 1})
	put(event.Event{Type: event.Weights, Address: sync, Inference: "inference.vllm.policy", Version: n, Seconds: 1})
	for i := range 3 {
		put(event.Event{Type: event.Span, Address: trainer, Name: "step", TraceID: "0af7651916cd43dd8448eb211c80319c",
			SpanID: "b7ad6b7169203331", Seconds: float64(i), Attributes: map[string]string{"step": fmt.Sprint(n)}})
	}
	put(event.Event{Type: event.LogLine, Address: trainer, Level: "info",
		Message: fmt.Sprintf("line %d: %s", n, text[:80])})
	put(event.Event{Type: event.Machine, Metrics: metrics(12, int(n))})
}

// long writes the log of a run of so many events, as event.Log does, which would wait for the disk.
func long(tb testing.TB, dir string, events int) {
	at, seq := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), uint64(0)
	var file bytes.Buffer
	first := uint64(1)
	save := func() {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%020d.jsonl", first)), file.Bytes(), 0o600); err != nil {
			tb.Fatal(err)
		}
		first = seq + 1
		file.Reset()
	}
	put := func(e event.Event) {
		seq, at = seq+1, at.Add(time.Second/10)
		e.V, e.Seq, e.Time, e.Cursor, e.BlockAttempt = event.FormatVersion, seq, at, seq, 1
		line, err := json.Marshal(e)
		if err != nil {
			tb.Fatal(err)
		}
		if file.Write(append(line, '\n')); file.Len() > 16<<20 {
			save()
		}
	}
	put(event.Event{Type: event.RunStarted})
	for n := int64(1); n <= int64(events/10); n++ {
		step(put, n)
	}
	save()
}

// BenchmarkReadAMillionEvents reads a log of 515 MB: for the first time, and again.
func BenchmarkReadAMillionEvents(b *testing.B) {
	dir := b.TempDir()
	long(b, dir, 1_000_000)
	read := func(b *testing.B) {
		if _, err := snapshot.Read(dir); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			_ = os.Remove(filepath.Join(dir, "snapshot.kept"))
			read(b)
		}
	})
	b.Run("again", func(b *testing.B) {
		read(b)
		for b.Loop() {
			read(b)
		}
	})
}
