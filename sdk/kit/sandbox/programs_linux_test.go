package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/recipe-rl/recipe/sdk/kit/sandbox/inside"
)

// Variables by which a hostile program, which is this test's own binary, learns what to attack.
const (
	playsVar  = "SANDBOX_TEST_PLAYS"
	secretVar = "SANDBOX_TEST_SECRET" // a file outside
	pidVar    = "SANDBOX_TEST_PID"    // a process outside
	portVar   = "SANDBOX_TEST_PORT"   // a server outside that is not the gateway
	abstract  = "SANDBOX_TEST_NAME"   // an abstract socket outside
)

// escaped is what a hostile program prints that has got out, and its exit code.
const escaped = "ESCAPED"

// play is a hostile program. It returns how it got out; empty: it did not.
type play func() string

// out makes a play of what must fail.
func out(what string, attempt func() error) play {
	return func() string {
		if err := attempt(); err != nil {
			fmt.Println(what+":", err)
			return ""
		}
		return what
	}
}

func all(plays ...play) play {
	return func() string {
		var got []string
		for _, p := range plays {
			if how := p(); how != "" {
				got = append(got, how)
			}
		}
		return strings.Join(got, "; ")
	}
}

func call(what string, number uintptr, args ...uintptr) play {
	return out(what, func() error {
		args = append(args, 0, 0, 0, 0, 0)
		if _, _, errno := unix.Syscall6(number, args[0], args[1], args[2], args[3], args[4], 0); errno != 0 {
			return errno
		}
		return nil
	})
}

func write(path string) play {
	return out("writes "+path, func() error { return os.WriteFile(path, []byte("changed"), 0o600) })
}

func read(path string) play {
	return out("reads "+path, func() error { _, err := os.ReadFile(path); return err })
}

func dial(network, address string) play {
	return out("connects to "+network+" "+address, func() error {
		conn, err := net.DialTimeout(network, address, 2*time.Second)
		if err == nil {
			_, err = conn.Write([]byte("x"))
			_ = conn.Close()
		}
		return err
	})
}

func outsider() int {
	pid, err := strconv.Atoi(os.Getenv(pidVar))
	if err != nil {
		panic(err)
	}
	return pid
}

// plays are the hostile programs that must fail at once.
func plays() map[string]play {
	secret, pid := os.Getenv(secretVar), 0
	if os.Getenv(pidVar) != "" {
		pid = outsider()
	}
	null := uintptr(0)
	word := uintptr(unsafe.Pointer(&[]byte("none\x00")[0])) //nolint:gosec // a call of the system
	return map[string]play{
		"reads files of others": all(read(secret), read(filepath.Join("/proc/1/root", secret)),
			read(filepath.Join("/proc/self/cwd/../../../../..", secret)), read("/etc/shadow"),
			out("lists the folder of all rollouts", func() error {
				_, err := os.ReadDir(filepath.Dir(filepath.Dir(secret)))
				return err
			})),
		"reads other processes": all(read("/proc/1/environ"), read("/proc/1/mem"), read("/proc/1/maps"),
			read("/proc/1/fd/3"), read("/proc/1/root/etc/hosts"), read("/proc/1/cwd/etc/hosts"), seesOthers),
		"attacks a process outside": all(
			out("kills it", func() error { return unix.Kill(pid, unix.SIGKILL) }),
			out("traces it", func() error { return unix.PtraceAttach(pid) }),
			read(fmt.Sprintf("/proc/%d/environ", pid)),
			out("finds it", func() error { _, err := unix.Getpgid(pid); return err })),
		"attacks the first process": all(out("traces it", func() error { return unix.PtraceAttach(1) }),
			out("ends it", func() error {
				for number := range 65 {
					_ = unix.Kill(1, syscall.Signal(number))
				}
				time.Sleep(300 * time.Millisecond)
				return errors.New("this program still runs")
			})),
		"connects elsewhere": all(dial("tcp", "127.0.0.1:"+os.Getenv(portVar)), dial("tcp", "192.0.2.1:80"),
			dial("udp", "192.0.2.1:53"), dial("tcp", "169.254.169.254:80"), dial("unix", "@"+os.Getenv(abstract)),
			dial("unix", "/run/dbus/system_bus_socket"), call("opens a vsock", unix.SYS_SOCKET, unix.AF_VSOCK, 1, 0),
			call("opens a raw socket", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_RAW, 1),
			call("opens a packet socket", unix.SYS_SOCKET, unix.AF_PACKET, unix.SOCK_RAW, 0)),
		"writes outside": all(write("/usr/changed"), write("/etc/passwd"), write("/changed"), write("/dev/changed"),
			write("/run/recipe/changed"), write("/proc/sys/kernel/core_pattern"), write("/proc/sysrq-trigger"), write(secret),
			write(insideDir+"/changed"), write("/proc/self/exe"), linkedOut),
		"makes links out": all(
			out("links to a file of the system", func() error { return os.Link("/usr/bin/env", "env") }),
			out("links to a mount", func() error { return os.Link("/etc/passwd", "passwd") }),
			out("makes a device", func() error { return unix.Mknod("disk", unix.S_IFBLK|0o600, 0xfe00) })),
		"changes mounts and namespaces": all(
			out("mounts", func() error { return unix.Mount("none", "/tmp", "tmpfs", 0, "") }),
			out("unmounts", func() error { return unix.Unmount("/usr", unix.MNT_DETACH) }),
			out("remounts", func() error { return unix.Mount("none", "/usr", "", unix.MS_REMOUNT|unix.MS_BIND, "") }),
			out("makes a user namespace", func() error { return unix.Unshare(unix.CLONE_NEWUSER) }),
			out("makes a mount namespace", func() error { return unix.Unshare(unix.CLONE_NEWNS) }),
			out("clones into a user namespace", func() error {
				cmd := exec.Command("/bin/true")
				cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
				return cmd.Run()
			}),
			out("changes its root", func() error { return unix.Chroot("/tmp") }),
			call("opens a tree", unix.SYS_OPEN_TREE, 0, word, 0), call("opens a file system", unix.SYS_FSOPEN, word, 0)),
		"uses what no namespace separates": all(call("adds a key", unix.SYS_ADD_KEY, word, word, word, 1, ^uintptr(2)),
			call("reads the keyring", unix.SYS_KEYCTL, 0, ^uintptr(3), 1), call("loads a program", unix.SYS_BPF, 0, null, 0),
			call("makes a ring", unix.SYS_IO_URING_SETUP, 1, word), call("profiles", unix.SYS_PERF_EVENT_OPEN, null, 0, 0)),
		"takes memory that is not counted": all(call("SysV shared memory", unix.SYS_SHMGET, 0, 1<<20, 0o1600),
			call("SysV semaphores", unix.SYS_SEMGET, 0, 1, 0o1600), call("SysV messages", unix.SYS_MSGGET, 0, 0o1600),
			call("POSIX messages", unix.SYS_MQ_OPEN, word, 0o102, 0o600, null), call("memfd", unix.SYS_MEMFD_CREATE, word, 0),
			out("access lists of files in memory", func() error {
				return errors.Join(os.WriteFile("/tmp/list", nil, 0o600), unix.Setxattr("/tmp/list", "user.x", []byte("x"), 0))
			}),
			call("netlink between programs", unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_USERSOCK),
			call("SCTP", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP)),
		"uses inherited descriptors": inherited,
		"gains rights":               gains,
	}
}

// seesOthers looks for processes that are not of this sandbox.
func seesOthers() string {
	found, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range found {
		command, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
		if !bytes.Contains(command, []byte("/run/recipe/sandbox")) && !bytes.HasPrefix(command, []byte(playInside)) {
			return fmt.Sprintf("sees %s %q", folder, command)
		}
	}
	return ""
}

// linkedOut writes through a link.
func linkedOut() string {
	if err := os.Symlink(os.Getenv(secretVar), "answer.txt"); err != nil {
		return ""
	}
	return write("answer.txt")()
}

// inherited looks for descriptors beside the standard ones, which are pipes and /dev/null.
func inherited() string {
	for fd := range 1024 {
		name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err != nil || strings.HasPrefix(name, "pipe:") && fd < 3 || strings.HasPrefix(name, "anon_inode:") ||
			name == os.DevNull || strings.HasPrefix(name, "/proc/self") {
			continue
		}
		return fmt.Sprintf("has descriptor %d, %s", fd, name)
	}
	return ""
}

// gains looks for rights that this program has, or may gain.
func gains() string {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err.Error()
	}
	for _, want := range []string{"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000",
		"NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !bytes.Contains(status, []byte(want)) {
			return "has no " + want
		}
	}
	if os.Getuid() == 0 {
		return "is root"
	}
	return ""
}

// bombs are the hostile programs that a limit ends, or bounds.
func bombs() map[string]func() {
	forever := func() { time.Sleep(time.Hour) }
	self := func(name string) *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), playsVar+"="+name)
		return cmd
	}
	return map[string]func(){
		"forks": func() {
			for {
				_ = self("forks").Start()
			}
		},
		"threads": func() {
			for {
				go func() { _ = unix.Nanosleep(&unix.Timespec{Sec: 3600}, nil) }() // each holds a thread
				time.Sleep(time.Millisecond)
			}
		},
		"takes memory":    func() { take(1 << 40); forever() },
		"takes a little":  func() { take(100 << 20); forever() },
		"shares the work": func() { forMany(func() { _ = self("takes a little").Start() }); forever() },
		"maps shared memory": func() {
			for {
				m, err := unix.Mmap(-1, 0, 32<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
				if err != nil {
					forever()
				}
				touch(m)
			}
		},
		"maps without use": func() { // each page of the table is filled by one byte that is read
			for {
				m, err := unix.Mmap(-1, 0, 8<<30, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
				if err != nil {
					forever()
				}
				_ = unix.Madvise(m, unix.MADV_NOHUGEPAGE)
				for i := 0; i < len(m); i += 2 << 20 {
					seen += m[i]
				}
			}
		},
		"divides its memory": func() { // into mappings that differ from their neighbors
			for range 10 {
				_ = self("divides").Start()
			}
			forever()
		},
		"divides": func() {
			for i := range 65000 {
				_, _ = unix.Mmap(-1, 0, 4096, unix.PROT_READ*(i%2), unix.MAP_PRIVATE|unix.MAP_ANON)
			}
			forever()
		},
		"fills sockets":   func() { fillSockets(false); forever() },
		"orphans sockets": func() { fillSockets(true); forever() },
		"watches files": func() {
			for range 500 {
				if _, err := unix.EpollCreate1(0); err != nil {
					break
				}
				_, _ = unix.Eventfd(0, 0)
			}
			forever()
		},
		"makes empty files": func() {
			for i := 0; ; i++ {
				if f, err := os.Create(fmt.Sprintf("/tmp/%d", i)); err == nil {
					_ = f.Close()
				}
			}
		},
		"nests folders": func() { fmt.Println(nest(200)); forever() },
		"makes many files": func() {
			for i := range 1100 {
				if err := os.WriteFile(strconv.Itoa(i), nil, 0o600); err != nil {
					panic(err)
				}
			}
			forever()
		},
		"fills its folder": func() { // where nobody else may look
			if err := os.Mkdir("closed", 0o300); err != nil {
				panic(err)
			}
			for i := range 40 {
				fill(fmt.Sprintf("closed/%d", i))
			}
			forever()
		},
		"fills /tmp":      func() { fill("/tmp/big"); fill("/tmp/big2"); os.Exit(7) },
		"fills /dev/shm":  func() { fill("/dev/shm/big"); os.Exit(7) },
		"writes one file": func() { signal.Ignore(syscall.SIGXFSZ); fill("big"); os.Exit(7) },
		"burns": func() {
			for {
				_ = 0
			}
		}, //nolint:revive // on purpose
		"will not end": func() { signal.Ignore(syscall.SIGTERM); fmt.Println("begun"); forever() },
		"floods": func() {
			for {
				fmt.Println(strings.Repeat("x", 1000))
			}
		},
		"kills all": func() { _ = unix.Kill(-1, unix.SIGKILL); forever() },
		"daemon": func() {
			cmd := exec.Command("/usr/bin/env", "-i", "setsid", "sh", "-c",
				"trap '' TERM HUP INT; (setsid sleep 86399.25 &) ; exec sleep 86399.25")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := cmd.Start(); err != nil {
				panic(err)
			}
			time.Sleep(300 * time.Millisecond)
			fmt.Println("left")
		},
		"daemon, waits": func() { bombs()["daemon"](); forever() },
		"leaves links": func() {
			for _, err := range []error{os.Symlink(os.Getenv(secretVar), "answer.txt"), os.Symlink("../../../..", "up"),
				os.Symlink(workInside+"/own", "inner"), os.WriteFile("own", []byte("own"), 0o600), unix.Mkfifo("pipe", 0o600),
				os.Chmod("own", os.ModeSetuid|0o700), os.Mkdir("closed", 0o700), os.Symlink("/usr/bin/env", "closed/env"),
				os.Symlink("/usr/../"+os.Getenv(secretVar), "closed/dots"), os.Chmod("closed", 0), os.Mkdir("fixed", 0o700),
				os.Symlink(os.Getenv(secretVar), "fixed/link"), os.Chmod("fixed", 0o500), nest(inside.Deepest + 2)} {
				if err != nil {
					panic(err)
				}
			}
		},
		"asks the gateway": func() {
			conn, err := net.Dial("tcp", os.Getenv("SANDBOX_TEST_GATEWAY"))
			if err != nil {
				panic(err)
			}
			answer, err := io.ReadAll(conn)
			fmt.Println(string(answer), err, os.Getenv("PWD"))
		},
	}
}

// nest makes folders in folders.
func nest(levels int) error {
	var path strings.Builder
	for range levels {
		path.WriteString("d/")
	}
	return os.MkdirAll(path.String(), 0o700)
}

// fillSockets writes what nobody reads, as much as fits; with closed, the writing side is closed then.
func fillSockets(closed bool) {
	for range 400 {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			panic(err)
		}
		_ = unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<20)
		for err == nil {
			_, err = unix.Write(pair[0], []byte("x"))
		}
		if closed {
			_ = unix.Close(pair[0])
		}
	}
}

func forMany(do func()) {
	for range 40 {
		do()
	}
}

func touch(m []byte) {
	for i := 0; i < len(m); i += 4096 {
		m[i] = 1
	}
}

var (
	held [][]byte
	seen byte
)

func take(most int) {
	for n := 0; n < most; n += 16 << 20 {
		m := make([]byte, 16<<20)
		touch(m)
		held = append(held, m)
	}
}

func fill(path string) {
	f, err := os.Create(path)
	for written := 0; err == nil; {
		var n int
		n, err = f.Write(make([]byte, 1<<20))
		if written += n; written > 1<<30 {
			fmt.Println(escaped, path)
			return
		}
	}
	fmt.Println(err)
}

// playOne is a hostile program, if this process was started as one.
func playOne() {
	name, ok := os.LookupEnv(playsVar)
	if !ok {
		return
	}
	if p, ok := plays()[name]; ok {
		if how := p(); how != "" {
			fmt.Println(escaped, how)
			os.Exit(66)
		}
		os.Exit(0)
	}
	bomb, ok := bombs()[name]
	if !ok {
		panic("no program " + name)
	}
	bomb()
	os.Exit(0)
}
