// Package openfiles is about how many files a process may have open: a connection is one of them.
package openfiles

import (
	"errors"
	"fmt"
	"log"
	"net"
	"sync"
	"syscall"
	"time"
)

// fewest is how many open files each process of a run needs at least: the gateway of a small recipe with a few
// requests in flight has 66. With fewer a run begins, and then tries for ever to reach its own servers.
const fewest = 128

// Remedy describes how a process may have more.
const Remedy = "raise the limit with `ulimit -n 4096`; where the hard limit (`ulimit -Hn`) is lower, raise that first"

// Limit is how many files this process may have open.
func Limit() (uint64, error) {
	var r syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r)
	return r.Cur, err
}

// TooFew says in a sentence that the limit somewhere, as in "here", is too low for the processes of a run; empty: it is
// not.
func TooFew(limit uint64, where string) string {
	if limit >= fewest {
		return ""
	}
	return fmt.Sprintf("a process may have %d open files %s, and those of a run need at least %d", limit, where, fewest)
}

// Listener accepts connections in a process that may run out of open files: they wait until a file is closed, and the
// first time it is said.
type Listener struct {
	net.Listener
	say  func(message string)
	once sync.Once
}

// Wait makes a listener wait for open files. Say writes a line to a log; nil: to that of the standard library.
func Wait(l net.Listener, say func(message string)) *Listener {
	if say == nil {
		say = func(message string) { log.Print(message) }
	}
	return &Listener{Listener: l, say: say}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) {
			return c, err
		}
		l.once.Do(func() { l.say(waits(l.Addr(), err)) })
		time.Sleep(50 * time.Millisecond)
	}
}

func waits(at net.Addr, err error) string {
	if errors.Is(err, syscall.ENFILE) {
		return fmt.Sprintf("%s accepts no connections for now: the programs of this machine together have as many files "+
			"open as they may: raise the limit with `sysctl fs.file-max` (Linux) or `sysctl kern.maxfiles` (macOS)", at)
	}
	limit, failed := Limit()
	if failed != nil {
		return fmt.Sprintf("%s accepts no connections for now: %v, and the limit is unknown: %v: %s", at, err, failed, Remedy)
	}
	return fmt.Sprintf("%s accepts no connections for now: this process may have %d open files, and has them; "+
		"connections wait until one is closed: before recipe is started, %s", at, limit, Remedy)
}
