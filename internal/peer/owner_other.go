//go:build !linux

package peer

import (
	"errors"
	"net/netip"
)

// owner is not known: these systems have no documented interface for it.
func owner(_, _ netip.AddrPort) (int, error) { return 0, errors.ErrUnsupported }
