package session

import (
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxMetrics are as many as one score may have: a name for each task would make a series for each task.
const MaxMetrics = 64

// CheckMetrics finds what is wrong with the numbers beside one score.
func CheckMetrics(values map[string]float64) error {
	if len(values) > MaxMetrics {
		return fmt.Errorf("one score has %d metrics, more than %d; use few names, the same for all tasks", len(values),
			MaxMetrics)
	}
	for name, value := range values {
		if err := CheckMetric(name, value); err != nil {
			return err
		}
	}
	return nil
}

// CheckMetric finds what is wrong with one of them.
func CheckMetric(name string, value float64) error {
	switch {
	case name == "":
		return fmt.Errorf("a metric with the value %v has no name", value)
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }):
		return fmt.Errorf("the metric %q has a name with characters that cannot be shown; use letters, digits and _", name)
	case math.IsNaN(value) || math.IsInf(value, 0):
		return fmt.Errorf("the metric %q is %v, which is no finite number", name, value)
	}
	return nil
}
