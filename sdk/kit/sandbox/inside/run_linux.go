package inside

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// run starts the program and returns when it has ended.
func (j Job) run(argv []string, report *Report) error {
	if os.Getpid() != 1 {
		return errors.New("it is not the first process of a sandbox")
	}
	if len(argv) == 0 {
		return errors.New("no program is given")
	}
	// Nobody reads this process's memory, environment or descriptors.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("close this process to others: %w", err)
	}
	// The kernel keeps signals of other processes from process 1, but for those that it handles, and Go handles all. Each
	// is taken and dropped; to ignore it would be inherited.
	signal.Notify(make(chan os.Signal, 1))
	// What bubblewrap or the caller has left open stays out of the program.
	if err := closeOnExec(); err != nil {
		return err
	}
	if err := startable(argv[0]); err != nil || j.Check {
		return err
	}
	if err := j.forward(); err != nil {
		return err
	}
	a := newAudit(j)
	haveThreads()
	if err := j.Limits.set(); err != nil {
		return err
	}
	if err := denyCalls(); err != nil {
		return err
	}
	return j.supervise(argv, a, report)
}

// ownThreads are more threads than this process needs at once.
const ownThreads = 24

// haveThreads starts this process's threads, which Go then keeps: when programs have used up the processes of the
// sandbox it would get no more, and end.
func haveThreads() {
	runtime.GOMAXPROCS(2)
	var ready sync.WaitGroup
	done := make(chan struct{})
	ready.Add(ownThreads)
	for range ownThreads {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Done()
			<-done
		}()
	}
	ready.Wait()
	close(done)
}

// closeOnExec marks all descriptors but the standard ones.
func closeOnExec() error {
	err := unix.CloseRange(reportTo, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	names, readErr := os.ReadDir("/proc/self/fd") // before Linux 5.11
	if readErr != nil {
		return fmt.Errorf("close descriptors: %w", errors.Join(err, readErr))
	}
	for _, name := range names {
		var fd int
		if _, err := fmt.Sscan(name.Name(), &fd); err == nil && fd >= reportTo {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// How often the limits of all processes together are looked at, and where the kernel holds no limit of processes, how
// often it is looked whether many were started.
const (
	watchEvery     = 100 * time.Millisecond
	watchFastEvery = 5 * time.Millisecond
)

// supervise runs the program, and ends it at its limits.
func (j Job) supervise(argv []string, a *audit, report *Report) error {
	out, in, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe for its output: %w", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	pid, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{Dir: j.Dir, Env: j.environ(),
		Files: []uintptr{null.Fd(), in.Fd(), in.Fd()}, Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		return fmt.Errorf("start %s: %w", argv[0], err)
	}
	_, _ = in.Close(), null.Close()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		j.copyOutput(out)
	}()
	ended := make(chan syscall.WaitStatus, 1)
	go reap(pid, ended)
	go a.run()
	status := j.wait(pid, ended, a, report)
	_ = unix.Kill(-1, unix.SIGKILL) // all but this process
	_ = out.SetReadDeadline(time.Now().Add(lastOutput))
	<-copied
	switch {
	case report.Late || report.Limit != "":
	case status.Exited():
		code := status.ExitStatus()
		report.Exit = &code
	default:
		report.Signal = status.Signal().String()
	}
	return nil
}

// environ is the environment of the program: this process's, but for the folder, which bubblewrap sets to its own.
func (j Job) environ() []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "PWD=") })
	return append(env, "PWD="+j.Dir)
}

// lastOutput is how long output is read that the program wrote before its end.
const lastOutput = time.Second

// wait waits for the end of the program, and ends it at its limits.
func (j Job) wait(pid int, ended <-chan syscall.WaitStatus, a *audit, report *Report,
) syscall.WaitStatus {
	tick := time.NewTicker(watchEvery)
	w := watch{fast: j.Root || !ownProcesses(), processes: j.Limits.Processes}
	if w.fast {
		tick.Reset(watchFastEvery)
	}
	defer tick.Stop()
	var late, over <-chan time.Time
	if j.Timeout > 0 {
		late = time.After(j.Timeout)
	}
	for {
		select {
		case status := <-ended:
			return status
		case <-late:
			report.Late, late, over = true, nil, time.After(j.Grace)
			_ = unix.Kill(pid, unix.SIGTERM)
		case <-over:
			_ = unix.Kill(-1, unix.SIGKILL)
			return <-ended
		case <-tick.C:
			if !w.due() {
				continue
			}
			if report.Limit = a.exceeded(); report.Limit == "" {
				report.Failed = j.full()
			}
			if report.Limit != "" || report.Failed != "" {
				// One call of the system ends all of them, and none can start another one meanwhile.
				_ = unix.Kill(-1, unix.SIGKILL)
				return <-ended
			}
		}
	}
}

// reap takes note of ended processes: what loses its parent is given to process 1.
func reap(program int, ended chan<- syscall.WaitStatus) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case pid == program:
			ended <- status
		case err != nil && !errors.Is(err, syscall.EINTR):
			return
		}
	}
}

// copyOutput writes the program's output to the log, which the program itself has no access to.
func (j Job) copyOutput(from *os.File) {
	buffer := make([]byte, 32<<10)
	for written := int64(0); ; {
		n, err := from.Read(buffer)
		if keep := min(int64(n), j.Output-written); j.Output == 0 || keep > 0 {
			if j.Output == 0 {
				keep = int64(n)
			}
			m, _ := os.Stdout.Write(buffer[:keep]) // a full disk does not stop the program
			written += int64(m)
		}
		if err != nil {
			return
		}
	}
}
