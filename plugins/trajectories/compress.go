package trajectories

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// encoders recycles compressors, which are large.
type encoders struct{ gzip, zstd sync.Pool }

// encoder compresses what is written to it.
type encoder interface {
	io.WriteCloser
	Reset(w io.Writer)
}

// choose picks the encoding of a batch for a client: "" sends it as it is. On one machine the network costs nothing and
// compression is most of the work, so by default only clients on other machines get it.
func (s *Server) choose(r *http.Request) string {
	if s.cfg.Compression == "never" || s.cfg.Compression == "auto" && local(r) {
		return ""
	}
	accepted := strings.ToLower(r.Header.Get("Accept-Encoding"))
	for _, name := range []string{"zstd", "gzip"} {
		for part := range strings.SplitSeq(accepted, ",") {
			encoding, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
			if strings.TrimSpace(encoding) == name && strings.ReplaceAll(strings.TrimSpace(weight), " ", "") != "q=0" {
				return name
			}
		}
	}
	return ""
}

func local(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return true // not a network connection
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// encode wraps a writer. done recycles the compressor; call it after Close.
func (e *encoders) encode(name string, w io.Writer) (out io.WriteCloser, done func(), err error) {
	pool := &e.gzip
	if name == "zstd" {
		pool = &e.zstd
	}
	c, ok := pool.Get().(encoder)
	if !ok {
		if name == "zstd" {
			c, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
		} else {
			c, err = gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	c.Reset(w)
	return c, func() { c.Reset(nil); pool.Put(c) }, nil
}
