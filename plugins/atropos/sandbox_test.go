package atropos

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// judged runs functions through recipes/environments/sandbox.py: f(1) and f(2) should be 2 and 3.
func judged(t *testing.T, kind string, programs []string, environ ...string) ([]string, error) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	const script = `
import asyncio, json, os, sys
from sandbox import Sandbox

os.environ["PATH"] = os.environ.get("SANDBOX_PATH", os.environ["PATH"])

async def main():
    sandbox = Sandbox(sys.argv[1])
    await sandbox.probe()
    return [await sandbox.judge(p, [1, 2], lambda x: x + 1, 1, 256) for p in json.load(sys.stdin)]

print(json.dumps(asyncio.run(main())))
`
	given, err := json.Marshal(programs)
	if err != nil {
		t.Fatal(err)
	}
	environments, err := filepath.Abs("../../recipes/environments")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", script, kind)
	cmd.Env = append(append(os.Environ(), "PYTHONPATH="+environments, "PYTHONDONTWRITEBYTECODE=1"), environ...)
	cmd.Stdin = strings.NewReader(string(given))
	var diag strings.Builder
	cmd.Stderr = &diag
	out, err := cmd.Output()
	if err != nil {
		return nil, &judgeError{diag.String()}
	}
	var outcomes []string
	if err := json.Unmarshal(out, &outcomes); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	return outcomes, nil
}

type judgeError struct{ said string }

func (e *judgeError) Error() string { return e.said }

// needsBubblewrap skips a test where no sandbox can be made.
func needsBubblewrap(t *testing.T) {
	t.Helper()
	if _, err := judged(t, "bubblewrap", []string{}); err != nil {
		lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
		t.Skip("no sandbox on this machine:", lines[len(lines)-1])
	}
}

// Functions that try to escape the sandbox. Each would be judged "right" if it succeeded.
func TestHostilePrograms(t *testing.T) {
	t.Parallel()
	needsBubblewrap(t)
	home := t.TempDir()
	secret := filepath.Join(home, ".ssh", "id_rsa")
	if err := os.MkdirAll(filepath.Dir(secret), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, secret, "secret")
	listening := listenAnywhere(t)
	outside := filepath.Join(home, "written")
	for name, c := range map[string]struct{ program, want string }{
		"honest":      {"def f(x):\n    return x + 1", "right"},
		"wrong":       {"def f(x):\n    return x", "wrong"},
		"no Python":   {"def f(x):\n    return while", "failed"},
		"no f":        {"x = 1", "failed"},
		"reads a key": {"def f(x):\n    return len(open('" + secret + "').read()) and x + 1", "failed"},
		"looks for the home folder": {"import os\ndef f(x):\n    return x + 1 if os.path.exists('" + home + "') else 0",
			"wrong"},
		"reads /etc/passwd": {"def f(x):\n    return len(open('/etc/passwd').read()) and x + 1", "failed"},
		"reads the environment": {"import os\ndef f(x):\n    return x + 1 if 'SECRET' in os.environ or 'HOME' in " +
			"os.environ else 0", "wrong"},
		"looks at other processes": {"import os\ndef f(x):\n    return x + 1 if any(n.isdigit() for n in " +
			"os.listdir('/proc')) else 0", "failed"},
		"is told by its parent": {"import os\ndef f(x):\n    return os.getppid() and x + 1", "right"},
		"kills its neighbors":   {"import os\ndef f(x):\n    os.kill(-1, 9)\n    return x + 1", "failed or endless"},
		"opens a connection": {"import socket\ndef f(x):\n    socket.create_connection(('127.0.0.1', " + listening +
			"), 2)\n    return x + 1", "failed"},
		"asks a name server": {"import socket\ndef f(x):\n    socket.getaddrinfo('example.org', 80)\n    " +
			"return x + 1", "failed"},
		"forks": {"import os\ndef f(x):\n    os.fork()\n    return x + 1", "failed"},
		"is a fork bomb": {"import os\ndef f(x):\n    while True:\n        try: os.fork()\n        except " +
			"OSError: return x", "wrong"},
		"starts a thread": {"import threading\ndef f(x):\n    threading.Thread(target=print).start()\n    " +
			"return x + 1", "failed"},
		"starts a program": {"import subprocess\ndef f(x):\n    subprocess.run(['true'])\n    return x + 1",
			"failed"},
		"writes outside": {"def f(x):\n    open('" + outside + "', 'w').write('x')\n    return x + 1", "failed"},
		"writes into the interpreter": {"import os\ndef f(x):\n    open(os.__file__, 'a').write('x')\n    return x + 1",
			"failed"},
		"fills the disk": {"def f(x):\n    with open('big', 'w') as o: o.write('x' * 10**6)\n    return x + 1",
			"failed or endless"},
		"takes memory":               {"def f(x):\n    return len([0] * 10**10)", "failed"},
		"does not end":               {"def f(x):\n    while True: pass", "endless"},
		"sleeps":                     {"import time\ndef f(x):\n    time.sleep(10**6)", "endless"},
		"exits":                      {"import sys\ndef f(x):\n    sys.exit(0)", "failed"},
		"exits at once":              {"import os\ndef f(x):\n    os._exit(0)", "failed"},
		"prints a verdict":           {"def f(x):\n    print('right'); print('[2, 3]'); return 0", "wrong"},
		"prints a verdict and exits": {"import os\ndef f(x):\n    print('right', flush=True); os._exit(0)", "failed"},
		"finds the pipe": {"import os\ndef f(x):\n    [os.write(fd, b'\"right\"') for fd in range(64) if fd > " +
			"2 and ok(fd)]\n    os._exit(0)\ndef ok(fd):\n    try: os.fstat(fd); return True\n    except OSError: return False",
			"failed"},
		"floods the pipe": {"import gc, io\ndef f(x):\n    [o.write('9' * 10**7) for o in gc.get_objects() if " +
			"isinstance(o, io.TextIOWrapper) and not o.closed and o.writable()]\n    return x + 1", "failed"},
		"is equal to everything": {"class E(int):\n    def __eq__(self, other): return True\n    __hash__ = None\ndef " +
			"f(x):\n    return E(7)", "wrong"},
		"is nearly a number": {"def f(x):\n    return float(x + 1)", "wrong"},
		"patches the runner": {"import builtins, json\nbuiltins.all = lambda *a: True\njson.dumps = lambda *a, " +
			"**k: '[true, true]'\ndef f(x):\n    return x", "wrong"},
		"gives back too few": {"import json\njson.dumps = lambda *a, **k: '[2]'\ndef f(x):\n    return x + 1",
			"failed"},
		"gives back an enormous one": {"def f(x):\n    return 10**100000", "failed"},
		"takes shared memory of System V": {"import ctypes\ndef f(x):\n    return x + 1 if " +
			"ctypes.CDLL(None).shmget(0, ctypes.c_size_t(1 << 20), 0o1600) >= 0 else 0", "wrong"},
		"takes semaphores": {"import ctypes\ndef f(x):\n    return x + 1 if ctypes.CDLL(None).semget(0, 9, 0o1600) " +
			">= 0 else 0", "wrong"},
		"takes queues of messages": {"import ctypes\ndef f(x):\n    return x + 1 if ctypes.CDLL(None).msgget(0, " +
			"0o1600) >= 0 else 0", "wrong"},
		"takes POSIX queues": {"import ctypes\ndef f(x):\n    return x + 1 if ctypes.CDLL(None).mq_open(b'/q', 0o102, " +
			"0o600, None) >= 0 else 0", "wrong"},
		"takes anonymous files": {"import os\ndef f(x):\n    return os.memfd_create('m') and x + 1", "failed"},
		"takes names": {"import os\ndef f(x):\n    for at in ('/', '/tmp', '/dev', '/dev/shm', '.'):\n        try:\n" +
			"            os.symlink('a' * 4000, at + '/l%d' % x); return x + 1\n        except OSError: pass\n    return 0",
			"wrong"},
		"takes folders": {"import os\ndef f(x):\n    for at in ('/', '/tmp', '/dev', '/dev/shm', '.'):\n        try:\n" +
			"            os.mkdir(at + '/d%d' % x); return x + 1\n        except OSError: pass\n    return 0", "wrong"},
		"leaves the namespace": {"import ctypes\ndef f(x):\n    return x + 1 if " +
			"ctypes.CDLL(None).unshare(0x10000000) == 0 else 0", "wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := judged(t, "bubblewrap", []string{c.program}, "HOME="+home, "SECRET=1")
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(c.want, got[0]) {
				t.Errorf("%s, want %s:\n%s", got[0], c.want, c.program)
			}
			if _, err := os.Stat(outside); err == nil {
				t.Error("it has written outside of its folder")
			}
		})
	}
}

// Results are compared in the parent process, with a sandbox or without.
func TestVerdictsAreMadeInTheParent(t *testing.T) {
	t.Parallel()
	got, err := judged(t, "none", []string{
		"def f(x):\n    return x + 1",
		"def f(x):\n    print('right'); print('[2, 3]'); return 0",
		"class E(int):\n    def __eq__(self, other): return True\n    __hash__ = None\ndef f(x):\n    return E(7)",
		"import sys\ndef f(x):\n    sys.exit(0)",
	})
	if err != nil || strings.Join(got, " ") != "right wrong wrong failed" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestWithoutASandboxNothingRuns(t *testing.T) {
	t.Parallel()
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "bwrap"), []byte("#!/bin/sh\necho bwrap: No permissions to create new "+
		"namespace >&2\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	open := t.TempDir()
	if err := os.WriteFile(filepath.Join(open, "bwrap"), []byte("#!/bin/sh\nwhile [ \"$1\" != -I ]; do last=$1; shift; "+
		"done\nexec \"$last\" \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ path, want string }{
		"bwrap is missing":         {t.TempDir(), "not installed"},
		"bwrap has no rights":      {broken, "No permissions to create new namespace"},
		"bwrap keeps nothing away": {open, "saw a file outside"},
	} {
		_, err := judged(t, "bubblewrap", []string{"def f(x):\n    return x + 1"}, "SANDBOX_PATH="+c.path)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `sandbox = "none"`) {
			t.Errorf("%s: %v; want a refusal that says %q and what to do", name, err, c.want)
		}
	}
	if _, err := judged(t, "sandboxed", nil); err == nil || !strings.Contains(err.Error(), `want "bubblewrap" or "none"`) {
		t.Errorf("a sandbox that does not exist: %v", err)
	}
}

// listenAnywhere listens on loopback and returns the port.
func listenAnywhere(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
