package proc

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// dumpSignal asks a process for its stacks: by default it is ignored, so it harms nobody who does not know of it.
const dumpSignal = syscall.SIGINFO

// catches is always true: the signal ends nobody.
func catches(int) bool { return true }

// commandLine is the beginning of a process's command line. Values of options are left out: they may be secret.
func commandLine(pid int) string {
	out, err := exec.Command("ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return shortCommand(strings.Fields(string(out)))
}
