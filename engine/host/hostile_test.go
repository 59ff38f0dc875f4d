package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// A record written by somebody else names a live process of this user with correct values, except for the mark, which
// it cannot know.
//
//docs:survival.md a record names processes or folders that are not the run's
func TestARecordCannotNameWhatIsSignaled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system does not tell another process's environment")
	}
	t.Parallel()
	for name, change := range map[string]func(*record){
		"a guessed mark": func(r *record) { r.Process.Mark = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" },
		"no mark":        func(r *record) { r.Process.Mark = "" },
		"before the handshake": func(r *record) {
			r.Process.Mark, r.Network, r.Address, r.Server = "guessed", "", "", nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			victim := sleeper(t, t.TempDir())
			recordOf(t, victim, dir, change)
			if _, err := Reattach(t.Context(), dir, nil); err == nil {
				t.Error("it was taken for the block's process")
			}
			if _, found := Probe(t.Context(), dir, nil); found {
				t.Error("it is shown as the block's process")
			}
			recordOf(t, victim, dir, change)
			if err := Sweep(t.Context(), dir, nil); err != nil {
				t.Error(err)
			}
			if !alive(victim) {
				t.Error("it was killed")
			}
		})
	}
}

// The leader of a session has ended and a record names it: the rest of the session is ended only if it carries the
// mark.
//
//docs:survival.md a record names processes or folders that are not the run's
func TestARecordCannotNameAnAbandonedSession(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system does not tell another process's environment")
	}
	t.Parallel()
	dir := t.TempDir()
	pid := filepath.Join(dir, "pid")
	p, err := Local{}.Start(t.Context(),
		Command{Argv: []string{"sh", "-c", "sleep 600 & echo $! > pid.new; mv pid.new pid"}, Env: os.Environ(),
			Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	left := readPID(t, pid)
	start, err := proc.StartOf(left)
	if err != nil {
		t.Fatal(err)
	}
	lie := p.Identity()
	lie.Mark = "guessed"
	if err := (Local{}).Sweep(t.Context(), lie, nil, nil); err != nil {
		t.Error(err)
	}
	if !proc.Same(left, start) {
		t.Error("a session was ended that does not carry the mark")
	}
	if err := (Local{}).Sweep(t.Context(), p.Identity(), nil, nil); err != nil {
		t.Error(err)
	}
	if proc.Same(left, start) {
		t.Error("what the process has left behind is still there")
	}
	p.Release()
}

func readPID(t *testing.T, path string) int {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pid := 0
	for _, c := range strings.TrimSpace(string(data)) {
		pid = 10*pid + int(c-'0')
	}
	return pid
}

//docs:survival.md a record names processes or folders that are not the run's
func TestARecordCannotNameWhatIsDeleted(t *testing.T) {
	root, err := private.Root(socketRoot)
	if err != nil {
		t.Fatal(err)
	}
	precious := func(t *testing.T, dir string) string {
		t.Helper()
		path := filepath.Join(dir, "precious")
		if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, prepare := range map[string]func(t *testing.T, r *record) string{
		"an absolute path": func(t *testing.T, r *record) string {
			dir := t.TempDir()
			r.Socket = dir
			return precious(t, dir)
		},
		"a way up": func(t *testing.T, r *record) string {
			dir := t.TempDir()
			rel, err := filepath.Rel(root, dir)
			if err != nil {
				t.Fatal(err)
			}
			r.Socket = rel
			return precious(t, dir)
		},
		"a folder that holds more than sockets": func(t *testing.T, r *record) string {
			dir, err := os.MkdirTemp(root, "plugin-dir")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			r.Socket = filepath.Base(dir)
			return precious(t, dir)
		},
		"a link": func(t *testing.T, r *record) string {
			dir := t.TempDir()
			link, err := os.MkdirTemp(root, "plugin-dir")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Remove(link) })
			if err := os.Remove(link); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(dir, link); err != nil {
				t.Fatal(err)
			}
			r.Socket = filepath.Base(link)
			return precious(t, dir)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := sleeper(t, t.TempDir())
			var kept string
			recordOf(t, p, dir, func(r *record) {
				kept = prepare(t, r)
				r.Process.Boot = "earlier" // the process has gone
			})
			if err := Sweep(t.Context(), dir, nil); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(kept); err != nil {
				t.Errorf("the record made %s go away", kept)
			}
		})
	}
}

func TestHostileRecordFiles(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(path string) error{
		"a link":   func(path string) error { return os.Symlink("/etc/hostname", path) },
		"a pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"a huge file": func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(path, 1<<40)
		},
		"of another user": func(path string) error {
			if os.Geteuid() != 0 {
				return errNotRoot
			}
			if err := os.WriteFile(path, []byte(`{"format": 2}`), 0o600); err != nil {
				return err
			}
			return os.Chown(path, 65534, 65534)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := put(filepath.Join(dir, RecordName)); errors.Is(err, errNotRoot) {
				t.Skip("only root can make a file of another user")
			} else if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if _, err := Reattach(ctx, dir, nil); err == nil || !strings.Contains(err.Error(), "refused") {
				t.Errorf("reattach: %v; want a refusal", err)
			}
			if err := Sweep(ctx, dir, nil); err == nil || !strings.Contains(err.Error(), "refused") {
				t.Errorf("sweep: %v; want a refusal", err)
			}
		})
	}
}

const errNotRoot = syscall.EPERM

func TestOutputIsNotWrittenThroughLinks(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"stdout", "stderr"} {
		dir, victim := t.TempDir(), filepath.Join(t.TempDir(), "precious")
		if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(victim, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		p, err := Local{}.Start(t.Context(), Command{Argv: []string{"echo", "overwritten"}, Env: os.Environ(),
			Dir: dir})
		if err == nil {
			<-p.Exited()
			p.Release()
			t.Errorf("%s: a process was started that writes through a link", name)
		}
		if data, err := os.ReadFile(victim); err != nil || string(data) != "precious" {
			t.Errorf("%s: the link's target holds %q, %v", name, data, err)
		}
	}
}

// A program that is larger than any, such as a sparse file on an empty disk, holds no command up.
func TestAProgramLargerThanAnyIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "recipe-plugin-x")
	if err := os.WriteFile(path, nil, 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Skipf("this file system has no sparse file of 1 TiB: %v", err)
	}
	for name, digest := range map[string]func(string) (string, error){"of a plugin": fileDigest, "trust": trust.OfFile} {
		ended := make(chan error, 1)
		go func() { _, err := digest(path); ended <- err }()
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), "has more than 4294967296 bytes") {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: it is read", name)
		}
	}
}
