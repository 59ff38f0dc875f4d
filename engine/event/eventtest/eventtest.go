// Package eventtest writes event logs for tests and benchmarks.
package eventtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
)

// Long writes the log of a run of so many events into dir, as event.Log does, which would wait for the disk. With a
// million events it has 515 MB.
func Long(tb TB, dir string, events int) {
	tb.Helper()
	w := &Writer{TB: tb, Dir: dir}
	w.Put(event.Event{Type: event.RunStarted})
	for n := int64(1); n <= int64(events/10); n++ {
		step(w.Put, n)
	}
	w.Save()
}

// TB is what a Writer needs of a testing.TB or a rapid.T.
type TB interface {
	Helper()
	Fatal(args ...any)
}

// Writer writes a log, a file at a time: each has 16 MiB, or ends where Save is called.
type Writer struct {
	TB  TB
	Dir string

	seq  uint64 // of the newest event
	next uint64 // of the first event of the next file, less one
	file bytes.Buffer
}

// Put numbers an event and adds it.
func (w *Writer) Put(e event.Event) {
	w.TB.Helper()
	w.seq++
	e.V, e.Seq, e.Cursor, e.BlockAttempt = event.FormatVersion, w.seq, w.seq, max(e.BlockAttempt, 1)
	if e.Time.IsZero() {
		e.Time = when(w.seq)
	}
	if w.write(e); w.file.Len() > 16<<20 {
		w.Save()
	}
}

// Save ends a file.
func (w *Writer) Save() {
	w.TB.Helper()
	path := filepath.Join(w.Dir, fmt.Sprintf("%020d.jsonl", w.next+1))
	if err := os.WriteFile(path, w.file.Bytes(), 0o600); err != nil {
		w.TB.Fatal(err)
	}
	w.next = w.seq
	w.file.Reset()
	w.write(event.Event{V: event.FormatVersion, Seq: w.seq, Time: when(w.seq), Type: event.LogFile})
}

func (w *Writer) write(e event.Event) {
	w.TB.Helper()
	line, err := json.Marshal(e)
	if err != nil {
		w.TB.Fatal(err)
	}
	w.file.Write(append(line, '\n'))
}

func when(seq uint64) time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(seq) * time.Second / 10)
}

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
