package private

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// CheckPeer checks that the process at the other end of a unix socket is this user's. The kernel reports its user.
func CheckPeer(conn net.Conn) error {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("refused: the peer at %s is not on a unix socket", conn.RemoteAddr())
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return fmt.Errorf("reading the user at the other end of a socket: %w", err)
	}
	var uid int
	var perr error
	if err := raw.Control(func(fd uintptr) { uid, perr = peerUID(int(fd)) }); err != nil || perr != nil {
		return fmt.Errorf("reading the user at the other end of a socket: %w", errors.Join(err, perr))
	}
	if uid != os.Geteuid() {
		return &PeerError{UID: uid}
	}
	return nil
}

// PeerError says that a process of another user is at the other end of a socket.
type PeerError struct{ UID int }

func (e *PeerError) Error() string {
	return fmt.Sprintf(
		"refused: the other end of the socket belongs to user %d, this is user %d: run it as the user who started the run",
		e.UID, os.Geteuid())
}

// Listener accepts connections of this user only; those of others are closed without an answer.
type Listener struct{ net.Listener }

// Accept implements net.Listener.
func (l Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if err := CheckPeer(conn); err == nil {
			return conn, nil
		}
		_ = conn.Close()
	}
}
