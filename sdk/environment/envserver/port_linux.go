package envserver

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// reserve takes a free port of 127.0.0.1 and holds it until it is closed: the system gives it to nobody who asks for
// any free port, so no other server answers there while the program is still starting. The program itself asks for this
// port and gets it, since servers bind with SO_REUSEADDR and nothing listens at what is held.
func reserve() (port int, held io.Closer, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("look for a free port: %w", err)
		}
	}()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, err
	}
	socket := os.NewFile(uintptr(fd), "reserved port")
	defer func() {
		if err != nil {
			_ = socket.Close()
		}
	}()
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, nil, err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, nil, err
	}
	address, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, nil, err
	}
	return address.(*syscall.SockaddrInet4).Port, socket, nil
}
