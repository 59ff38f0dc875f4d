package engine

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// SumMetric adds up the samples of a metric in the Prometheus text format.
func SumMetric(page io.Reader, name string) (float64, error) {
	lines := bufio.NewScanner(page)
	lines.Buffer(make([]byte, 0, 64<<10), 1<<20)
	total, found := 0.0, false
	for lines.Scan() {
		line := lines.Text()
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || (rest[0] != '{' && rest[0] != ' ') {
			continue
		}
		if end := strings.LastIndexByte(rest, '}'); end >= 0 {
			rest = rest[end+1:]
		}
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		v, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return 0, fmt.Errorf("GET /metrics: %s is %q, expected a number", name, fields[0])
		}
		total, found = total+v, true
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("GET /metrics: %w", err)
	}
	if !found {
		return 0, fmt.Errorf("GET /metrics: there is no %s", name)
	}
	return total, nil
}
