// Package peer finds out which user owns the process at the other end of a connection on this machine. Every user can
// listen on a port of loopback, so a client that holds a token must know the owner before it sends anything. For unix
// sockets SO_PEERCRED has the answer; for TCP the kernel's table of sockets.
package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"
)

// Error reports that a connection leads to a process of another user.
type Error struct {
	Address string // of the other end
	UID     int    // of its owner
}

func (e *Error) Error() string {
	return fmt.Sprintf("refused: %s belongs to user %d, this is user %d: run both as one user; nothing was sent",
		e.Address, e.UID, os.Geteuid())
}

// errUnknown reports that the kernel does not tell owners of sockets.
var errUnknown = errors.New("the kernel does not tell which user owns a TCP connection")

// dialTimeout bounds the dialing of a connection by a client whose transport has no dialer of its own.
const dialTimeout = 10 * time.Second

// Check returns an *Error when the process at the other end belongs to another user: of a unix socket to any other, of
// a TCP connection on loopback to neither this user nor root. Connections that leave the machine pass. Where the kernel
// has no answer the connection is refused, except on systems that never have one for TCP (macOS).
func Check(conn net.Conn) error {
	if socket, ok := conn.(*net.UnixConn); ok {
		return checkSocket(socket)
	}
	local, remote, ok := loopbackEnds(conn.LocalAddr(), conn.RemoteAddr())
	if !ok {
		return nil
	}
	return check(local, remote)
}

// CheckClient is Check for the client of an HTTP request, on the server's side.
func CheckClient(r *http.Request) error {
	server, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	client, err := netip.ParseAddrPort(r.RemoteAddr)
	if server == nil || err != nil {
		return nil // no TCP connection, as in a test of a handler
	}
	local, remote, ok := loopbackEnds(server, net.TCPAddrFromAddrPort(client))
	if !ok {
		return nil
	}
	return check(local, remote)
}

func check(local, remote netip.AddrPort) error {
	uid, err := owner(remote, local)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the user at the other end of the connection to %s: %w", remote, err)
	}
	if uid != 0 && uid != os.Geteuid() {
		return &Error{Address: remote.String(), UID: uid}
	}
	return nil
}

// loopbackEnds are both ends of a TCP connection on loopback.
func loopbackEnds(local, remote net.Addr) (l, r netip.AddrPort, ok bool) {
	from, ok := local.(*net.TCPAddr)
	to, also := remote.(*net.TCPAddr)
	if !ok || !also {
		return l, r, false
	}
	l, r = unmapped(from.AddrPort()), unmapped(to.AddrPort())
	return l, r, r.Addr().IsLoopback() || l.Addr() == r.Addr()
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// Dial connects like net.Dialer and checks the other end.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return Dialer(&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second})(ctx, network, address)
}

// Dialer returns a function for http.Transport.DialContext that checks the other end of each connection.
func Dialer(d *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if err := Check(conn); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return conn, nil
	}
}

// Transport makes t check its connections when base, the URL that it is used for, is on loopback: there is no proxy
// then, either. It returns t. For other URLs nothing changes: the name of the server is known by its certificate.
func Transport(base string, t *http.Transport) *http.Transport {
	if OnLoopback(base) {
		t.Proxy, t.DialContext = nil, Dial
	}
	return t
}

// OnLoopback reports whether a URL names a server of this machine by an address of loopback or as localhost.
func OnLoopback(base string) bool {
	u, err := url.Parse(base)
	if err != nil {
		return false
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil {
		return ip.Unmap().IsLoopback()
	}
	name := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}
