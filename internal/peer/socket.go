package peer

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// checkSocket checks that the process at the other end of a unix socket is this user's. The kernel reports its user.
func checkSocket(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("find the user at the other end of a socket: %w", err)
	}
	var uid int
	var perr error
	if err := raw.Control(func(fd uintptr) { uid, perr = socketUID(int(fd)) }); err != nil || perr != nil {
		return fmt.Errorf("find the user at the other end of a socket: %w", errors.Join(err, perr))
	}
	if uid != os.Geteuid() {
		return &Error{Address: "the other end of the socket", UID: uid}
	}
	return nil
}

// Listener accepts connections of this user only; others are closed without an answer.
type Listener struct{ net.Listener }

// Accept implements net.Listener.
func (l Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if err := Check(conn); err == nil {
			return conn, nil
		}
		_ = conn.Close()
	}
}

// PID is the process that listens on the unix socket to which conn leads, as the kernel says.
func PID(conn net.Conn) (int, error) {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("find the process at the other end: %T is no unix socket", conn)
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("find the process at the other end of a socket: %w", err)
	}
	var pid int
	var perr error
	if err := raw.Control(func(fd uintptr) { pid, perr = socketPID(int(fd)) }); err != nil || perr != nil {
		return 0, fmt.Errorf("find the process at the other end of a socket: %w", errors.Join(err, perr))
	}
	return pid, nil
}
