package inside

import (
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// acceptAgain is how long it waits where there are too many open files.
const acceptAgain = 100 * time.Millisecond

// mostConnections to the gateway are open at once.
const mostConnections = 128

// forward forwards connections to an address of the sandbox's own loopback to a socket that leads out.
func (j Job) forward() error {
	if j.Listen == "" {
		return nil
	}
	listener, err := net.Listen("tcp4", j.Listen)
	if err != nil {
		return fmt.Errorf("listen for the gateway: %w", err)
	}
	// A program that opens more waits: else it would use up the descriptors by which this process sees its limits.
	free := make(chan struct{}, mostConnections)
	go func() {
		for {
			free <- struct{}{}
			conn, err := listener.Accept()
			if err != nil {
				time.Sleep(acceptAgain)
				<-free
				continue
			}
			go func() {
				defer func() { _ = conn.Close(); <-free }()
				to, err := net.Dial("unix", j.Socket)
				if err != nil {
					return
				}
				defer func() { _ = to.Close() }()
				Splice(conn, to)
			}()
		}
	}()
	return nil
}

// Splice copies between two connections until both sides have ended.
func Splice(a, b net.Conn) {
	var wait sync.WaitGroup
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		wait.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			if half, ok := pair[0].(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
		})
	}
	wait.Wait()
}
