package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// header says when and on what the table was made.
func header(note string) string {
	var b strings.Builder
	b.WriteString("# Trajectory API: recipe against run-api\n\n")
	fmt.Fprintf(&b, "Made %s by `bench` (plugins/trajectories/bench) on %s, %d CPUs, Linux %s, %s, "+
		"load %s at the start.\n",
		time.Now().UTC().Format("2006-01-02 15:04 UTC"), field("/proc/cpuinfo", "model name"), runtime.NumCPU(), kernel(),
		runtime.Version(), load())
	if note != "" {
		b.WriteString(note + "\n")
	}
	return b.String()
}

func field(file, name string) string {
	text, _ := os.ReadFile(file)
	for _, line := range strings.Split(string(text), "\n") {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "an unknown processor"
}

func kernel() string {
	text, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.TrimSpace(string(text))
}

func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	return strings.Join(strings.Fields(string(text))[:1], " ")
}
