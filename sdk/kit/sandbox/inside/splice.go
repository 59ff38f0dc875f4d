package inside

import (
	"io"
	"sync"
)

// MostConnections to the gateway are open at once. A program that opens more waits: else it would use up descriptors,
// of the first process, by which that sees its limits, and of the process outside, which other rollouts need.
const MostConnections = 128

// End is an end of a connection.
type End interface {
	io.ReadWriter
	CloseWrite() error
}

// Splice copies between two connections until both sides have ended.
func Splice(a, b End) {
	var wait sync.WaitGroup
	for _, pair := range [][2]End{{a, b}, {b, a}} {
		wait.Go(func() {
			_, _ = io.Copy(struct{ io.Writer }{pair[0]}, struct{ io.Reader }{pair[1]})
			_ = pair[0].CloseWrite()
		})
	}
	wait.Wait()
}
