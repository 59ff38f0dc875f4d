package agent

import (
	"net"
	"slices"
	"sync"
)

// StrangersAtOnce bounds the connections of a port of which it is not known yet whose they are.
const StrangersAtOnce = 256

// Strangers are these connections, the oldest first. One more than the bound takes the place of the oldest: a member of
// the run is known in far less than the time that a connection may be silent, so silent ones keep no member out.
type Strangers struct {
	mu   sync.Mutex
	list []net.Conn
}

// Add returns what is to be called when it is known whose the connection is, and when it has ended.
func (s *Strangers) Add(c net.Conn) (known func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) >= StrangersAtOnce {
		_ = s.list[0].Close()
		s.list = slices.Delete(s.list, 0, 1)
	}
	s.list = append(s.list, c)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if i := slices.Index(s.list, c); i >= 0 {
			s.list = slices.Delete(s.list, i, i+1)
		}
	}
}
