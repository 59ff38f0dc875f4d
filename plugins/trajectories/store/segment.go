package store

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// The log is a row of append-only files of frames (see frame.go): what a commit changed, followed by the bodies of the
// groups that it put. The index remembers where each body is, and up to where it has taken the log in. A file is
// deleted, or written again (see spare.go), when the last group in it has ended.

// magic starts every log file: a file without it belongs to another program and is not touched. Eight random bytes
// follow it.
const magic = "recipe trajectories 1\n"

const headSize = len(magic) + 8

// segmentSize is where a new file is begun, unless the options say otherwise: small enough that ended groups free
// space soon.
const segmentSize = 64 << 20

// place is where a body lies.
type place struct {
	Segment uint32
	Offset  int64
	Length  int64
	Sum     uint32 // CRC-32C
}

// segment is one log file.
type segment struct {
	number uint32
	file   *os.File
	seed   uint32 // of its frames' checksums, so that nothing from elsewhere is taken for one of them
	size   int64
	forced int64 // how much of it is known to be on the disk
	live   int   // groups that the index refers to
	bytes  int64 // of their bodies
	before int64 // bytes, when it was last looked at
	tried  bool  // its groups have been moved, or cannot be
}

// bodies is the set of log files. Writing is for one goroutine, reading for any.
type bodies struct {
	dir   string
	limit int64 // of a file

	mu       sync.RWMutex
	segments map[uint32]*segment
	current  *segment
	next     uint32
	idle     bool // some file may have lost its last reference

	reuse bool // keep unused files for what comes
	spare []*segment
}

// ErrCorrupt reports that a body differs from what was written: the file was changed, or the disk has lost it.
var ErrCorrupt = errors.New("a stored group is damaged")

func openBodies(dir string, limit int64) (*bodies, error) {
	b := &bodies{dir: dir, limit: limit, segments: map[uint32]*segment{}, next: 1}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the folder of the trajectory bodies: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing the trajectory bodies: %w", err)
	}
	for _, e := range entries {
		number, err := strconv.ParseUint(strings.TrimSuffix(e.Name(), ".log"), 10, 32)
		if err != nil || !strings.HasSuffix(e.Name(), ".log") {
			continue
		}
		b.next = max(b.next, uint32(number)+1)
		s, err := openSegment(filepath.Join(dir, e.Name()), uint32(number))
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		if s != nil {
			b.segments[s.number] = s
		}
	}
	return b, nil
}

// openRegular is os.OpenFile, which opens no link, and waits at no pipe.
func openRegular(name string, flag int, mode os.FileMode) (*os.File, error) {
	f, err := os.OpenFile(name, flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, mode)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(cmp.Or(err, fmt.Errorf("%s is no regular file", name)), f.Close())
	}
	return f, nil
}

// openSegment opens a file for reading; nil when it belongs to another program.
func openSegment(name string, number uint32) (*segment, error) {
	f, err := openRegular(name, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("opening trajectory bodies: %w", err)
	}
	head := make([]byte, headSize)
	if n, err := f.ReadAt(head, 0); n < headSize && err != nil || string(head[:len(magic)]) != magic {
		_ = f.Close()
		return nil, nil
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("opening trajectory bodies: %w", err)
	}
	return &segment{number: number, file: f, seed: seedOf(head), size: info.Size()}, nil
}

func (b *bodies) name(number uint32) string {
	return filepath.Join(b.dir, fmt.Sprintf("%08d.log", number))
}

// end is where the next frame goes: in the current file, or in the one that will be begun next.
func (b *bodies) end() (number uint32, size int64) {
	if b.current == nil {
		return b.next, int64(headSize)
	}
	return b.current.number, b.current.size
}

// after makes sure that the next file begins behind the place which the index has come to. The files up to there may
// all be gone, and what was written under their numbers again would be taken for what the index knows.
func (b *bodies) after(number uint32, offset int64) {
	if b.segments[number] != nil || offset > int64(headSize) {
		number++
	}
	b.next = max(b.next, number)
}

func seedOf(head []byte) uint32 { return crc32.Checksum(head, castagnoli) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// begin starts a new file and makes it the current one. A file from before a restart is never appended to.
func (b *bodies) begin() error {
	s := b.again()
	if s == nil {
		var err error
		if s, err = b.create(); err != nil {
			return err
		}
	}
	b.mu.Lock()
	b.next++
	b.segments[s.number] = s
	b.current = s
	b.mu.Unlock()
	b.idle = true // the one before may be without references already
	return nil
}

// create makes a new file.
func (b *bodies) create() (*segment, error) {
	name := b.name(b.next)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("beginning a file of trajectories: %w", err)
	}
	head := newHead()
	if _, err = f.WriteAt(head, 0); err == nil {
		err = syncDir(b.dir)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("beginning a file of trajectories: %w", err), f.Close(), os.Remove(name))
	}
	return &segment{number: b.next, file: f, seed: seedOf(head), size: int64(headSize)}, nil
}

// abandon cuts the current file to what was forced, and has the next frame begin a new file.
func (b *bodies) abandon(sync func(*os.File) error) error {
	s := b.current
	if err := s.file.Truncate(s.forced); err != nil {
		return fmt.Errorf("cutting off what could not be forced to the disk: %w", err)
	}
	if err := sync(s.file); err != nil {
		return fmt.Errorf("forcing a file of the log to the disk that was cut to what is there: %w", err)
	}
	if s.size = s.forced; s.forced == 0 { // even its header is missing
		b.remove(s)
	}
	b.mu.Lock()
	b.current = nil
	b.mu.Unlock()
	b.idle = true // it may be without references
	return nil
}

// largeBody is a length beyond which the size of the file is asked for before memory is taken.
const largeBody = 16 << 20

// read appends a body to dst and checks that it is what was written.
func (b *bodies) read(p place, dst []byte) ([]byte, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	s := b.segments[p.Segment]
	if s == nil {
		return dst, fmt.Errorf("%w: its file %s is missing", ErrCorrupt, b.name(p.Segment))
	}
	from := len(dst)
	if p.Length < 0 || p.Length > largeBody {
		if info, err := s.file.Stat(); err != nil || p.Length < 0 || p.Length > info.Size() {
			return dst, fmt.Errorf("%w: the index names %d bytes of %s", ErrCorrupt, p.Length, b.name(p.Segment))
		}
	}
	dst = slices.Grow(dst, int(p.Length))[:from+int(p.Length)]
	if _, err := s.file.ReadAt(dst[from:], p.Offset); err != nil {
		return dst[:from], fmt.Errorf(
			"%w: reading %d bytes at %d of %s: %w",
			ErrCorrupt,
			p.Length,
			p.Offset,
			b.name(p.Segment),
			err,
		)
	}
	if crc32.Checksum(dst[from:], castagnoli) != p.Sum {
		return dst[:from], fmt.Errorf(
			"%w: %d bytes at %d of %s have another checksum than when they were written",
			ErrCorrupt,
			p.Length,
			p.Offset,
			b.name(p.Segment),
		)
	}
	return dst, nil
}

// full reports whether the current file is full.
func (b *bodies) full() bool { return b.current != nil && b.current.size >= b.limit }

// room makes sure that there is a file to append to.
func (b *bodies) room() error {
	if b.current == nil || b.full() {
		return b.begin()
	}
	return nil
}

// use counts a reference to a file.
func (b *bodies) use(p place, sign int) {
	b.mu.RLock()
	s := b.segments[p.Segment]
	b.mu.RUnlock()
	if s == nil {
		return
	}
	s.live += sign
	s.bytes += int64(sign) * p.Length
	b.idle = b.idle || s.live == 0
}

// tidy retires the files that nothing refers to and nothing will be added to. It must only be called when the index
// has taken in all of the log: before that, what a file says may still be needed.
func (b *bodies) tidy() {
	if !b.idle {
		return
	}
	b.idle = false
	b.mu.RLock()
	var unused []*segment
	for _, s := range b.segments {
		if s.live == 0 && s != b.current {
			unused = append(unused, s)
		}
	}
	b.mu.RUnlock()
	for _, s := range unused {
		b.retire(s)
	}
}

// remove deletes a file. Should that fail, the next start tries again.
func (b *bodies) remove(s *segment) {
	b.mu.Lock()
	delete(b.segments, s.number)
	b.mu.Unlock()
	_ = s.file.Close()
	_ = os.Remove(b.name(s.number))
}

func (b *bodies) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var err error
	for _, s := range b.segments {
		err = errors.Join(err, s.file.Close())
	}
	for _, s := range b.spare {
		err = errors.Join(err, s.file.Close())
	}
	clear(b.segments)
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("forcing a folder to the disk: %w", err)
	}
	defer func() { _ = d.Close() }()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) { // some file systems do not sync folders
		return fmt.Errorf("forcing a folder to the disk: %w", err)
	}
	return nil
}
