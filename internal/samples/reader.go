package samples

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/recipe-rl/recipe/internal/regular"
)

// MaxGroups is how many groups a Reader knows: the newest.
const MaxGroups = 200_000

// maxBody bounds the memory of one body: a group of 16 completions of 32,768 tokens has some 40 MB.
const maxBody = 128 << 20

// Bounds on what a body may become, as those of the trajectory API for what is posted: a few bytes must not take much
// memory and time of who looks at a run.
const (
	maxRatio = 200
	anyRatio = 16 << 20 // up to here
)

// Group is what a record says of one group, without its body.
type Group struct {
	Line            // of its post
	Used    *Line   // of the training step; nil: not trained
	Dropped *Line   // nil: not dropped
	segment int     // of its body
	used    int     // segment of Used
	Mean    float64 // of its scores
	Spread  float64 // standard deviation of its scores; 0: all are equal
}

// Reader follows a record that another process may be writing.
type Reader struct {
	root, dir string // dir is relative to root

	mu     sync.Mutex
	groups []*Group       // in order of their posts
	first  int            // how many older groups are no longer known
	at     map[uint64]int // by id: which of all groups
	lost   int64
	read   map[int]int64 // by segment: bytes of whole lines read
	zstd   *zstd.Decoder
}

// NewReader makes a reader of the record in dir, which need not exist yet.
func NewReader(dir string) (*Reader, error) { return NewReaderIn(dir, ".") }

// NewReaderIn makes a reader of the record in the folder dir of root, a run directory: no link leads the reader out of
// root.
func NewReaderIn(root, dir string) (*Reader, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxBody),
		zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, fmt.Errorf("starting the decompression of samples: %w", err)
	}
	return &Reader{root: root, dir: dir, at: map[uint64]int{}, read: map[int]int64{}, zstd: dec}, nil
}

// Close releases the reader's memory.
func (r *Reader) Close() { r.zstd.Close() }

// Refresh reads what was written since the last call, and says how many lines that were.
func (r *Reader) Refresh() (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	have, err := segments(r.root, r.dir)
	if err != nil {
		return 0, err
	}
	n := 0
	for i, segment := range have {
		if _, begun := r.read[segment]; begun && i+1 < len(have) && r.finished(segment) {
			continue
		}
		m, err := r.lines(segment)
		if n += m; err != nil && !os.IsNotExist(err) { // deleted since it was listed
			return n, err
		}
	}
	return n, nil
}

// finished reports that all of an earlier segment has been read.
func (r *Reader) finished(segment int) bool {
	f, info, err := regular.OpenIn(r.root, file(r.dir, segment, indexSuffix))
	if err != nil {
		return false
	}
	_ = f.Close()
	return info.Size() == r.read[segment]
}

func (r *Reader) lines(segment int) (n int, err error) {
	f, _, err := regular.OpenIn(r.root, file(r.dir, segment, indexSuffix))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	at := r.read[segment]
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		return 0, fmt.Errorf("reading the record of samples: %w", err)
	}
	text, err := regular.Read(f, MaxIndex-min(at, MaxIndex))
	if err != nil {
		return 0, fmt.Errorf("reading the record of samples: %w", err)
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	r.read[segment] = at + int64(whole)
	for line := range bytes.Lines(text[:whole]) {
		var l Line
		if json.Unmarshal(line, &l) != nil || l.V > FormatVersion {
			continue // after a crash a line may be torn; other versions are not for this reader
		}
		r.take(l, segment)
		n++
	}
	return n, nil
}

func (r *Reader) take(l Line, segment int) {
	switch l.Type {
	case Lost:
		r.lost += l.Groups
	case Posted:
		g := &Group{Line: l, segment: segment}
		g.Mean, g.Spread = moments(l.Scores)
		r.groups = append(r.groups, g)
		r.at[l.ID] = r.first + len(r.groups) - 1
		if len(r.groups) > MaxGroups+MaxGroups/8 {
			for i, old := range r.groups[:MaxGroups/8] {
				if r.at[old.ID] == r.first+i { // and not that of a later group with the same id
					delete(r.at, old.ID)
				}
			}
			r.first += MaxGroups / 8
			r.groups = append([]*Group(nil), r.groups[MaxGroups/8:]...)
		}
	case Delivered, Trained, Dropped:
		at, known := r.at[l.ID]
		if !known {
			return
		}
		g := *r.groups[at-r.first] // readers may hold the old one
		if l.Type == Dropped {
			g.Dropped = &l
		} else {
			g.Used, g.used = &l, segment
		}
		r.groups[at-r.first] = &g
	}
}

func moments(scores []float32) (mean, spread float64) {
	if len(scores) == 0 {
		return 0, 0
	}
	for _, s := range scores {
		mean += float64(s) / float64(len(scores))
	}
	equal := true
	for _, s := range scores {
		d := float64(s) - mean
		spread += d * d / float64(len(scores))
		equal = equal && s == scores[0]
	}
	if equal {
		return mean, 0
	}
	return mean, math.Sqrt(spread)
}

// Groups are those known, in order of their posts, and how many more were posted but not recorded. The list and what
// it
// points to are not changed later.
func (r *Reader) Groups() (list []*Group, lost int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*Group(nil), r.groups...), r.lost
}

// Group is the one with an id; nil when the record does not have it (any more).
func (r *Reader) Group(id uint64) *Group {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, known := r.at[id]; known {
		return r.groups[at-r.first]
	}
	return nil
}

// Body is a group as it was posted, and what the trainer computed, if it told.
func (r *Reader) Body(g *Group) (group json.RawMessage, computed *Computed, err error) {
	if group, err = r.frame(g.segment, g.Offset, g.Bytes); err != nil {
		return nil, nil, err
	}
	if g.Used == nil || g.Used.Bytes == 0 {
		return group, nil, nil
	}
	text, err := r.frame(g.used, g.Used.Offset, g.Used.Bytes)
	if err != nil {
		return group, nil, nil //nolint:nilerr // the group is there without them
	}
	computed = &Computed{}
	if err := json.Unmarshal(text, computed); err != nil {
		return nil, nil, fmt.Errorf("reading what was computed for group %d: %w", g.ID, err)
	}
	return group, computed, nil
}

func (r *Reader) frame(segment int, offset, size int64) ([]byte, error) {
	f, info, err := regular.OpenIn(r.root, file(r.dir, segment, bodySuffix))
	if err != nil {
		return nil, fmt.Errorf("reading a sample, which may be too old to be kept: %w", err)
	}
	defer func() { _ = f.Close() }()
	packed, err := regular.Part(f, info, offset, size, maxBody)
	if err != nil {
		return nil, fmt.Errorf("reading a sample: %w", err)
	}
	text, err := r.unpack(packed)
	if err != nil {
		return nil, fmt.Errorf("reading a sample from %s at %d: %w", f.Name(), offset, err)
	}
	return text, nil
}

// unpack decompresses a body, up to the limits.
func (r *Reader) unpack(packed []byte) ([]byte, error) {
	var h zstd.Header
	if err := h.Decode(packed); err != nil {
		return nil, err
	}
	room := uint64(min(max(anyRatio, maxRatio*len(packed)), maxBody)) //nolint:gosec // it is positive
	if h.HasFCS {
		if h.FrameContentSize > room {
			return nil, fmt.Errorf("%d bytes inflate to %d, more than the %d that are read", len(packed), h.FrameContentSize,
				room)
		}
		room = h.FrameContentSize
	}
	return r.zstd.DecodeAll(packed, make([]byte, 0, room))
}

// Floats decodes a list of a Computed.
func Floats(packed []byte) []float32 {
	out := make([]float32, len(packed)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(packed[4*i:]))
	}
	return out
}
