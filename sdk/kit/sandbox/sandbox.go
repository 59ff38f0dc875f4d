// Package sandbox runs programs that a model steers, without Docker and without root: they see the system's folders and
// one folder of their own, reach one address, and have limits. docs/sandboxes.md has what holds and what does not.
//
// A program that makes sandboxes begins with inside.Main(): it is the first process in each of them.
package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk/kit/sandbox/inside"
)

// Kinds of sandboxes, as a recipe names them.
const (
	Auto       = "auto"       // the best that works here; an error where none does
	Bubblewrap = "bubblewrap" //
	None       = "none"       // no sandbox
)

// Remedy is what a person does where no sandbox can be made.
const Remedy = "install bubblewrap 0.8 or newer (apt install bubblewrap, dnf install bubblewrap) on the machine of " +
	"the block, and in a container allow it user namespaces and a /proc of its own; or write " +
	"sandbox { kind = \"none\" }, " +
	"which runs what a model does with all your rights"

// Sandbox is a way of making sandboxes that works on this machine.
type Sandbox struct {
	program string // bwrap
	self    string // recipe's program, which is the first process inside
}

// Mount is a file or folder of this machine in a sandbox.
type Mount struct {
	Host, Inside string // whole paths
	Writable     bool
}

// Spec describes one sandbox.
type Spec struct {
	Argv    []string // the program, a whole path, and its arguments
	Dir     string   // where it starts, a path of the sandbox
	Mounts  []Mount  // beside the system's folders
	Files   string   // a folder for /etc/hosts and the like, made by WriteFiles
	Network bool     // the network of this machine; else only Gateway
	Gateway Gateway  //
	Limits  inside.Limits
	Tmp     int64 // bytes of /tmp, and of /dev/shm
	Timeout time.Duration
	Grace   time.Duration
	Output  int64
	Check   bool // only look whether the program could be started
}

// Command is how a sandbox is started: its standard output and error become the program's, descriptor 3 gets a
// Report, and its environment is the program's. When the process ends, by whatever, everything in the sandbox ends.
func (s *Sandbox) Command(spec Spec) ([]string, error) {
	if len(spec.Argv) == 0 || !filepath.IsAbs(spec.Argv[0]) {
		return nil, fmt.Errorf("the program of a sandbox is %.80q; expected a whole path", spec.Argv)
	}
	job := inside.Job{Dir: spec.Dir, Limits: spec.Limits, Timeout: spec.Timeout, Grace: spec.Grace, Output: spec.Output,
		Check: spec.Check, Root: os.Getuid() == 0, Alone: !spec.Network}
	// Where memory is short, the kernel ends what has this score first. It goes to all that is started.
	argv := []string{"/bin/sh", "-c", `echo 1000 2>/dev/null >/proc/self/oom_score_adj; exec "$@"`, "sh", s.program}
	argv = append(argv, options(spec)...)
	mounts := slices.Clone(spec.Mounts)
	mounts = append(mounts, Mount{Host: s.self, Inside: inside.Program})
	if spec.Gateway.socket != "" && !spec.Network {
		job.Port, job.Socket = spec.Gateway.port, gatewaySocket
		mounts = append(mounts, Mount{Host: spec.Gateway.socket, Inside: gatewaySocket})
	}
	if spec.Files != "" {
		for _, name := range etcFiles {
			if name == "hosts" && spec.Network {
				continue
			}
			mounts = append(mounts, Mount{Host: filepath.Join(spec.Files, name), Inside: "/etc/" + name})
		}
	}
	for _, m := range mounts {
		how := "--ro-bind"
		if m.Writable {
			job.Writable = append(job.Writable, m.Inside)
			how = "--bind"
		}
		if target, err := os.Readlink(m.Host); err == nil && m.Host == m.Inside {
			argv = append(argv, "--symlink", target, m.Inside) // what it leads to has a mount of its own
			continue
		}
		argv = append(argv, how, m.Host, m.Inside)
	}
	text, err := json.Marshal(job)
	if err != nil {
		return nil, fmt.Errorf("encode the job of a sandbox: %w", err)
	}
	argv = append(argv, "--remount-ro", "/", "--chdir", "/", "--", inside.Program, string(text))
	return append(argv, spec.Argv...), nil
}

// options are bubblewrap's options for namespaces and for what every sandbox has.
func options(spec Spec) []string {
	argv := []string{"--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
		"--unshare-cgroup-try", "--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL",
		"--uid", strconv.Itoa(insideID(os.Getuid())), "--gid", strconv.Itoa(insideID(os.Getgid())),
		"--hostname", "sandbox"}
	if !spec.Network {
		argv = append(argv, "--unshare-net")
	}
	argv = append(argv, system(spec.Network)...)
	size := strconv.FormatInt(max(spec.Tmp, 1<<20), 10)
	// /proc is read-only: root outside is the owner of /proc/sys, whatever its id inside.
	return append(argv, "--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev", "--perms", "1777", "--size", size,
		"--tmpfs", "/dev/shm", "--remount-ro", "/dev", "--perms", "1777", "--size", size, "--tmpfs", "/tmp")
}

// Try are arguments of bwrap that make a sandbox in which nothing happens: where it fails, Probe does.
func Try() []string { return append(options(Spec{}), "--remount-ro", "/", "--", "/bin/sh", "-c", ":") }

// insideID is the id of a user or group in a sandbox: root is none there.
func insideID(id int) int {
	if id == 0 {
		return 1000
	}
	return id
}

// gatewaySocket is where the way to the gateway is in a sandbox.
const gatewaySocket = "/run/recipe/gateway"

// system are the folders of this machine that every sandbox has, read-only.
func system(network bool) []string {
	var argv []string
	for _, folder := range SystemFolders() {
		if target, err := os.Readlink(folder); err == nil { // /lib -> usr/lib
			argv = append(argv, "--symlink", target, folder)
		} else if _, err := os.Stat(folder); err == nil {
			argv = append(argv, "--ro-bind", folder, folder)
		}
	}
	etc := []string{"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "timezone", "mime.types",
		"protocols", "services", "os-release", "debian_version", "bash.bashrc", "profile", "inputrc", "terminfo",
		"ssl/certs", "ssl/openssl.cnf", "ca-certificates", "ca-certificates.conf", "pki/tls/certs", "pki/tls/cert.pem",
		"pki/tls/openssl.cnf", "pki/ca-trust", "crypto-policies", "fonts", "magic", "locale.alias", "locale.conf",
		"gai.conf", "python3", "perl", "java", "gitconfig"}
	if network {
		etc = append(etc, "resolv.conf", "hosts", "host.conf")
	}
	for _, name := range etc {
		argv = append(argv, "--ro-bind-try", "/etc/"+name, "/etc/"+name)
	}
	return argv
}

// SystemFolders are visible in every sandbox.
func SystemFolders() []string {
	return []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"}
}

// etcFiles are the files of WriteFiles.
var etcFiles = []string{"passwd", "group", "hosts", "nsswitch.conf"}

// WriteFiles writes the files of /etc that differ in a sandbox: nothing there names the users of this machine.
func WriteFiles(folder string, hosts ...string) error {
	uid, gid := insideID(os.Getuid()), insideID(os.Getgid())
	texts := map[string]string{
		"passwd": fmt.Sprintf("agent:x:%d:%d::/tmp:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n", uid, gid),
		"group":  fmt.Sprintf("agent:x:%d:\nnogroup:x:65534:\n", gid),
		"hosts": strings.TrimSpace("127.0.0.1 localhost sandbox "+strings.Join(hosts, " ")) +
			"\n::1 localhost\n",
		"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("write the files of a sandbox: %w", err)
	}
	for name, text := range texts {
		if err := regular.WriteFile(filepath.Join(folder, name), []byte(text)); err != nil {
			return fmt.Errorf("write the files of a sandbox: %w", err)
		}
	}
	return nil
}

// ErrNone is in the chain of errors of Probe: no sandbox can be made on this machine.
var ErrNone = errors.New("no sandbox can be made on this machine")

// Probe finds a way of making sandboxes that works here. It makes one to see that it does.
func Probe(ctx context.Context, lookPath func(string) (string, error)) (*Sandbox, error) {
	program, err := lookPath("bwrap")
	if err != nil {
		return nil, fmt.Errorf("%w: bubblewrap (bwrap) is not installed", ErrNone)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("%w: find the program of recipe: %w", ErrNone, err)
	}
	s := &Sandbox{program: program, self: self}
	report, err := s.Run(ctx, Spec{Argv: []string{inside.Program}, Dir: "/", Check: true})
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: bubblewrap starts nothing: %w", ErrNone, err)
	case report.Failed != "":
		return nil, fmt.Errorf("%w: %s", ErrNone, report.Failed)
	}
	return s, nil
}
