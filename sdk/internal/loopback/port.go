package loopback

import (
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

// FreePort is a port on loopback for a server that is about to be started. For a quarter of an hour no other process of
// this user gets it from FreePort: of two servers that start side by side, the second would not get its port, and who
// has started it would talk to the first.
func FreePort() (int, error) { return ports().free() }

// ports are held by locks on the bytes of one file, which end with the process.
var ports = sync.OnceValue(func() *table { return openTable(tablePath()) })

type table struct {
	mu   sync.Mutex
	file *os.File // nil: this process alone knows what is held
	held map[int]time.Time
}

func tablePath() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("recipe-ports-%d", os.Getuid()))
}

// openTable opens the file that all processes of this user share on this machine. It has no content.
func openTable(path string) *table {
	t := &table{held: map[int]time.Time{}}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600) //nolint:gosec // a name of ours
	if err != nil {
		return t
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return t
	}
	t.file = f
	return t
}

// lock locks or unlocks the byte of a port, and says whether it did.
func (t *table) lock(port int, kind int16) bool {
	if t.file == nil {
		return true
	}
	err := syscall.FcntlFlock(t.file.Fd(), syscall.F_SETLK, &syscall.Flock_t{
		Type: kind, Whence: io.SeekStart, Start: int64(port), Len: 1})
	return err == nil
}

func (t *table) free() (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for port, since := range t.held {
		if time.Since(since) > heldFor {
			t.lock(port, syscall.F_UNLCK)
			delete(t.held, port)
		}
	}
	var err error
	for range tries {
		port := firstPort + rand.IntN(lastPort-firstPort) //nolint:gosec // no secret
		if _, ok := t.held[port]; ok || !t.lock(port, syscall.F_WRLCK) {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err != nil {
			t.lock(port, syscall.F_UNLCK)
			continue
		}
		_ = l.Close()
		t.held[port] = time.Now()
		return port, nil
	}
	return 0, fmt.Errorf("no port from %d to %d is free on loopback: %w", firstPort, lastPort, err)
}
