package environment

import (
	"fmt"

	"github.com/recipe-rl/recipe/internal/session"
)

// metricPrefix begins the names of an author's metrics, so that none hides one of this package.
const metricPrefix = "metrics/"

// metrics are the numbers that an author records beside one score.
type metrics struct {
	values map[string]float64
	err    error // the first one that was refused
}

func newMetrics() *metrics { return &metrics{values: map[string]float64{}} }

// set records a number. A nil receiver, which a Completion made by hand has, drops it.
func (m *metrics) set(name string, value float64) {
	if m == nil || m.err != nil {
		return
	}
	if m.err = session.CheckMetric(name, value); m.err == nil && len(m.values) >= session.MaxMetrics {
		m.err = fmt.Errorf("one score has more than %d metrics; use few names, the same for all tasks", session.MaxMetrics)
	}
	if m.err == nil {
		m.values[name] = value
	}
}

// all returns the numbers; nil when there are none.
func (m *metrics) all() map[string]float64 {
	if m == nil {
		return nil
	}
	return m.values
}

// means are the means of metrics, each over the sequences that have it.
type means struct {
	sums, counts map[string]float64
}

func (m *means) add(values map[string]float64) {
	if len(values) > 0 && m.sums == nil {
		m.sums, m.counts = map[string]float64{}, map[string]float64{}
	}
	for name, v := range values {
		m.sums[name] += v
		m.counts[name]++
	}
}

// each calls f with each mean.
func (m *means) each(f func(name string, mean float64)) {
	for name, sum := range m.sums {
		f(name, sum/m.counts[name])
	}
}
