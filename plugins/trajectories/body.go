package trajectories

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/recipe-rl/recipe/plugins/trajectories/group"
)

var errTooLarge = errors.New("the body is too large")

// scratch is the memory that one request needs. Most posts of a run have about the same size, so it is used again.
type scratch struct {
	bytes.Buffer
	reader group.Reader
}

type scratches struct{ pool sync.Pool }

func (p *scratches) get() *scratch {
	if s, ok := p.pool.Get().(*scratch); ok {
		s.Reset()
		return s
	}
	return &scratch{}
}

// keep is the size above which memory is left to the garbage collector.
const keep = 4 << 20

func (p *scratches) put(s *scratch) {
	if s != nil && s.Cap() <= keep {
		p.pool.Put(s)
	}
}

// slack is what the reader may write behind a body: the fields that it lacks.
const slack = 512

// read fills buf with the body of a JSON request, decompressed.
func (s *Server) read(w http.ResponseWriter, r *http.Request, buf *scratch) error {
	body := http.MaxBytesReader(w, r.Body, s.cfg.MaxBody)
	encoding := strings.ToLower(r.Header.Get("Content-Encoding"))
	plain := !strings.Contains(encoding, "gzip") && encoding != "zstd" // what else it may say, run-api reads as it comes
	if n := r.ContentLength; n > 0 && n <= s.cfg.MaxBody && plain {
		buf.Grow(int(n) + slack + bytes.MinRead)
	}
	if !plain {
		if err := s.inflate(buf, body, encoding); err != nil {
			return err
		}
	} else if _, err := buf.ReadFrom(body); err != nil {
		return fmt.Errorf("reading the body: %w", err)
	}
	if buf.Len() == 0 {
		return &group.Invalid{Details: []group.Detail{{Type: "missing", Loc: []any{"body"}, Msg: "Field required"}}}
	}
	if kind := r.Header.Get("Content-Type"); !isJSON(kind) {
		given := buf.String()
		if len(given) > 256 {
			given = strings.ToValidUTF8(given[:256], "") + " …"
		}
		return &group.Invalid{Details: []group.Detail{{Type: "model_attributes_type", Loc: []any{"body"},
			Msg: "Input should be a valid dictionary or object to extract fields from", Input: given}}}
	}
	return nil
}

func isJSON(contentType string) bool {
	kind, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	kind = strings.TrimSpace(kind)
	return kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")
}

// inflaters recycles decompressors.
type inflaters struct{ pool sync.Pool }

// inflater reads a body that lies in memory, which is faster than reading it as it comes.
type inflater struct {
	raw  bytes.Buffer
	src  bytes.Reader
	gzip gzip.Reader
	zstd *zstd.Decoder
}

// open begins to decompress src.
func (in *inflater) open(encoding string) (z io.Reader, err error) {
	in.src.Reset(in.raw.Bytes())
	if encoding != "zstd" {
		return &in.gzip, in.gzip.Reset(&in.src)
	}
	if in.zstd == nil {
		// One at a time needs no goroutine; the window is what a body may make the server allocate.
		if in.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20)); err != nil {
			return nil, err
		}
	}
	return in.zstd, in.zstd.Reset(&in.src)
}

// inflate decompresses a body of one or more gzip members or zstd frames, and no further than the limit.
func (s *Server) inflate(buf *scratch, body io.Reader, encoding string) error {
	in, ok := s.inflaters.pool.Get().(*inflater)
	if !ok {
		in = &inflater{}
	}
	defer func() {
		if in.raw.Cap() <= keep {
			s.inflaters.pool.Put(in)
		}
	}()
	in.raw.Reset()
	if _, err := in.raw.ReadFrom(body); err != nil {
		return fmt.Errorf("reading the body: %w", err)
	}
	if in.raw.Len() == 0 {
		return nil
	}
	bad := &refusal{code: http.StatusBadRequest, message: "Invalid gzip payload", plain: true}
	if encoding == "zstd" {
		bad.message = "Invalid zstd payload"
	}
	z, err := in.open(encoding)
	if err != nil {
		return bad
	}
	buf.Grow(min(4*in.raw.Len(), keep) + slack)
	if _, err := buf.ReadFrom(io.LimitReader(z, s.cfg.MaxBody+1)); err != nil {
		return bad
	}
	if int64(buf.Len()) > s.cfg.MaxBody {
		return errTooLarge
	}
	return nil
}
