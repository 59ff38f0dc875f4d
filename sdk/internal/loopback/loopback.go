// Package loopback listens where a block of this machine serves.
package loopback

import (
	"net"
	"net/netip"
)

// Listen takes the earlier address when it can be had, else a free port on loopback. The earlier address is what the
// run's record says, which may have come from somewhere else: beyond loopback nothing is served.
func Listen(earlier string) (net.Listener, error) {
	if at, err := netip.ParseAddrPort(earlier); err == nil && at.Addr().IsLoopback() {
		if l, err := net.Listen("tcp", earlier); err == nil {
			return l, nil
		}
	}
	return net.Listen("tcp", "127.0.0.1:0")
}
