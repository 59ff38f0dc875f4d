package inside

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// audit looks at what takes longer to count than the memory of processes: what the kernel holds for their sockets and
// mappings, and what they have written.
type audit struct {
	job     Job
	sockets int // a socket of the kernel that lists sockets; -1: there is none

	kernel atomic.Int64           // bytes that the kernel holds
	over   atomic.Pointer[string] // a limit that is exceeded
}

// Between two audits there is a pause, at least so long, and so many times as long as an audit took.
const (
	auditPause = 500 * time.Millisecond
	auditShare = 2
)

// newAudit begins before calls of the system are denied, as it needs some of them.
func newAudit(j Job) *audit {
	a := &audit{job: j, sockets: -1}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if j.Alone && err == nil {
		_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1})
		a.sockets = fd
	}
	return a
}

func (a *audit) run() {
	for {
		began := time.Now()
		sockets := a.ofSockets()
		a.kernel.Store(sockets + a.mappings(a.job.Limits.Memory-sockets))
		if err := errors.Join(watches(), a.written()); err != nil {
			text := err.Error()
			a.over.CompareAndSwap(nil, &text)
		}
		time.Sleep(max(auditPause, auditShare*time.Since(began)))
	}
}

// exceeded names a limit that is exceeded; empty: none.
func (a *audit) exceeded() string {
	if over := a.over.Load(); over != nil {
		return *over
	}
	return a.job.Limits.exceeded(a.kernel.Load())
}

// What a mapping takes of the kernel, and how many a process has at most: /proc/sys/vm/max_map_count.
const (
	mapping      = 256
	mostMappings = 65530
)

// mappings are the bytes that the kernel holds for the mappings of all processes. More than most are not counted.
func (a *audit) mappings(most int64) int64 {
	buffer, count := make([]byte, 64<<10), int64(0)
	for _, pid := range processes() {
		if count*mapping > most {
			break
		}
		f, err := os.Open("/proc/" + pid + "/maps")
		if errors.Is(err, os.ErrPermission) {
			count += mostMappings // it hides them
		}
		if err != nil {
			continue
		}
		for n := 1; n > 0; {
			n, _ = f.Read(buffer)
			count += int64(bytes.Count(buffer[:max(n, 0)], []byte{'\n'}))
		}
		_ = f.Close()
	}
	return count * mapping
}

// mostWatches are files that all processes together may have watched by epoll. The kernel counts them for all processes
// of a user: without a limit here the run's own would get none, and the end of the sandbox would take long.
const mostWatches = 200_000

// watches looks how many files could be watched: those that a process has open, by each epoll that it has.
func watches() error {
	total := 0
	for _, pid := range processes() {
		folder := "/proc/" + pid + "/fd"
		dir, err := os.Open(folder)
		if err != nil {
			var hidden unix.Stat_t // its size is their number
			if unix.Stat(folder, &hidden) == nil {
				total += int(hidden.Size * hidden.Size / 4)
			}
			continue
		}
		names, _ := dir.Readdirnames(-1)
		_ = dir.Close()
		polls := 0
		for _, name := range names {
			if target, _ := os.Readlink(folder + "/" + name); target == "anon_inode:[eventpoll]" {
				polls++
			}
		}
		total += polls * len(names)
	}
	if total > mostWatches {
		return fmt.Errorf("%d files watched by epoll, %d are allowed", total, mostWatches)
	}
	return nil
}

// Numbers of sock_diag(7) and of sockets' memory that package unix does not have.
const (
	diagByFamily  = 20
	showUnixAll   = 1<<2 | 1<<4 | 1<<5 // the peer, what is not read yet, memory
	unixPeer      = 2
	unixQueue     = 4
	unixMemory    = 5
	inetMemory    = 7
	unixMessage   = 16 // bytes before attributes
	inetMessage   = 72
	memoryRead    = 0 // which number of memory
	memoryWritten = 2
	memoryQueued  = 5
	// smallest is what a message of a byte takes; what a socket holds at most when nobody has changed its buffers.
	smallest   = 1024
	mostOrphan = 8 << 20
)

// ofSockets are the bytes that the kernel holds for sockets. They are charged to no process.
func (a *audit) ofSockets() (total int64) {
	if a.sockets < 0 {
		return 0
	}
	request := make([]byte, 24)
	request[0] = unix.AF_UNIX
	binary.NativeEndian.PutUint32(request[4:], ^uint32(0))
	binary.NativeEndian.PutUint32(request[12:], showUnixAll)
	total += a.list(request, unixMessage)
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		for _, protocol := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
			request := make([]byte, 56)
			request[0], request[1], request[2] = family, protocol, 1<<(inetMemory-1)
			binary.NativeEndian.PutUint32(request[4:], ^uint32(0))
			total += a.list(request, inetMessage)
		}
	}
	return total
}

// list sums up what the sockets of one kind hold.
func (a *audit) list(request []byte, attributes int) (total int64) {
	const header = unix.SizeofNlMsghdr
	message := make([]byte, header+len(request))
	binary.NativeEndian.PutUint32(message, uint32(len(message))) //nolint:gosec // a few bytes
	binary.NativeEndian.PutUint16(message[4:], diagByFamily)
	binary.NativeEndian.PutUint16(message[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	copy(message[header:], request)
	if err := unix.Sendto(a.sockets, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0
	}
	for buffer := make([]byte, 64<<10); ; {
		n, _, err := unix.Recvfrom(a.sockets, buffer, 0)
		if err != nil {
			return total
		}
		for rest := buffer[:n]; len(rest) >= header; {
			size := int(binary.NativeEndian.Uint32(rest))
			kind := binary.NativeEndian.Uint16(rest[4:])
			if kind == unix.NLMSG_DONE || kind == unix.NLMSG_ERROR || size < header || size > len(rest) {
				return total
			}
			if size >= header+attributes {
				total += held(rest[header+attributes:size], attributes == unixMessage)
			}
			rest = rest[min(len(rest), (size+3)&^3):]
		}
	}
}

// held is what one socket holds.
func held(attributes []byte, local bool) int64 {
	var memory, queue int64
	peer := false
	for len(attributes) >= 4 {
		size, kind := int(binary.NativeEndian.Uint16(attributes)), binary.NativeEndian.Uint16(attributes[2:])
		if size < 4 || size > len(attributes) {
			break
		}
		value := attributes[4:size]
		number := func(at int) int64 {
			if len(value) < 4*at+4 {
				return 0
			}
			return int64(binary.NativeEndian.Uint32(value[4*at:]))
		}
		switch {
		case local && kind == unixPeer:
			peer = number(0) != 0 // 0: it is closed
		case local && kind == unixQueue:
			queue = number(0)
		case local && kind == unixMemory, !local && kind == inetMemory:
			memory = number(memoryRead) + max(number(memoryWritten), number(memoryQueued))
		}
		attributes = attributes[min(len(attributes), (size+3)&^3):]
	}
	if local && !peer { // what a socket that is closed has sent is charged to that, which is not listed any more
		memory += min(queue*smallest, mostOrphan)
	}
	return memory
}

// written looks at the folders in which the program writes.
func (a *audit) written() error {
	w := written{limits: a.job.Limits}
	for _, folder := range a.job.Writable {
		if err := w.look(unix.AT_FDCWD, folder, 0); err != nil {
			return err
		}
	}
	return nil
}

type written struct {
	limits       Limits
	bytes, files int64
}

// look adds up what is in a folder. A program may change it meanwhile.
func (w *written) look(parent int, name string, depth int) error {
	const how = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(parent, name, how, 0)
	if errors.Is(err, unix.EACCES) { // the program has taken the rights away
		var was unix.Stat_t
		if unix.Fstatat(parent, name, &was, unix.AT_SYMLINK_NOFOLLOW) != nil || was.Mode&unix.S_IFMT != unix.S_IFDIR {
			return nil
		}
		_ = unix.Fchmodat(parent, name, 0o700, 0)
		fd, err = unix.Openat(parent, name, how, 0)
		_ = unix.Fchmodat(parent, name, was.Mode&0o7777, 0)
	}
	if err != nil {
		return nil
	}
	dir := os.NewFile(uintptr(fd), name) //nolint:gosec // a descriptor
	defer func() { _ = dir.Close() }()
	if depth > Deepest {
		return fmt.Errorf("folders are nested more than %d deep", Deepest)
	}
	for {
		names, err := dir.Readdirnames(1024)
		for _, name := range names {
			var found unix.Stat_t
			if unix.Fstatat(fd, name, &found, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			w.files++
			w.bytes += found.Blocks * 512
			if found.Mode&unix.S_IFMT == unix.S_IFDIR {
				if err := w.look(fd, name, depth+1); err != nil {
					return err
				}
			}
		}
		switch {
		case w.limits.Files > 0 && w.files > int64(w.limits.Files):
			return fmt.Errorf("more than %d files in its folders", w.limits.Files)
		case w.limits.Disk > 0 && w.bytes > w.limits.Disk:
			return fmt.Errorf("%d MiB in its folders, %d are allowed", w.bytes>>20, w.limits.Disk>>20)
		case err != nil || errors.Is(err, io.EOF):
			return nil
		}
	}
}

// full explains why nothing more may be written on the disk of the program's folders, which others need too.
func (j Job) full() string {
	for _, folder := range j.Writable {
		var disk unix.Statfs_t
		if j.Limits.Free > 0 && unix.Statfs(folder, &disk) == nil {
			if free := int64(disk.Bavail) * disk.Bsize; free < j.Limits.Free { //nolint:gosec // far smaller
				return fmt.Sprintf("the disk of %s has %d MiB left, and programs must leave %d", filepath.Base(folder),
					free>>20, j.Limits.Free>>20)
			}
		}
	}
	return ""
}
