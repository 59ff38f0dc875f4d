package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// BootID names this boot of the machine.
func BootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// lookup reads /proc/PID/stat.
func lookup(pid int) (process, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, err
	}
	return parseStat(pid, data)
}

// parseStat reads one line of /proc/PID/stat. The second field, the program's name in parentheses, may hold anything,
// parentheses and spaces too, so fields are counted from the last one.
func parseStat(pid int, data []byte) (process, error) {
	end := bytes.LastIndexByte(data, ')')
	if end < 0 {
		return process{}, fmt.Errorf("/proc/%d/stat: expected a name in parentheses, got %q", pid, data)
	}
	fields := strings.Fields(string(data[end+1:]))
	const state, parent, group, session, start = 0, 1, 2, 3, 19 // field numbers of proc(5) less 3
	if len(fields) <= start {
		return process{}, fmt.Errorf("/proc/%d/stat: expected more than %d fields after the name, got %d", pid, start,
			len(fields))
	}
	p := process{pid: pid, dead: fields[state] == "Z" || fields[state] == "X"}
	var errs [4]error
	p.parent, errs[0] = strconv.Atoi(fields[parent])
	p.group, errs[1] = strconv.Atoi(fields[group])
	p.session, errs[2] = strconv.Atoi(fields[session])
	p.start, errs[3] = strconv.ParseUint(fields[start], 10, 64)
	if err := errors.Join(errs[:]...); err != nil {
		return process{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	return p, nil
}

// processes lists every process that can be seen.
func processes() (map[int]process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	_ = dir.Close()
	if err != nil {
		return nil, err
	}
	all := make(map[int]process, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := lookup(pid); err == nil { // it may have ended meanwhile
			all[pid] = p
		}
	}
	return all, nil
}

// told: the system shows the environment of this user's processes.
const told = true

// carries says whether a process has an entry in the environment that it was started with. Those of other users cannot
// be read. A program that shows a title of its own has written it over its environment, or over the beginning of it (as
// vLLM's EngineCore does): what is left proves nothing then.
func carries(pid int, entry string) verdict {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return no
	}
	return findEntry(data, entry)
}

// findEntry looks for an entry in an environment block. The kernel writes NAME=VALUE and one NUL for each entry;
// anything else in the block has been written later.
func findEntry(block []byte, entry string) verdict {
	found := no
	if len(block) == 0 || block[len(block)-1] != 0 {
		found = unknown
	}
	for e := range bytes.SplitSeq(bytes.TrimSuffix(block, []byte{0}), []byte{0}) {
		if string(e) == entry {
			return yes
		}
		if bytes.IndexByte(e, '=') <= 0 {
			found = unknown
		}
	}
	return found
}

// writes says whether the standard output or error of a process is a certain file. A device such as /dev/null proves
// nothing: many processes write there.
func writes(pid int, path string) bool {
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return false
	}
	for _, fd := range []string{"1", "2"} {
		if to, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/fd/" + fd); err == nil && to == path {
			return true
		}
	}
	return false
}

// Watch returns a channel that is closed when the process has ended, and a function that stops watching. The process
// need not be a child. It uses a pidfd, and looks once in a while where the kernel has none.
func Watch(pid int, start uint64) (exited <-chan struct{}, cancel func()) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil || !Same(pid, start) {
		if err == nil {
			_ = unix.Close(fd)
		}
		return poll(pid, start)
	}
	w := newWatch()
	go func() {
		defer func() { _ = unix.Close(fd) }()
		for {
			// Bounded, so that cancel is noticed without a second descriptor.
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(pollEvery.Milliseconds()))
			if w.over(n > 0 || (err != nil && !errors.Is(err, unix.EINTR))) {
				return
			}
		}
	}()
	return w.exited, w.cancel
}
