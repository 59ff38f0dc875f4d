package host

import "context"

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
