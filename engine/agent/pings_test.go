package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
)

// pair is an engine's session with an agent, and the agent's side of the connection.
func pair(t *testing.T) (*Client, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	theirs, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = theirs.Close() })
	own, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(own)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, theirs
}

// A machine that is not ours any more asks for answers without end and reads none.
func TestPingsWithoutEndEndTheSession(t *testing.T) {
	t.Parallel()
	c, theirs := pair(t)
	var frames bytes.Buffer
	for id := range uint32(mostPings + 1) {
		header := make([]byte, frameHeader)
		header[1], header[3] = framePing, flagAsks
		binary.BigEndian.PutUint32(header[8:], id)
		frames.Write(header)
	}
	last := frames.Next(frames.Len() - 7) // headers that come in parts are counted, too
	if _, err := theirs.Write(last); err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.Write(frames.Bytes()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.Closed():
	case <-time.After(time.Minute):
		t.Error("the session goes on")
	}
}

// Data that looks like pings is none, and samples count once in their interval, however many an agent sends.
func TestSamplesCountOnceInTheirInterval(t *testing.T) {
	t.Parallel()
	c, theirs := pair(t)
	mux, err := yamux.Server(theirs, Multiplex())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		stream, err := mux.Accept()
		if err != nil {
			return
		}
		ping := strings.Repeat("\x00\x02\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00", 2*mostPings)
		_ = writeLine(stream, Response{Ended: ping})
		for range 100 {
			_ = writeLine(stream, map[string]float64{"cpu_percent": 1})
		}
		_ = stream.Close()
	}()
	reported := 0
	err = c.Usage(context.Background(), time.Hour, func(map[string]float64) { reported++ })
	if err == nil || reported != 1 {
		t.Errorf("%d samples count, %v", reported, err)
	}
	go func() {
		if stream, err := mux.Accept(); err == nil {
			_ = writeLine(stream, Response{})
			_, _ = stream.Write([]byte(`{"x": "` + strings.Repeat("x", 2*maxSample) + "\"}\n"))
		}
	}()
	if err := c.Usage(context.Background(), time.Hour, func(map[string]float64) { reported++ }); err == nil ||
		!strings.Contains(err.Error(), "longer than") || reported != 1 {
		t.Errorf("a sample of any size: %v", err)
	}
}
