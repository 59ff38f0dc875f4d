package proc

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// dumpSignal asks a process for its stacks: a real-time signal, since programs use SIGUSR1 and SIGUSR2 themselves.
const dumpSignal = syscall.Signal(45)

// catches reports whether a process has a handler for dumpSignal.
func catches(pid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if mask, ok := strings.CutPrefix(line, "SigCgt:"); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && bits&(1<<(uint(dumpSignal)-1)) != 0
		}
	}
	return false
}

// commandLine is the beginning of a process's command line. Values of options are left out: they may be secret.
func commandLine(pid int) string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return ""
	}
	return shortCommand(strings.Split(strings.TrimRight(string(data), "\x00"), "\x00"))
}
