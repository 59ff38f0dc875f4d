// Package bounded reads what another process sends, up to a limit, after decompression as well: a server that sends
// without end, or a few kilobytes that inflate to gigabytes, must not take the memory of its client.
package bounded

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// ErrTooLarge is in the chain of errors about answers beyond their limit.
var ErrTooLarge = errors.New("too large")

func tooLarge(limit int64) error {
	return fmt.Errorf("%w: it has more than %d bytes, after decompression", ErrTooLarge, limit)
}

// Reader reads at most limit bytes of r; what has more is an error.
func Reader(r io.Reader, limit int64) io.Reader { return &reader{from: r, limit: limit, left: limit} }

type reader struct {
	from        io.Reader
	limit, left int64
}

func (r *reader) Read(p []byte) (int, error) {
	if int64(len(p)) > r.left+1 {
		p = p[:r.left+1]
	}
	n, err := r.from.Read(p)
	if int64(n) > r.left {
		n, err = int(r.left), tooLarge(r.limit)
	}
	r.left -= int64(n)
	return n, err
}

// ReadAll reads the rest of r, at most limit bytes.
func ReadAll(r io.Reader, limit int64) ([]byte, error) { return io.ReadAll(Reader(r, limit)) }

// Line reads up to the next line break, which it returns as well, as bufio.Reader.ReadBytes does. A line has at most
// limit bytes.
func Line(r *bufio.Reader, limit int64) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if int64(len(line)+len(part)) > limit {
			return nil, tooLarge(limit)
		}
		if line = append(line, part...); !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}
