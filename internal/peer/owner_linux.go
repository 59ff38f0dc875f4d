package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Numbers of linux/sock_diag.h, linux/inet_diag.h and net/tcp_states.h, which Go's packages lack.
const (
	diagByFamily = 20 // SOCK_DIAG_BY_FAMILY
	allStates    = 1<<32 - 1
	listening    = 10 // TCP_LISTEN
	diagRequest  = 56 // length of inet_diag_req_v2
	diagMessage  = 72 // length of inet_diag_msg
)

// answerWithin bounds the wait for the kernel's answer, which comes at once.
const answerWithin = 5 * time.Second

// entry is a socket in the kernel's table.
type entry struct {
	listens bool
	uid     int
	inode   uint32 // 0: no process has accepted the connection yet
}

// errNone reports that the kernel has no such socket.
var errNone = errors.New("there is no such socket")

// owner is the user of the process that has the end `of` of a TCP connection, whose other end is `with`.
//
// A connection that waits to be accepted has no owner of its own yet; it belongs to its listener, and is reset when
// that is closed. So the listener's user counts, provided that the connection still waits after the listener was seen:
// else another process could have listened when the connection was made.
func owner(of, with netip.AddrPort) (int, error) {
	for range 3 {
		c, err := lookUp(of, with)
		if errors.Is(err, errNone) || err == nil && c.listens {
			return 0, fmt.Errorf("the connection is gone: %w", unix.ECONNRESET)
		}
		if err != nil {
			return 0, err
		}
		if c.inode != 0 {
			return c.uid, nil
		}
		l, err := lookUp(of, netip.AddrPortFrom(unspecified(of.Addr()), 0))
		if errors.Is(err, errNone) {
			continue // accepted, and the listener closed, since the first look
		}
		if err != nil {
			return 0, err
		}
		again, err := lookUp(of, with)
		if err != nil {
			return 0, err
		}
		if l.listens && !again.listens && again.inode == 0 {
			return l.uid, nil
		}
	}
	return 0, fmt.Errorf("the connection changed while it was looked up: %w", unix.ECONNRESET)
}

func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// lookUp asks the kernel for the socket with these two ends; where there is no connection, for the listener at the
// first. Without the netlink interface, which a container may lack, it reads /proc/net.
func lookUp(of, with netip.AddrPort) (entry, error) {
	e, err := diag(of, with)
	if err == nil || errors.Is(err, errNone) {
		return e, err
	}
	e, ferr := fromTables("/proc/net", of, with)
	if ferr == nil || errors.Is(ferr, errNone) {
		return e, ferr
	}
	return entry{}, fmt.Errorf("%w: netlink: %w; /proc/net/tcp: %w; allow this process one of the two", errUnknown, err,
		ferr)
}

// diag is the lookup by netlink: one socket, whatever the number of sockets.
func diag(of, with netip.AddrPort) (entry, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return entry{}, err
	}
	defer func() { _ = unix.Close(fd) }()
	limit := unix.NsecToTimeval(answerWithin.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return entry{}, err
	}
	if err := unix.Sendto(fd, request(of, with), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return entry{}, err
	}
	answer := make([]byte, 4096)
	for {
		n, _, err := unix.Recvfrom(fd, answer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return entry{}, err
		}
		return parse(answer[:n])
	}
}

func request(of, with netip.AddrPort) []byte {
	b := make([]byte, unix.SizeofNlMsghdr+diagRequest)
	h := binary.NativeEndian
	h.PutUint32(b[0:], uint32(len(b)))
	h.PutUint16(b[4:], diagByFamily)
	h.PutUint16(b[6:], unix.NLM_F_REQUEST)
	r := b[unix.SizeofNlMsghdr:]
	r[0], r[1] = unix.AF_INET6, unix.IPPROTO_TCP
	if of.Addr().Is4() {
		r[0] = unix.AF_INET
	}
	h.PutUint32(r[4:], allStates)
	binary.BigEndian.PutUint16(r[8:], of.Port())
	binary.BigEndian.PutUint16(r[10:], with.Port())
	copy(r[12:28], of.Addr().AsSlice())
	copy(r[28:44], with.Addr().AsSlice())
	for i := range 8 { // INET_DIAG_NOCOOKIE
		r[48+i] = 0xff
	}
	return b
}

func parse(b []byte) (entry, error) {
	if len(b) < unix.SizeofNlMsghdr+4 {
		return entry{}, unix.EBADMSG
	}
	body := b[unix.SizeofNlMsghdr:]
	h := binary.NativeEndian
	if h.Uint16(b[4:]) == unix.NLMSG_ERROR {
		code := int32(h.Uint32(body))
		if code == -int32(unix.ENOENT) {
			return entry{}, errNone
		}
		return entry{}, fmt.Errorf("the kernel refused with error %w", syscall.Errno(-code))
	}
	if h.Uint16(b[4:]) != diagByFamily || len(body) < diagMessage {
		return entry{}, unix.EBADMSG
	}
	return entry{listens: body[1] == listening, uid: int(h.Uint32(body[64:])), inode: h.Uint32(body[68:])}, nil
}
