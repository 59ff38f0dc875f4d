package inside

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// forward forwards connections to a port of the sandbox's own loopback to a socket that leads out. It does without
// package net, which is initialized long after this process should run.
func (j Job) forward() error {
	if j.Port == 0 {
		return nil
	}
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(listener, &unix.SockaddrInet4{Port: j.Port, Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		err = unix.Listen(listener, MostConnections)
	}
	if err != nil {
		return fmt.Errorf("listen for the gateway on port %d: %w", j.Port, err)
	}
	free := make(chan struct{}, MostConnections)
	go func() {
		for {
			free <- struct{}{}
			fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			if err != nil {
				time.Sleep(watchEvery) // too many open files; some will be closed
				<-free
				continue
			}
			go func() {
				defer func() { <-free }()
				j.connect(conn{os.NewFile(uintptr(fd), "connection")}) //nolint:gosec // a descriptor
			}()
		}
	}()
	return nil
}

// connect connects one connection to the gateway.
func (j Job) connect(from conn) {
	defer func() { _ = from.Close() }()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: j.Socket})
	if err == nil {
		err = unix.SetNonblock(fd, true) // so that no thread waits for it
	}
	if err != nil {
		_ = unix.Close(fd)
		return
	}
	to := conn{os.NewFile(uintptr(fd), "gateway")} //nolint:gosec // a descriptor
	defer func() { _ = to.Close() }()
	Splice(from, to)
}

// conn is a connected socket.
type conn struct{ *os.File }

// CloseWrite implements End.
func (c conn) CloseWrite() error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var shut error
	err = raw.Control(func(fd uintptr) { shut = unix.Shutdown(int(fd), unix.SHUT_WR) }) //nolint:gosec // a descriptor
	if err != nil {
		return err
	}
	return shut
}
