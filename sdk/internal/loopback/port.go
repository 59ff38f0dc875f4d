package loopback

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	// Ports for servers are chosen below those that Linux (32768) and macOS (49152) give to connections and to listeners
	// that take any: such a one could come between.
	firstPort, lastPort = 15000, 32000
	// heldFor is how long a port is kept for a server to bind it. Some import for minutes before they do.
	heldFor = 15 * time.Minute
	tries   = 200
)

// FreePort is a port on loopback for a server that is about to be started. For a quarter of an hour no other process
// of
// this user gets it from FreePort: of two servers that start side by side, the second would not get its port, and who
// has started it would talk to the first.
func FreePort() (int, error) { return ports().free() }

// ports are held by locks on the bytes of one file, which end with the process.
var ports = sync.OnceValue(func() *table { return openFirst(tablePaths()) })

var errHeld = errors.New("other processes of this user hold those that were tried")

type table struct {
	mu   sync.Mutex
	file *os.File // nil: this process alone knows what is held
	held map[int]time.Time
}

// tablePaths are where the file is, best first. Another user can make the first one, whose name can be guessed, and
// could then hold every port: a file of another user is not used, and all processes of this user go on to the same
// next.
func tablePaths() []string {
	paths := []string{filepath.Join(os.TempDir(), fmt.Sprintf("recipe-ports-%d", os.Getuid()))}
	if cache, err := os.UserCacheDir(); err == nil {
		paths = append(paths, filepath.Join(cache, "recipe-ports"))
	}
	return paths
}

// openFirst opens the first file that this user can have.
func openFirst(paths []string) *table {
	for _, path := range paths {
		if t := openTable(path); t.file != nil {
			return t
		}
	}
	return &table{held: map[int]time.Time{}}
}

// openTable opens the file that all processes of this user share on this machine. It has no content. Where it cannot
// be
// opened, as in a read-only TMPDIR, or when another user has put a file there, this process alone knows what it has
// given, and nobody is told: ports are drawn at random, so two processes that choose side by side get the same one in
// one of 17,000 cases, as those of different users and of different TMPDIRs do anyway. An error would end runs that
// work, and let another user end them.
func openTable(path string) *table {
	t := &table{held: map[int]time.Time{}}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return t
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || !owned(info) {
		_ = f.Close()
		return t
	}
	t.file = f
	return t
}

// owned reports whether a file belongs to this user.
func owned(info os.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Geteuid()
}

// lock locks or unlocks the byte of a port, and says whether it did: not, when another process holds it. An error is
// of
// the lock itself, such as of a file system that has none.
func (t *table) lock(port int, kind int16) (bool, error) {
	if t.file == nil {
		return true, nil
	}
	err := syscall.FcntlFlock(t.file.Fd(), syscall.F_SETLK, &syscall.Flock_t{
		Type: kind, Whence: io.SeekStart, Start: int64(port), Len: 1})
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) { // POSIX allows both for a lock that is held
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("choose a port: lock %s, in which processes tell each other which ports they hold: %w; "+
			"set TMPDIR to a folder of a file system that has locks", t.file.Name(), err)
	}
	return true, nil
}

func (t *table) unlock(port int) { _, _ = t.lock(port, syscall.F_UNLCK) }

func (t *table) free() (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for port, since := range t.held {
		if time.Since(since) > heldFor {
			t.unlock(port)
			delete(t.held, port)
		}
	}
	err := errHeld // until a listener says otherwise
	for range tries {
		port := firstPort + rand.IntN(lastPort-firstPort) //nolint:gosec // no secret
		if _, ok := t.held[port]; ok {
			continue
		}
		if ok, err := t.lock(port, syscall.F_WRLCK); err != nil {
			return 0, err
		} else if !ok {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err != nil {
			t.unlock(port)
			continue
		}
		_ = l.Close()
		t.held[port] = time.Now()
		return port, nil
	}
	return 0, fmt.Errorf("no port from %d to %d is free on loopback: %w", firstPort, lastPort, err)
}
