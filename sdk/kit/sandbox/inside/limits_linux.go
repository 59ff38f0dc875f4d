package inside

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// set sets what the kernel holds for each process. This process has the limits, too, and every other gets them from it.
func (l Limits) set() error {
	type limit struct {
		name  string
		kind  int
		value int64
	}
	limits := []limit{{"size of core files", unix.RLIMIT_CORE, -1}, {"message queues", unix.RLIMIT_MSGQUEUE, -1},
		{"size of files", unix.RLIMIT_FSIZE, l.FileSize}, {"open files", unix.RLIMIT_NOFILE, int64(l.OpenFiles)},
		{"processor time", unix.RLIMIT_CPU, int64(l.CPU.Seconds())},
	}
	if !raced { // not RLIMIT_AS: programs such as node reserve address space that they never use
		limits = append(limits, limit{"memory of a process", unix.RLIMIT_DATA, ownData(l.Memory)})
	}
	if l.Processes > 0 && ownProcesses() {
		limits = append(limits, limit{"processes", unix.RLIMIT_NPROC, int64(l.Processes + 2*ownThreads)})
	}
	for _, limit := range limits {
		if limit.value == 0 {
			continue
		}
		value := uint64(max(0, limit.value)) //nolint:gosec // it is not negative
		var now unix.Rlimit
		if err := unix.Getrlimit(limit.kind, &now); err != nil {
			return fmt.Errorf("limit the %s: %w", limit.name, err)
		}
		value = min(value, now.Max)
		if err := unix.Setrlimit(limit.kind, &unix.Rlimit{Cur: value, Max: value}); err != nil {
			return fmt.Errorf("limit the %s to %d: %w", limit.name, value, err)
		}
	}
	return nil
}

// ownData leaves this process, which has the limit, too, the address space that Go reserves. What all take together is
// counted.
func ownData(memory int64) int64 {
	if memory == 0 {
		return 0
	}
	return memory + 256<<20
}

// ownProcesses says whether RLIMIT_NPROC counts the processes of the sandbox alone. Before Linux 5.14 it counts all
// processes of the user.
func ownProcesses() bool {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return false
	}
	var major, minor int
	_, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	return err == nil && (major > 5 || major == 5 && minor >= 14)
}

// watch says when to look at all processes.
type watch struct {
	fast      bool // the kernel does not hold the limit of processes
	processes int
	ticks     int
	last      int // the newest process when all were looked at
}

// due is asked at each tick.
func (w *watch) due() bool {
	if w.ticks++; !w.fast {
		return true
	}
	text, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(text))
	if err != nil || len(fields) == 0 {
		return true
	}
	newest, _ := strconv.Atoi(fields[len(fields)-1]) // in this namespace
	if newest >= w.last && newest-w.last < w.processes/4 && w.ticks%int(watchEvery/watchFastEvery) != 0 {
		return false
	}
	w.last = newest
	return true
}

// inode is what the kernel holds for an empty file of a folder in memory.
const inode = 1024

// exceeded names which limit of all processes together is exceeded; empty: none. The kernel holds none of these for
// root, and none for memory without a cgroup. kernel is memory that is not seen here.
func (l Limits) exceeded(kernel int64) string {
	pids := processes()
	// A fork bomb is ended before its processes are looked at: it would start more of them meanwhile.
	if l.Processes > 0 && len(pids) > l.Processes {
		return fmt.Sprintf(tooMany, len(pids), l.Processes)
	}
	threads, memory := 0, kernel
	for _, pid := range pids {
		status, err := os.ReadFile("/proc/" + pid + "/status")
		if err != nil {
			continue // it has ended
		}
		threads += int(field(status, "Threads:"))
		memory += (field(status, "RssAnon:") + field(status, "RssShmem:") + field(status, "VmPTE:")) << 10
	}
	for _, folder := range []string{"/tmp", "/dev/shm"} {
		var used unix.Statfs_t
		if unix.Statfs(folder, &used) == nil && used.Type == unix.TMPFS_MAGIC {
			memory += int64(used.Blocks-used.Bfree) * used.Bsize //nolint:gosec // far smaller
			memory += int64(used.Files-used.Ffree) * inode       //nolint:gosec // far smaller
		}
	}
	switch {
	case l.Processes > 0 && threads > l.Processes:
		return fmt.Sprintf(tooMany, threads, l.Processes)
	case l.Memory > 0 && memory > l.Memory:
		return fmt.Sprintf("%d MiB of memory, %d are allowed", memory>>20, l.Memory>>20)
	}
	return ""
}

const tooMany = "%d processes and threads, %d are allowed"

// processes are the ids of all processes of the sandbox but this one.
func processes() []string {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1)
	return slices.DeleteFunc(names, func(name string) bool {
		pid, err := strconv.Atoi(name)
		return err != nil || pid == 1
	})
}

// field is a number of /proc/PID/status.
func field(status []byte, name string) int64 {
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name); ok {
			n, _ := strconv.ParseInt(strings.Fields(value + " 0")[0], 10, 64)
			return n
		}
	}
	return 0
}

// startable explains why a program cannot be started here.
func startable(program string) error {
	f, err := os.Open(program)
	if err != nil {
		return fmt.Errorf("%s is not readable in the sandbox: %w", program, err)
	}
	defer func() { _ = f.Close() }()
	if err := unix.Access(program, unix.X_OK); err != nil {
		return fmt.Errorf("%s is not executable in the sandbox: %w", program, err)
	}
	line, _ := bufio.NewReader(io.LimitReader(f, 512)).ReadString('\n')
	if command, ok := strings.CutPrefix(line, "#!"); ok && len(strings.Fields(command)) > 0 {
		if interpreter := strings.Fields(command)[0]; unix.Access(interpreter, unix.X_OK) != nil {
			return fmt.Errorf("the interpreter %s of %s is not there in the sandbox", interpreter, program)
		}
	}
	return nil
}
