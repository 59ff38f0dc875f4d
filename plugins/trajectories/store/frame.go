package store

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A frame is one commit: a header, a record of what changed, and the bodies of the groups that it put, back to back.
//
//	header: mark (4), length of the record (4), length of the bodies (8), checksum of header and record (4), zero (4)
//
// The checksum starts from the file's seed and the frame's place, so that neither a stale frame nor a body that
// resembles a frame is read as one. A frame is valid when its checksum and those of its bodies are right; the first
// that is not ends the log. Since nothing was acknowledged before its frame was complete, nothing acknowledged is
// lost.
const (
	frameMark = 0x4d524654
	frameHead = 24
)

// record is what a commit changed.
type record struct {
	Put     []putRecord  `json:"put,omitempty"`
	Changes []journalled `json:"changes,omitempty"`
}

// journalled is a change without the groups that it puts.
type journalled struct {
	Place   map[uint64]uint64 `json:"place,omitempty"`
	Batches []Batch           `json:"batches,omitempty"`
	End     []uint64          `json:"end,omitempty"`
	Ended   []uint64          `json:"ended,omitempty"`
	State   json.RawMessage   `json:"state,omitempty"`
	Keys    []Key             `json:"keys,omitempty"`
}

func journal(c *Change) journalled {
	return journalled{Place: c.Place, Batches: c.Batches, End: c.End, Ended: c.Ended, State: c.State, Keys: c.Keys}
}

// empty reports whether a change only puts groups.
func (c *journalled) empty() bool {
	return len(c.Place)+len(c.Batches)+len(c.End)+len(c.Ended)+len(c.Keys) == 0 && c.State == nil
}

// putRecord is a group of a frame. Its body follows those of the ones before it.
type putRecord struct {
	ID     uint64 `json:"id"`
	Length int64  `json:"length"`
	Sum    uint32 `json:"sum"`
	Meta   Meta   `json:"meta"`
	Moved  bool   `json:"moved,omitempty"` // it was put before, and lies here from now on

	place place // where the body is
}

// write appends a frame to the current file. On an error the file is as it was before.
func (s *segment) write(r *record, bodies [][]byte) error {
	var total int64
	for i, b := range bodies {
		r.Put[i].Length, r.Put[i].Sum = int64(len(b)), crc32.Checksum(b, castagnoli)
		total += int64(len(b))
	}
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding a change of the trajectory store: %w", err)
	}
	head := make([]byte, frameHead, frameHead+len(text))
	binary.LittleEndian.PutUint32(head, frameMark)
	binary.LittleEndian.PutUint32(head[4:], uint32(len(text)))
	binary.LittleEndian.PutUint64(head[8:], uint64(total))
	binary.LittleEndian.PutUint32(head[16:], s.sum(s.size, head[:16], text))
	if err := writeParts(s.file, append([][]byte{append(head, text...)}, bodies...), s.size); err != nil {
		return errors.Join(fmt.Errorf("writing to the log of trajectories: %w", err), s.file.Truncate(s.size))
	}
	s.locate(r, s.size+frameHead+int64(len(text)))
	s.size += frameHead + int64(len(text)) + total
	return nil
}

// locate says where the bodies of a frame are.
func (s *segment) locate(r *record, from int64) {
	for i := range r.Put {
		p := &r.Put[i]
		p.place = place{Segment: s.number, Offset: from, Length: p.Length, Sum: p.Sum}
		from += p.Length
	}
}

func (s *segment) sum(at int64, head, text []byte) uint32 {
	var offset [8]byte
	binary.LittleEndian.PutUint64(offset[:], uint64(at))
	sum := crc32.Update(s.seed, castagnoli, offset[:])
	sum = crc32.Update(sum, castagnoli, head)
	return crc32.Update(sum, castagnoli, text)
}

// replay reads frames from an offset to the first that is not valid, and returns where that is.
func (s *segment) replay(from int64, each func(*record) error) (end int64, err error) {
	return s.frames(from, true, each)
}

// frames is replay; without bodies it does not check them, which costs nearly nothing.
func (s *segment) frames(from int64, bodies bool, each func(*record) error) (end int64, err error) {
	head := make([]byte, frameHead)
	for {
		if _, err := s.file.ReadAt(head, from); err != nil {
			return from, ends(err)
		}
		length, total := int64(
			binary.LittleEndian.Uint32(head[4:]),
		), int64(
			binary.LittleEndian.Uint64(head[8:]),
		)
		if binary.LittleEndian.Uint32(head) != frameMark || total < 0 || length > s.size-from || total > s.size-from {
			return from, nil
		}
		text := make([]byte, length)
		if _, err := s.file.ReadAt(text, from+frameHead); err != nil {
			return from, ends(err)
		}
		var r record
		if s.sum(from, head[:16], text) != binary.LittleEndian.Uint32(head[16:]) || json.Unmarshal(text, &r) != nil {
			return from, nil
		}
		s.locate(&r, from+frameHead+length)
		if bodies {
			if whole, err := s.whole(&r); err != nil || !whole {
				return from, err
			}
		}
		if err := each(&r); err != nil {
			return from, err
		}
		from += frameHead + length + total
	}
}

// whole reports whether all bodies of a frame have their checksums.
func (s *segment) whole(r *record) (bool, error) {
	var buf []byte
	for _, p := range r.Put {
		if p.Length < 0 || p.Length > s.size || p.place.Offset < 0 || p.place.Offset > s.size-p.Length {
			return false, nil // a checksum can be right in a file that someone else has made
		}
		if int64(cap(buf)) < p.Length {
			buf = make([]byte, p.Length)
		}
		buf = buf[:p.Length]
		if _, err := s.file.ReadAt(buf, p.place.Offset); err != nil {
			return false, ends(err)
		}
		if crc32.Checksum(buf, castagnoli) != p.Sum {
			return false, nil
		}
	}
	return true, nil
}

// ends converts the end of the file to nil: the log ends there.
func ends(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return fmt.Errorf("reading the log of trajectories: %w", err)
}
