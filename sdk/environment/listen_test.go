package environment_test

import (
	"net"
	"time"
)

// listenAgain listens on a port that was just released.
func listenAgain(address string) (l net.Listener, err error) {
	for range 50 {
		if l, err = net.Listen("tcp", address); err == nil {
			return l, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, err
}
