package usage

import (
	"errors"
	"os"
	"strconv"
	"strings"
)

// Memory returns the bytes of memory of this machine, and those that a program could still get.
func Memory() (total, available uint64, err error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0, err
	}
	return meminfo(string(data))
}

// meminfo reads total and available memory from /proc/meminfo, which counts in KiB.
func meminfo(text string) (total, available uint64, err error) {
	for _, line := range strings.Split(text, "\n") {
		name, rest, _ := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		n, err := strconv.ParseUint(fields[0], 10, 64)
		if err != nil {
			continue
		}
		switch name {
		case "MemTotal":
			total = n << 10
		case "MemAvailable":
			available = n << 10
		}
	}
	if total == 0 {
		return 0, 0, errors.New("/proc/meminfo has no MemTotal")
	}
	return total, available, nil
}
