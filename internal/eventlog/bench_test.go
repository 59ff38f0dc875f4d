package eventlog_test

import (
	"path/filepath"
	"testing"

	"github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/internal/eventlog"
)

// BenchmarkAppend is what a report of a block costs: metrics of a training step, on the disk.
func BenchmarkAppend(b *testing.B) {
	l, err := eventlog.Open(filepath.Join(b.TempDir(), eventlog.FileName), 1, outputs, eventlog.Limits{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	values := map[string]float64{}
	for _, name := range []string{"reward/mean", "loss", "kl", "entropy", "grad_norm", "learning_rate", "tokens_per_s"} {
		values[name] = 0.5
	}
	for b.Loop() {
		if err := l.Append(event.Metrics{Step: 7, Values: values}); err != nil {
			b.Fatal(err)
		}
	}
}
