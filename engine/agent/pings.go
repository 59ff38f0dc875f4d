package agent

import (
	"encoding/binary"
	"errors"
	"net"
	"time"
)

// Frames of yamux (spec.md of hashicorp/yamux): version, type, flags, stream, length; after those with data, length
// bytes.
const (
	frameHeader = 12
	frameData   = 0
	framePing   = 2
	flagAsks    = 1 // a ping that is to be answered
)

// mostPings is how many pings of an agent are answered in keepAlive; it sends one.
const mostPings = 64

var errPings = errors.New("the agent sends too many pings")

// pingsLimited ends a connection whose other side sends pings without end. yamux answers each in a goroutine of its
// own; a machine that reads no answers, which may not be ours any more, would fill the memory with them.
type pingsLimited struct {
	net.Conn
	header  []byte // of a frame of which more is to come
	data    uint64 // bytes of a frame's data that are to come
	pings   int
	counted time.Time // since when they are
}

func (c *pingsLimited) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for rest := b[:n]; len(rest) > 0; {
		if c.data > 0 {
			skip := min(c.data, uint64(len(rest)))
			c.data, rest = c.data-skip, rest[skip:]
			continue
		}
		take := min(frameHeader-len(c.header), len(rest))
		c.header, rest = append(c.header, rest[:take]...), rest[take:]
		if len(c.header) < frameHeader {
			break
		}
		if c.frame() {
			return 0, errPings
		}
	}
	return n, err
}

// frame takes a whole header, and says whether it is that of one ping too many.
func (c *pingsLimited) frame() bool {
	kind, flags := c.header[1], binary.BigEndian.Uint16(c.header[2:4])
	if kind == frameData {
		c.data = uint64(binary.BigEndian.Uint32(c.header[8:12]))
	}
	c.header = c.header[:0]
	if kind != framePing || flags&flagAsks == 0 {
		return false
	}
	if now := time.Now(); now.Sub(c.counted) > keepAlive {
		c.counted, c.pings = now, 0
	}
	c.pings++
	return c.pings > mostPings
}
