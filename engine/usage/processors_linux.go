package usage

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

func readProcessors() (processors, error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return processors{}, err
	}
	return parseStat(string(data))
}

// parseStat reads the first line of /proc/stat: user nice system idle iowait irq softirq steal …, in ticks. The times
// of guests that follow are counted in user already.
func parseStat(text string) (p processors, err error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 6 || fields[0] != "cpu" {
		return p, fmt.Errorf("/proc/stat begins with %.80q, expected the times of all processors", line)
	}
	for i, field := range fields[1:min(len(fields), 9)] {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return p, fmt.Errorf("/proc/stat: %w", err)
		}
		p.total += ticks
		if i == 3 || i == 4 {
			p.idle += ticks
		}
	}
	return p, nil
}
