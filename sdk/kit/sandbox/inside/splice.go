package inside

import (
	"io"
	"sync"
)

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
