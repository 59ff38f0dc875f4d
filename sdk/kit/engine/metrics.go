package engine

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// Samples are the samples of one metric.
type Samples []Sample

// Sample is one line of a page in the Prometheus text format.
type Sample struct {
	Labels string // as they stand in the line, in braces; empty: none
	Value  float64
}

// ReadMetrics reads the samples of metrics from a page in the Prometheus text format. A metric that the page lacks has
// none.
func ReadMetrics(page io.Reader, names ...string) (map[string]Samples, error) {
	lines := bufio.NewScanner(page)
	lines.Buffer(make([]byte, 0, 64<<10), 1<<20)
	out := make(map[string]Samples, len(names))
	for lines.Scan() {
		line := lines.Text()
		for _, name := range names {
			rest, ok := strings.CutPrefix(line, name)
			if !ok || rest == "" || (rest[0] != '{' && rest[0] != ' ') {
				continue
			}
			s := Sample{}
			if end := strings.LastIndexByte(rest, '}'); end >= 0 {
				s.Labels, rest = rest[:end+1], rest[end+1:]
			}
			fields := strings.Fields(rest)
			if len(fields) == 0 {
				continue
			}
			var err error
			if s.Value, err = strconv.ParseFloat(fields[0], 64); err != nil {
				return nil, fmt.Errorf("GET /metrics: %s is %q, expected a number", name, fields[0])
			}
			out[name] = append(out[name], s)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("GET /metrics: %w", err)
	}
	return out, nil
}

// Sum adds the samples up.
func (s Samples) Sum() float64 {
	sum := 0.0
	for _, one := range s {
		sum += one.Value
	}
	return sum
}

// Mean is the mean of the samples; 0 without any.
func (s Samples) Mean() float64 { return s.Sum() / float64(max(1, len(s))) }

// Label is the value of a label as a number; 0 if it has none.
func (s Sample) Label(name string) float64 {
	found := regexp.MustCompile(`[{,]` + regexp.QuoteMeta(name) + `="([^"]*)"`).FindStringSubmatch(s.Labels)
	if found == nil {
		return 0
	}
	v, _ := strconv.ParseFloat(found[1], 64) // "None" is 0
	return v
}

// SumMetric adds up the samples of a metric in the Prometheus text format.
func SumMetric(page io.Reader, name string) (float64, error) {
	all, err := ReadMetrics(page, name)
	if err != nil {
		return 0, err
	}
	if len(all[name]) == 0 {
		return 0, fmt.Errorf("GET /metrics: there is no %s", name)
	}
	return all[name].Sum(), nil
}
