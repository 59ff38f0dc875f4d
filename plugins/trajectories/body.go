package trajectories

import (
	"bytes"
	"context"
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

// keep is the size above which memory is not kept for the next request.
const keep = 4 << 20

func (p *scratches) put(s *scratch) {
	if s != nil && s.Cap() <= keep {
		p.pool.Put(s)
	}
}

// slack is the room behind a body for the missing fields that the reader writes there.
const slack = 512

// firstPart is where the memory begins that a body of unknown size is read into. One with a large announced size begins
// there, too; more memory is taken as the body arrives.
const firstPart = 64 << 10

// read fills buf with the body of a JSON request of at most limit bytes, decompressed. The caller releases what is
// held.
func (s *Server) read(w http.ResponseWriter, r *http.Request, buf *scratch, limit int64, held *share) error {
	body := http.MaxBytesReader(w, r.Body, limit)
	encoding := strings.ToLower(r.Header.Get("Content-Encoding"))
	err := held.begin(r.Context(), plainLength(r, encoding))
	if err != nil {
		return err
	}
	if strings.Contains(encoding, "gzip") || encoding == "zstd" { // run-api reads any other content encoding as plain data
		err = s.inflate(r, buf, body, encoding, limit, held)
	} else {
		err = readAll(r.Context(), &buf.Buffer, body, r.ContentLength, 0, held)
	}
	if err != nil {
		return err
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

// plainLength is the length of a body that is not compressed, when the client announces it.
func plainLength(r *http.Request, encoding string) int64 {
	if strings.Contains(encoding, "gzip") || encoding == "zstd" {
		return 0
	}
	return r.ContentLength
}

// readAll reads src to its end, of which about expected bytes are expected; 0 when unknown. Memory is held before it is
// taken: for what is read, and for the bytes before it.
func readAll(ctx context.Context, buf *bytes.Buffer, src io.Reader, expected, before int64, held *share) error {
	room := int64(firstPart)
	if expected > 0 && expected <= smallBody {
		room = expected
	}
	for {
		if err := held.more(ctx, before+int64(buf.Len())+room, before+expected); err != nil {
			return err
		}
		widen(buf, int(room)+slack+bytes.MinRead)
		n, err := buf.ReadFrom(io.LimitReader(src, room+1)) // one more byte to see the end
		if err != nil {
			return fmt.Errorf("reading the body: %w", err)
		}
		if n <= room {
			return nil
		}
		room = int64(buf.Len())
		if left := expected - int64(buf.Len()); left > 0 {
			room = min(room, left)
		}
	}
}

// widen makes room for exactly n more bytes; a growing bytes.Buffer would take more than twice its size.
func widen(buf *bytes.Buffer, n int) {
	if buf.Available() < n {
		wider := make([]byte, buf.Len(), buf.Len()+n)
		copy(wider, buf.Bytes())
		*buf = *bytes.NewBuffer(wider)
	}
}

func isJSON(contentType string) bool {
	kind, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	kind = strings.TrimSpace(kind)
	return kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")
}

// inflaters recycles decompressors.
type inflaters struct{ pool sync.Pool }

// inflater reads a body that is in memory, which is faster than reading it as it comes.
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

// Bounds on what a body may become. Groups of long, repeated prompts shrink to a hundredth; real bodies of megabytes do
// not shrink to less than half a percent.
const (
	maxRatio = 200
	anyRatio = 16 << 20 // up to here
)

// inflate decompresses a body of one or more gzip members or zstd frames, up to the limits.
func (s *Server) inflate(
	r *http.Request,
	buf *scratch,
	body io.Reader,
	encoding string,
	limit int64,
	held *share,
) error {
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
	if err := readAll(r.Context(), &in.raw, body, r.ContentLength, 0, held); err != nil {
		return err
	}
	if in.raw.Len() == 0 {
		return nil
	}
	if encoding == "zstd" && held.large == 0 { // the memory that a large request holds is enough
		done, err := s.memory.decoders.acquire(r.Context(), 1)
		if err != nil {
			return err
		}
		defer done()
	}
	bad := &refusal{code: http.StatusBadRequest, message: "Invalid gzip payload", plain: true}
	if encoding == "zstd" {
		bad.message = "Invalid zstd payload"
	}
	z, err := in.open(encoding)
	if err != nil {
		return bad
	}
	most := max(anyRatio, maxRatio*int64(in.raw.Len()))
	err = readAll(
		r.Context(),
		&buf.Buffer,
		io.LimitReader(z, min(limit, most)+1),
		min(4*int64(in.raw.Len()), smallBody),
		int64(in.raw.Len()),
		held,
	)
	switch {
	case errors.Is(err, errBusy), r.Context().Err() != nil:
		return err
	case err != nil:
		return bad
	case int64(buf.Len()) > limit:
		return &http.MaxBytesError{Limit: limit}
	case int64(buf.Len()) > most:
		return &refusal{
			code: http.StatusRequestEntityTooLarge,
			message: fmt.Sprintf(
				"The body of %d bytes inflates to more than %d times its size (allowed from %d MiB on): send it "+
					"uncompressed or in smaller posts",
				in.raw.Len(),
				maxRatio,
				anyRatio>>20,
			),
		}
	}
	return nil
}
