package inside

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a program of a sandbox does not need, and what leads out of namespaces or past limits: other namespaces and
// mounts, keyrings (which no namespace separates), sockets of virtual machines (vsock: neither), memory that is counted
// for no process, and interfaces of the kernel with many faults. io_uring would make calls that are not seen here.
func denied() (refused, missing, unsupported []uint32) {
	refused = []uint32{
		unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
		unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
		unix.SYS_MOUNT_SETATTR, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_KEXEC_LOAD, unix.SYS_INIT_MODULE,
		unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_SYSLOG, unix.SYS_ACCT, unix.SYS_QUOTACTL,
		unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_REBOOT,
		unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SEMGET, unix.SYS_MSGGET, unix.SYS_MQ_OPEN,
	}
	// Programs do without these where the kernel is older.
	missing = []uint32{unix.SYS_CLONE3, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
		unix.SYS_MEMFD_CREATE, unix.SYS_MEMFD_SECRET}
	// Access lists of files in memory are such memory; programs do without where the file system has none.
	unsupported = []uint32{unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT}
	return refused, missing, unsupported
}

// Flags of clone that make namespaces.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// Offsets in what a filter sees of a call (struct seccomp_data).
const (
	callNumber = 0
	callArch   = 4
	callFirst  = 16 // low half of the first argument, on little-endian machines
	callThird  = 32
)

// Answers of a filter.
const (
	allow  = unix.SECCOMP_RET_ALLOW
	refuse = unix.SECCOMP_RET_ERRNO
	kill   = unix.SECCOMP_RET_KILL_PROCESS
)

// filter is the program for the kernel.
func filter(arch uint32) []unix.SockFilter {
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	jump := func(how uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | how | unix.BPF_K, Jt: yes, Jf: no, K: k}
	}
	ret := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	out := []unix.SockFilter{load(callArch), jump(unix.BPF_JEQ, arch, 1, 0), ret(kill), load(callNumber)}
	if arch == unix.AUDIT_ARCH_X86_64 {
		out = append(out, jump(unix.BPF_JGE, 0x40000000, 0, 1), ret(kill)) // the x32 calls have other numbers
	}
	refused, missing, unsupported := denied()
	for errno, numbers := range map[unix.Errno][]uint32{unix.EPERM: refused, unix.ENOSYS: missing,
		unix.EOPNOTSUPP: unsupported} {
		for _, number := range numbers {
			out = append(out, jump(unix.BPF_JEQ, number, 0, 1), ret(refuse|uint32(errno)))
		}
	}
	out = append(out, jump(unix.BPF_JEQ, unix.SYS_CLONE, 0, 4), load(callFirst),
		jump(unix.BPF_JSET, newNamespaces, 0, 1), ret(refuse|uint32(unix.EPERM)), ret(allow))
	out = append(out, jump(unix.BPF_JEQ, unix.SYS_SOCKET, 1, 0), ret(allow), load(callFirst),
		jump(unix.BPF_JEQ, unix.AF_UNIX, 0, 1), ret(allow))
	for _, family := range []uint32{unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK} {
		protocols := []uint32{0, unix.IPPROTO_TCP, unix.IPPROTO_UDP}
		if family == unix.AF_NETLINK {
			protocols = []uint32{unix.NETLINK_ROUTE}
		}
		out = append(out, jump(unix.BPF_JEQ, family, 0, uint8(2+2*len(protocols))), load(callThird)) //nolint:gosec // a few
		for _, protocol := range protocols {
			out = append(out, jump(unix.BPF_JEQ, protocol, 0, 1), ret(allow))
		}
		out = append(out, ret(refuse|uint32(unix.EPROTONOSUPPORT)))
	}
	return append(out, ret(refuse|uint32(unix.EAFNOSUPPORT)))
}

// denyCalls denies system calls to this process and all that it starts.
func denyCalls() error {
	arch, ok := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("no filter of system calls is known for %s", runtime.GOARCH)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	program := filter(arch)
	given := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]} //nolint:gosec // a hundred lines
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&given))) //nolint:gosec // the kernel's interface
	runtime.KeepAlive(program)
	if errno != 0 {
		return fmt.Errorf("filter system calls: %w", errno)
	}
	return nil
}
