package private

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// CheckPeer says whether the process at the other end of a unix socket is this user's. The system tells it; the peer
// cannot pretend.
func CheckPeer(conn net.Conn) error {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("refused: the peer at %s is not on a unix socket", conn.RemoteAddr())
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return fmt.Errorf("asking who is at the other end of a socket: %w", err)
	}
	var uid int
	var perr error
	if err := raw.Control(func(fd uintptr) { uid, perr = peerUID(int(fd)) }); err != nil || perr != nil {
		return fmt.Errorf("asking who is at the other end of a socket: %w", errors.Join(err, perr))
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
		"refused: user %d is at the other end of the socket, and this is user %d: work as the user who started the run",
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
