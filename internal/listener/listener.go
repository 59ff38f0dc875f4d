// Package listener keeps the port of a block open while its process is replaced. Between the end of one process and the
// start of the next, another user could listen there and would get the tokens of all clients. So the process offers its
// listening socket to the engine, on a unix socket in a folder that only this user can enter; the engine keeps a copy,
// and the next process inherits it. Connections that are made in between wait for the next process.
package listener

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/recipe-rl/recipe/internal/peer"
)

const (
	// SocketKey is the environment variable with the path at which a process offers its listening socket.
	SocketKey = "RECIPE_LISTENER_SOCKET"
	// DescriptorKey is the environment variable with the number of the descriptor that a process inherits.
	DescriptorKey = "RECIPE_LISTENER_FD"
)

// takeTimeout bounds the passing of a socket, which both sides do at once.
const takeTimeout = 5 * time.Second

// inheritance is what the environment of this process says. Only the first listener of the process is kept for the
// next one: a process serves one block.
type inheritance struct {
	mu     sync.Mutex
	socket string       // where to offer; empty: there is no engine to offer to, or it is in use
	given  net.Listener // nil: there is none, or it is in use
}

var inherited = sync.OnceValue(func() *inheritance {
	i := &inheritance{socket: os.Getenv(SocketKey)}
	if fd, err := strconv.ParseUint(os.Getenv(DescriptorKey), 10, 16); err == nil && fd > 2 {
		file := os.NewFile(uintptr(fd), "listener")
		i.given, _ = net.FileListener(file) // a copy that programs of this process do not inherit; nil: it is none
		_ = file.Close()
	}
	_, _ = os.Unsetenv(SocketKey), os.Unsetenv(DescriptorKey)
	return i
})

// Inherit takes what the environment names, so that programs that this process starts get none of it. Call it first.
func Inherit() { inherited() }

// Open listens at an earlier address of the block: on the socket that was kept, else anew when the port is free.
// earlier comes from the run's record, which may have been edited: it is used only if may allows it. Otherwise Open
// listens at address.
func Open(ctx context.Context, earlier string, may func(netip.AddrPort) bool, address string) (net.Listener, error) {
	i := inherited()
	l, err := i.open(ctx, earlier, may, address)
	if err != nil {
		return nil, err
	}
	return i.offer(l), nil
}

func (i *inheritance) open(ctx context.Context, earlier string, may func(netip.AddrPort) bool, address string,
) (net.Listener, error) {
	i.mu.Lock()
	given := i.given
	i.given = nil
	i.mu.Unlock()
	at, err := netip.ParseAddrPort(earlier)
	again := err == nil && may(at)
	if given != nil {
		if again && given.Addr().String() == earlier {
			return given, nil
		}
		_ = given.Close()
	}
	var config net.ListenConfig
	if again {
		if l, err := config.Listen(ctx, "tcp", earlier); err == nil {
			return l, nil
		}
	}
	return config.Listen(ctx, "tcp", address)
}

// offered is a listener whose socket the engine can take.
type offered struct {
	net.Listener
	socket net.Listener
}

func (o *offered) Close() error { return errors.Join(o.Listener.Close(), o.socket.Close()) }

// offer lets the engine take a listener's socket. Without an engine, or where the offer fails, it returns the listener
// as it is: the port is then not kept, and the engine changes the block's tokens at its next start.
func (i *inheritance) offer(l net.Listener) net.Listener {
	i.mu.Lock()
	path := i.socket
	i.socket = ""
	i.mu.Unlock()
	tcp, ok := l.(*net.TCPListener)
	if path == "" || !ok {
		return l
	}
	socket, err := net.Listen("unix", path)
	if err != nil {
		return l
	}
	o := &offered{Listener: l, socket: socket}
	go func() {
		for {
			c, err := peer.Listener{Listener: socket}.Accept()
			if err != nil {
				return // closed
			}
			_ = c.SetDeadline(time.Now().Add(takeTimeout))
			_ = send(c.(*net.UnixConn), tcp) // an engine that got nothing takes it for lost
			_ = c.Close()
		}
	}()
	return o
}

// send passes the descriptor itself: net.TCPListener.File would make the socket block for all that have it.
func send(c *net.UnixConn, l *net.TCPListener) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = raw.Control(func(fd uintptr) {
		_, _, serr = c.WriteMsgUnix([]byte(l.Addr().String()), unix.UnixRights(int(fd)), nil)
	})
	return errors.Join(err, serr)
}

// Kept is the copy of a listening socket that an engine keeps. It accepts nothing.
type Kept struct {
	Address string
	File    *os.File
}

// Close ends the copy. When no process has the socket any more, connections that wait are reset.
func (k *Kept) Close() error { return k.File.Close() }

// Take asks the process that offers its socket at a path for a copy.
func Take(ctx context.Context, path string) (*Kept, error) {
	c, err := (&net.Dialer{Timeout: takeTimeout}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("take the listening socket: %w", err)
	}
	defer func() { _ = c.Close() }()
	if err := peer.Check(c); err != nil {
		return nil, fmt.Errorf("take the listening socket: %w", err)
	}
	if err := c.SetDeadline(time.Now().Add(takeTimeout)); err != nil {
		return nil, fmt.Errorf("take the listening socket: %w", err)
	}
	text, rights := make([]byte, 256), make([]byte, unix.CmsgSpace(4*4))
	n, m, _, _, err := c.(*net.UnixConn).ReadMsgUnix(text, rights)
	if err != nil {
		return nil, fmt.Errorf("take the listening socket: %w", err)
	}
	fd, err := descriptor(rights[:m])
	if err != nil {
		return nil, fmt.Errorf("take the listening socket at %s: %w", path, err)
	}
	k := &Kept{Address: string(text[:n]), File: os.NewFile(uintptr(fd), "listener of "+string(text[:n]))}
	if err := listens(fd); err != nil {
		return nil, errors.Join(fmt.Errorf("take the listening socket of %s: %w", k.Address, err), k.Close())
	}
	return k, nil
}

// descriptor is the one descriptor in a message; all of another number are closed.
func descriptor(rights []byte) (int, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return 0, err
	}
	var all []int
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue // another kind of message
		}
		all = append(all, fds...)
	}
	for _, fd := range all {
		unix.CloseOnExec(fd)
	}
	if len(all) != 1 {
		for _, fd := range all {
			_ = unix.Close(fd)
		}
		return 0, fmt.Errorf("expected 1 descriptor, got %d", len(all))
	}
	return all[0], nil
}

// listens explains why a descriptor is no listening socket.
func listens(fd int) error {
	value, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err == nil && value == 0 {
		err = errors.New("it does not listen")
	}
	return err
}
