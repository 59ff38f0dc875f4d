package host

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
)

// Probe says whether the plugin process recorded in a block's directory runs, and its pid, without talking to it.
func Probe(ctx context.Context, dir string, runner Runner) (pid int, alive bool) {
	if runner == nil {
		runner = Local{}
	}
	r, err := readRecord(dir)
	if err != nil {
		return 0, false
	}
	process, err := runner.Find(ctx, r.Process)
	if err != nil {
		return 0, false
	}
	process.Release()
	return r.Process.PID, true
}

// Elsewhere says whether the plugin process recorded in a block's directory runs and works in another directory, as that of a copied
// record does. Where the system does not show where a process works, it counts as elsewhere unless certain is asked for.
func Elsewhere(ctx context.Context, dir string, certain bool, runner Runner) (pid int, yes bool) {
	pid, alive := Probe(ctx, dir, runner)
	if !alive {
		return 0, false
	}
	here, err := os.Stat(dir)
	if err != nil {
		return 0, false
	}
	works, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid), "cwd")) // also of a directory that was removed
	if err != nil {
		return pid, !certain
	}
	return pid, !os.SameFile(here, works)
}
