// Package loopback listens where a block of this machine serves.
package loopback

import (
	"context"
	"net"
	"net/netip"

	"github.com/recipe-rl/recipe/internal/listener"
)

// Listen takes the earlier address of the block, which is kept while its process is replaced, else a free port on
// loopback. The earlier address comes from the run's record, which may have been edited: only loopback addresses are
// used.
func Listen(ctx context.Context, earlier string) (net.Listener, error) {
	return listener.Open(ctx, earlier, func(at netip.AddrPort) bool { return at.Addr().IsLoopback() }, "127.0.0.1:0")
}
