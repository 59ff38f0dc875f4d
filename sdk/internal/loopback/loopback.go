// Package loopback listens where a block of this machine serves.
package loopback

import (
	"net"
	"net/netip"
)

// Listen takes the earlier address when it can be had, else a free port on loopback. The earlier address comes from the
// run's record, which another program may have written: only loopback addresses are used.
func Listen(earlier string) (net.Listener, error) {
	if at, err := netip.ParseAddrPort(earlier); err == nil && at.Addr().IsLoopback() {
		if l, err := net.Listen("tcp", earlier); err == nil {
			return l, nil
		}
	}
	return net.Listen("tcp", "127.0.0.1:0")
}
