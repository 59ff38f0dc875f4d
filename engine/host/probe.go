package host

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
)

// Probe reports whether the plugin process recorded in a block's directory runs, and its pid, without talking to it.
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

// Elsewhere says whether the plugin process recorded in a block's directory runs with another working directory, as
// with a copied record. Where the working directory is unknown, it counts as elsewhere, unless certain is set.
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

// Build is the build of recipe that the plugin process recorded in a block's directory runs; empty when it does not
// run, runs another program, or was started by a build that did not record this.
func Build(ctx context.Context, dir string, runner Runner) string {
	r, err := readRecord(dir)
	if err != nil || r.Build == "" {
		return ""
	}
	if _, alive := Probe(ctx, dir, runner); !alive && r.Process.Host == "" {
		return ""
	}
	return r.Build
}

// Moved says whether the plugin process recorded in a block's directory runs, and was started when that directory had
// another path: the process still uses the old paths. from is the old path; it is empty when nothing was moved.
func Moved(ctx context.Context, dir string, runner Runner) (from string) {
	r, err := readRecord(dir)
	if err != nil || r.Dir == "" {
		return ""
	}
	here, err := os.Stat(dir)
	if err != nil {
		return ""
	}
	if there, err := os.Stat(r.Dir); err == nil && os.SameFile(here, there) {
		return ""
	}
	if _, alive := Probe(ctx, dir, runner); !alive {
		return ""
	}
	return r.Dir
}
