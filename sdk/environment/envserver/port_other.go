//go:build !linux

package envserver

import (
	"fmt"
	"io"
	"net"
)

// reserve finds a free port of 127.0.0.1. It cannot be held here: the program could not bind it then.
func reserve() (port int, held io.Closer, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, nil, fmt.Errorf("look for a free port: %w", err)
	}
	port = l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	return port, nothing{}, nil
}

type nothing struct{}

func (nothing) Close() error { return nil }
