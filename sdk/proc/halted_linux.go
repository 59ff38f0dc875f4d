package proc

import (
	"bytes"
	"fmt"
	"os"
)

// Halted explains why a process does not run; empty: it runs, or the system does not say.
func Halted(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	after := bytes.LastIndexByte(stat, ')') // the name before it may hold anything
	if after < 0 || len(stat) < after+3 {
		return ""
	}
	switch stat[after+2] {
	case 'T', 't':
		return "is stopped, as by Ctrl-Z or SIGSTOP"
	case 'D':
		return "waits in the kernel, as for a disk or a dead mount"
	}
	return ""
}
