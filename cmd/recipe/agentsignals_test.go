package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startedBy is the process that has started another; 0: it has ended.
func startedBy(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	found, _ := strconv.Atoi(fields[1])
	return found
}

// A scheduler says again and again that a job is to end. The agent that ends its block goes on doing so: gone itself,
// it would leave the block to be killed, and with it a last checkpoint.
func TestAnAgentEndsItsBlockOnce(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	w.write("quickstart.hcl", `
executor "local" "here" {}
inference "tiny" "policy" {}
environment "arithmetic" "sums" { inference = inference.tiny.policy }
trainer "tiny" "policy" {
  environments = [environment.arithmetic.sums]
  steps        = 1000000
  placement {
    executor = executor.local.here
    cpus     = 1
    memory   = "1GiB"
  }
}
sync "weights" "policy" {
  trainer   = trainer.tiny.policy
  inference = [inference.tiny.policy]
}
`)
	w.recipe("apply", "-y", "--detach", "quickstart.hcl")
	block := w.awaitProcesses(5, nil)["trainer.tiny.policy"]
	eventually(t, "the trainer has made a step", func() bool { return w.metrics() > 0 })
	agent := startedBy(block)
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", agent))
	if err != nil || !strings.Contains(string(command), "\x00agent\x00") {
		t.Fatalf("the block's process is a child of %q (%v), want an agent", command, err)
	}
	if err := syscall.Kill(block, syscall.SIGSTOP); err != nil { // a block that takes its time
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(block, syscall.SIGCONT) })
	for range 4 {
		if err := syscall.Kill(agent, syscall.SIGTERM); err != nil {
			t.Fatalf("the agent has ended before its block: %v", err)
		}
		time.Sleep(together/2 + 100*time.Millisecond)
	}
	if startedBy(block) != agent {
		t.Fatalf("the agent %d has ended before its block, which is a child of %d now", agent, startedBy(block))
	}
	if err := syscall.Kill(block, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "block and agent have ended", func() bool { return startedBy(block) != agent && startedBy(agent) == 0 })
}
