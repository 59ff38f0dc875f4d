package proc

import (
	"golang.org/x/sys/unix"
)

// BootID names this boot of the machine.
func BootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}

const zombie = 5 // SZOMB of sys/proc.h

func lookup(pid int) (process, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return process{}, err
	}
	if int(info.Proc.P_pid) != pid {
		return process{}, unix.ESRCH
	}
	return fromKinfo(info), nil
}

func fromKinfo(info *unix.KinfoProc) process {
	pid := int(info.Proc.P_pid)
	session, err := unix.Getsid(pid)
	if err != nil {
		session = 0
	}
	started := info.Proc.P_starttime
	return process{
		pid: pid, parent: int(info.Eproc.Ppid), group: int(info.Eproc.Pgid), session: session,
		start: uint64(started.Sec)*1_000_000 + uint64(started.Usec), dead: info.Proc.P_stat == zombie,
	}
}

func processes() (map[int]process, error) {
	list, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, err
	}
	all := make(map[int]process, len(list))
	for i := range list {
		p := fromKinfo(&list[i])
		all[p.pid] = p
	}
	return all, nil
}

// told: macOS hides the environment of other processes.
const told = false

// carries cannot be found out on macOS. A process that can be signaled is this user's.
func carries(int, string) verdict { return unknown }

// writes is not asked of the system either; boot, pid and start must do.
func writes(int, string) bool { return true }

// Watch returns a channel that is closed when the process has ended, and a function that stops watching. The process
// need not be a child.
func Watch(pid int, start uint64) (exited <-chan struct{}, cancel func()) { return poll(pid, start) }
